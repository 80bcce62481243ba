"""Job -> Estimate: the memory of a GPU job, component by component."""
