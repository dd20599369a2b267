"""The parts of ``benchmarks/overlap.py``: schedule, writers, designs, judge."""
