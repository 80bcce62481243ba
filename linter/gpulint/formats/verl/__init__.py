"""verl's trainers."""
