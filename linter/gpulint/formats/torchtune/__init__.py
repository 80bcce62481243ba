"""torchtune configs."""
