"""Plain generation with Transformers."""
