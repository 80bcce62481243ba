"""The normalised plan of a job."""
