"""How keys of a file become fields of a Job and back: a format is a table of rows."""
