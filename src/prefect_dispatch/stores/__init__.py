"""Ledgers and saves on a store, and the lineage root built from them. Standard library, Python 3.9 (S3 aside)."""
