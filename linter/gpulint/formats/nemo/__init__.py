"""NeMo, NeMo AutoModel and NeMo RL."""
