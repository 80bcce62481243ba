"""In which order norms, attention and MLP meet the residual stream, a module a family of architectures."""
