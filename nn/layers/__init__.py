"""Layers: Modules with parameters, and those that need none."""
