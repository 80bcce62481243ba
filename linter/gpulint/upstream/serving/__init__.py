"""Engines that serve models: vLLM, SGLang, Text Generation Inference."""
