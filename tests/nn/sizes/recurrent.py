"""Recurrent and stacked layers on batches and lengths of any size."""

from __future__ import annotations

from typing import Any

from tests.core.dynamic import ints
from treadle import nn, rng

KEY = rng.key(0)
ARGS = {"len": ints("n", 0, 5)}
LAYERS: dict[str, Any] = {
    "rnn": nn.RNN(nn.LSTMCell(8, 4, proj_size=3, key=KEY)),
    "both": nn.Bidirectional(nn.GRUCell(8, 4, key=KEY), nn.GRUCell(8, 4, key=KEY)),
    "back": nn.RNN(nn.SimpleCell(8, 4, key=KEY), time_axis=0, reverse=True),
    "elman": nn.SimpleCell(8, 4, key=KEY),
    "stack": nn.Stack(lambda key: nn.Linear(8, 8, key=key), 3, remat=True, key=KEY),
    "video_cell": nn.ConvLSTMCell(3, 2, (3, 3), key=KEY),
    "deep": nn.StackedRNN.make(nn.SimpleCell, (8, 4, 4), bidirectional=True, key=KEY),
}
EXPRESSIONS = [
    "rnn(s), back(s), elman(s, tnp.zeros(4))",
    "both(s, lengths=len)",
    "deep(s)",
    "nn.RNN(video_cell)(tnp.stack([im, im + 1], 1))[0]",
    "stack(s), stack(s[0])",
]
NOT_LAYERS = "capture record"
