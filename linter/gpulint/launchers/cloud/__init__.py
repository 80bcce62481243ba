"""Slurm, SkyPilot, Compose, dstack, Truss and other task files."""
