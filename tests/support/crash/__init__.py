"""Jobs on real parts, killed where a test says, and everything that must hold afterwards."""
