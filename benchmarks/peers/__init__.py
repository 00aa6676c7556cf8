"""How each library fills a model with given weights and runs its training step.

The optimizer is AdamW with the same numbers everywhere, the loss is the mean
cross-entropy of the model's logits over the last axis.
"""

import time

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-2


def after_two_steps(step) -> float:
    """Milliseconds that the first two steps take more than the third."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        float(step.step())
        times.append((time.perf_counter() - start) * 1e3)
    return times[0] + times[1] - 2 * times[2]
