"""oumi configs."""
