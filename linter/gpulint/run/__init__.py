"""The pipeline: walking, checking, fixing, comparing."""
