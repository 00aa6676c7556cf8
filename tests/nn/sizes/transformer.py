"""Blocks of transformers, and their networks."""

from __future__ import annotations

from typing import Any

from treadle import nn, rng

KEY = rng.key(0)
LAYERS: dict[str, Any] = {
    "encoder": nn.TransformerEncoder(1, 8, 2, 6, key=KEY),
    "decoder": nn.TransformerDecoder(1, 8, 2, 6, mlp=nn.GatedMLP, key=KEY),
    "encoder_block": nn.TransformerEncoderBlock(8, 2, 6, pre_norm=False, key=KEY),
    "decoder_block": nn.TransformerDecoderBlock(8, 2, 6, key=KEY),
    "feed": nn.FeedForward(8, 6, key=KEY),
    "gated": nn.GatedMLP(8, 6, key=KEY),
    "experts": nn.MixtureOfExperts(8, 6, experts=4, key=KEY),
    "full": nn.MixtureOfExperts(8, 6, experts=4, capacity_factor=1.3, key=KEY),
    "mixer": nn.MLPMixerBlock(2, 4, 3, 5, key=KEY),
}
EXPRESSIONS = [
    "encoder(s, causal=True)",
    "decoder(s, c)",
    "mixer(a)",
    "nn.stateful(experts)(s)[0], nn.balance_loss(nn.stateful(experts)(s)[1])",
    "nn.inference(full)(s)",
]
FEW = ((3, 5), (1, 1), (8, 3))
SIZES = {
    "encoder(s, causal=True)": FEW,
    "decoder(s, c)": ((3, 5, 4), (1, 1, 1), (2, 8, 3)),
    EXPRESSIONS[3]: FEW,
}
