"""config.json fields -> a tensor inventory; the catalogue of hub ids."""
