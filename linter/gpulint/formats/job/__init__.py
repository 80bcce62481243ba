"""`gpulint: job/v1` files."""
