"""Losses: how far predictions are from their targets."""
