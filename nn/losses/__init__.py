"""Losses: how far predictions are from their targets.

A loss gives one value per example (those that are elementwise, one per element), never
a mean: ``nn.cross_entropy(logits, labels).mean()``. Examples are left out by
``.mean(where=...)`` and weighted by ``tnp.average(losses, weights=...)``. What a loss
itself sums over (classes, the elements of a vector) is chosen by its own ``where=``.
Halves and integers are computed in float32; a target is taken in the prediction's
dtype.
"""
