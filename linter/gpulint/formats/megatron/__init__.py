"""Megatron-LM, Megatron-Bridge and GPT-NeoX."""
