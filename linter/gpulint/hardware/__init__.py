"""The catalogue of GPUs and instance types."""
