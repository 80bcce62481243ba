"""SGLang: its static share, weights, cache and graphs."""
