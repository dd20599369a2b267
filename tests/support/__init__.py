"""What tests of several folders share; ``pythonpath`` in pyproject.toml lets them import it."""
