"""Functions of arrays that layers are made of: activations."""
