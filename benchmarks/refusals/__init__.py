"""What upstream's own validators refuse, and whether gpulint says so at the key."""
