"""A real Slurm cluster on this machine, for tests; see README.md."""
