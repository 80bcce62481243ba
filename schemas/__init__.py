"""JSON Schemas: the keys of each config format, and gpulint's own files."""
