"""A tape of tensors: what PyTorch keeps alive while it runs a graph forward and backward, on sizes alone."""
