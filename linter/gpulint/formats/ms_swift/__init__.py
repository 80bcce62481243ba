"""ms-swift and Megatron-SWIFT."""
