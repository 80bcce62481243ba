"""How much of a file is read before it is refused. Configs are untrusted input."""

from __future__ import annotations

MAX_BYTES = 1 << 20
"""Size of a file, bytes. The largest of 2,369 published configs has 76 kB."""

MAX_DEPTH = 64
"""Nesting of collections, aliases followed. It keeps every recursive walk over a tree far from Python's limit."""

MAX_NODES = 200_000
"""Keys, values and collections written in one file."""

MAX_EXPANDED = 1_000_000
"""Nodes of one YAML document with every alias and merge written out: what a walk over the tree visits."""

MAX_INTEGER_DIGITS = 20
"""Digits of an integer; a longer one is kept as its text. 2^64 has 20."""
