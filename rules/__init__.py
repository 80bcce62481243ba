"""The policy: one YAML file a rule, and `index.json`, built from them by `scripts/build.py`."""
