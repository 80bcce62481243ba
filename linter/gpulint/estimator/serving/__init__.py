"""Inference: plain generation, vLLM, SGLang and other engines, and their caches."""
