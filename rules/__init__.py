"""The policy: one YAML file a rule in a folder of its subject, and `index.json`, built by `scripts/build.py`."""
