"""Engines that hold a pool of cache."""
