"""Reports that programs read."""
