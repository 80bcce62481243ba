"""Changes of the job that are estimated again before they are shown."""
