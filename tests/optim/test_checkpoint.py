"""States survive a checkpoint, schedules and all."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng, tree
from treadle.checkpoint import restore, save


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    schedule = optim.warmup_cosine_decay_schedule(0.0, 0.1, 3, 20)
    optimizer = optim.chain(
        optim.clip_by_global_norm(1.0),
        optim.adamw(schedule, moment_dtype=td.bfloat16),
        optim.average_parameters(0.9),
    )
    model = nn.Linear(4, 3, key=rng.key(0))
    state = optimizer.init(model)
    grads = td.grad(lambda m: (m(tnp.ones(4)) ** 2).sum())(model)
    for _ in range(4):
        _, state = optimizer.update(grads, state, model)
    save(tmp_path / "state", state)
    restored = restore(tmp_path / "state", optimizer.init(model))
    assert tree.structure(restored) == tree.structure(state)
    for after in (restored, pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
        expected, _ = optimizer.update(grads, state, model)
        found, _ = optimizer.update(grads, after, model)
        np.testing.assert_array_equal(found.weight, expected.weight)
