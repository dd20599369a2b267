"""For tests: doubles of the ports, and the conformance suites that an adapter has to pass."""
