"""Sections that several tools have, described once: the rows of a table, with the tool's key names as arguments."""
