"""What differs by release of Transformers, and in libraries with layers, losses or a training loop of their own."""
