"""Config formats: values -> a Job, and a Job change -> edits."""
