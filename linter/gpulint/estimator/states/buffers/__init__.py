"""Tensors that libraries put on the GPU beside the parameters of a model."""
