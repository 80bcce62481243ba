"""How many findings are true on repositories that nobody here had seen."""
