"""Shell scripts: words, variables, branches."""
