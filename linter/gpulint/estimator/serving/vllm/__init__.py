"""vLLM: its profile run, what counts against the budget, and the cache that is left."""
