"""The engine: rule files, the facts they speak of, findings, and suggestions that are checked."""
