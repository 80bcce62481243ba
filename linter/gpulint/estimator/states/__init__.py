"""What a rank holds, tensor by tensor: weights, gradients and optimizer states, in their dtype or packed."""
