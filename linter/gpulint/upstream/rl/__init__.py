"""Trainers of reinforcement learning."""
