"""How far estimates lie from published figures: `python -m benchmarks.accuracy`."""
