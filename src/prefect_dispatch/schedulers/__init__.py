"""The port to a scheduler and its adapters."""
