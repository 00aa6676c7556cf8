"""Normalisation, regularisation, and functions of one array."""

from __future__ import annotations

from typing import Any

from treadle import nn, rng

KEY = rng.key(0)
LAYERS: dict[str, Any] = {
    "plane_norm": nn.LayerNorm((4, 6)),
    "group_norm": nn.GroupNorm(2, 8),
    "image_groups": nn.GroupNorm(3, 3, spatial_axes=2),
    "instance_norm": nn.InstanceNorm(3),
    "batch_stats": nn.BatchNorm(6, momentum=None, scale=False),
    "weight_norm": nn.WeightNorm(nn.Linear(6, 5, key=KEY)),
    "spectral_norm": nn.SpectralNorm(nn.Linear(6, 5, key=KEY), key=KEY),
    "prelu": nn.PReLU(8),
    "rrelu": nn.RReLU(),
    "whole_drop": nn.Dropout(0.3, broadcast_axes=1),
    "alpha_drop": nn.AlphaDropout(0.3),
    "path_drop": nn.DropPath(0.3),
    "gauss_drop": nn.GaussianDropout(0.3),
    "noise": nn.GaussianNoise(0.3),
}
FUNCTIONS = (
    "geglu reglu quick_gelu softmin logmeanexp hard_shrink soft_shrink tanh_shrink "
    "standardize normalize"
)
EXPRESSIONS = [
    *(f"nn.{name}(s)" for name in FUNCTIONS.split()),
    "nn.threshold(s, 0.5, 2.0), nn.log1mexp(p), nn.gumbel_softmax(s, rng.key(0))",
    "nn.standardize(a, (1, 3))",
    "nn.standardize(a.astype(tnp.bfloat16), (1, 3))",
    "nn.glu(s, 2), nn.logmeanexp(z, 1), nn.standardize(z, (0, 1)), nn.normalize(z, 0)",
    "plane_norm(x[:, None] + tnp.ones((4, 1)))",
    "group_norm(s)",
    "image_groups(im)",
    "instance_norm(im)",
    "nn.stateful(batch_stats)(x + 0)[0]",
    "weight_norm(x), nn.stateful(spectral_norm)(x)[0]",
    "prelu(s), dropped(rrelu, s), dropped(whole_drop, s), dropped(alpha_drop, s)",
    "dropped(path_drop, s), dropped(gauss_drop, s), dropped(noise, s)",
]
GUARDED = {
    "group_norm(s)": "sums of one element are left out",
    "image_groups(im)": "sums of one element are left out",
    "instance_norm(im)": "statistics of one value are an error",
    "nn.stateful(batch_stats)(x + 0)[0]": "statistics of one value are an error",
}
SIZES = {
    "image_groups(im)": ((3, 6, 4), (2, 1, 4), (1, 1, 1), (2, 2, 1), (5, 4, 4)),
    "nn.stateful(batch_stats)(x + 0)[0]": ((3,), (2,), (8,), (17,)),
}
