"""The output head and the losses, where the vocabulary-wide tensors live."""
