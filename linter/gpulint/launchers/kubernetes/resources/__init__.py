"""Custom resources, a module an operator."""
