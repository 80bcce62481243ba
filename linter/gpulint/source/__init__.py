"""Text -> values that know where they stand."""
