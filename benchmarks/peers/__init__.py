"""How each library fills a model with given weights and runs its training step.

The optimizer is AdamW with the same numbers everywhere, the loss is the mean
cross-entropy of the model's logits over the last axis.
"""

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-2
