"""YAML as PyYAML reads it, with places."""
