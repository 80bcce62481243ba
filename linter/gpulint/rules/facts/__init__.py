"""What rules can read of a job."""
