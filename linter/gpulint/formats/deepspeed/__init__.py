"""DeepSpeed configs."""
