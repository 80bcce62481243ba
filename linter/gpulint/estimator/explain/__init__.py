"""The terms of each figure, for `--explain`."""
