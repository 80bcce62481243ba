"""Accelerate's config files, and what `accelerate launch` makes of a run."""
