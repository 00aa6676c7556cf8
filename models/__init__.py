"""Models of the field, in short files that can be copied."""
