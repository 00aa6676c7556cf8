"""Losses of any number of examples, classes and frames."""

from __future__ import annotations

from typing import Any

from tests.core.dynamic import bools, floats, ints, positive

ARGS = {
    "logits": floats("n c"),
    "q": positive("n c"),
    "bits": bools("n c"),
    "named": ints("n", 0, 1),
    "maps": floats("n h w 3"),
    "areas": positive("n h w 3"),
    "frames": floats("n t 5"),
    "spelled": ints("n k", 1, 5),
    "ends": ints("n", 1, 3),
}
EXPRESSIONS = [
    "nn.cross_entropy(logits, named, 0.1, where=bits), "
    "nn.cross_entropy(logits, q, where=bits, class_weights=q[0]), "
    "nn.poly_cross_entropy(logits, named), nn.focal(logits, q), "
    "nn.binary_focal(logits, q, 1.5, 0.3), "
    "nn.generalized_kl_divergence(logits, tnp.log(q), where=bits)",
    "nn.hinge(logits, q), nn.squared_hinge(logits, q), "
    "nn.margin_ranking(logits, q, q, 0.5), "
    "nn.multiclass_hinge(logits, named), nn.multi_margin(logits, named), "
    "nn.triplet_margin(logits, q, 2 * q), nn.cosine_similarity(logits, q, where=bits), "
    "nn.cosine_distance(logits, q), nn.ntxent(logits, named, 0.5), "
    "nn.cosine_embedding(logits, q, named), nn.hinge_embedding(logits, q), "
    "nn.log_cosh(logits, q), nn.quantile_error(logits, q, 0.2), "
    "nn.poisson_nll(logits, q, True), nn.gaussian_nll(logits, q, q)",
    "nn.dice(nn.softmax(maps), areas)",
    "nn.ctc(frames, spelled, ends + 1, tnp.minimum(ends, spelled.shape[1]))",
]
# Few sizes: each is compared with a program of its own.
SIZES: dict[str, Any] = {
    EXPRESSIONS[0]: ((3, 5), (1, 1)),
    EXPRESSIONS[1]: ((3, 5), (1, 1)),
    EXPRESSIONS[2]: ((3, 5, 4), (1, 1, 1)),
    EXPRESSIONS[3]: ((3, 5, 4), (1, 4, 1)),
}
