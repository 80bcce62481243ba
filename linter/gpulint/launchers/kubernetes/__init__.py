"""Kubernetes manifests and the charts that make them."""
