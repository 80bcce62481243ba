"""From allocated bytes to reserved ones, and to those of the process."""
