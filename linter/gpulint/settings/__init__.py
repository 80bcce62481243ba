"""What a run was asked to do."""
