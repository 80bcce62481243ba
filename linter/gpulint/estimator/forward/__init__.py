"""A forward pass of the whole model: what comes before the layers, the layers one after the other, the last norm."""
