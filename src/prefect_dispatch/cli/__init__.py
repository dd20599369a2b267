"""Operator commands: ``prefect-dispatch``."""
