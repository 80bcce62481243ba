"""Changes of a file that keep every other byte."""
