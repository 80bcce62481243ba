"""Findings -> what people and programs read."""
