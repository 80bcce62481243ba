"""torchtitan configs."""
