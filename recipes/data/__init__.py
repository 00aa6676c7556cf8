"""The recipes' data, and the order in which it is seen."""
