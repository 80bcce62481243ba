"""LLaMA-Factory configs."""
