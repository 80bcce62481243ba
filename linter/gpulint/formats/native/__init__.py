"""Tools with a trainer of their own."""
