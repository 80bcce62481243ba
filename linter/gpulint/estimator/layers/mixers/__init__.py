"""Layers that are no attention: state space models, linear attention, convolutions."""
