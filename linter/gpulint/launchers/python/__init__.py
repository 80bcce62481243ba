"""Python files that load models and start engines with arguments that stand in them. They are read, never run."""
