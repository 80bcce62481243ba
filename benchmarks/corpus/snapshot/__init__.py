"""What gpulint says of many inputs, written down so that two versions of it can be compared."""
