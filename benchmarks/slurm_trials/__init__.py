"""What ``slurm_overlap.py`` does to a real Slurm cluster."""
