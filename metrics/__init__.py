"""Metrics: pytrees that are merged over batches and read at the end."""
