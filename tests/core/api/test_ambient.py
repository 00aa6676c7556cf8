"""Ambient values: taken along by loops, branches and remat, and by nothing else."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp


class Box(td.Ambient):
    """Two values; `busy` changes, `idle` is only read."""

    def __init__(self, busy, idle):
        self.busy, self.idle = busy, idle

    def read(self):
        return {"busy": self.busy, "idle": self.idle}

    def write(self, values):
        self.busy, self.idle = values["busy"], values["idle"]


def body(box):
    def step(x, _):
        box.busy = box.busy + box.idle
        return x + box.busy, None

    return step


def test_what_is_open():
    outer, inner = Box(0, 0), Box(1, 1)
    assert td.ambients() == ()
    with outer.opened(), inner.opened():
        assert td.ambients() == (outer, inner)
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(td.ambients()))
        thread.start()
        thread.join()
        assert elsewhere == [()]
    with pytest.raises(KeyError), outer.opened():
        raise KeyError
    assert td.ambients() == ()


@pytest.mark.parametrize("transform", [lambda f: f, td.jit])
def test_numbers_and_arrays(transform):
    def run(x, idle):
        with Box(1, idle).opened() as box:
            x, _ = td.scan(body(box), x, None, length=3)
            assert box.transform is td.current_transform()
            return x, box.busy, box.idle

    x, busy, idle = transform(run)(np.float32(0), np.int32(2))
    assert (float(x), int(busy), int(idle)) == (3 + 5 + 7, 7, 2)


def test_what_does_not_change_is_not_carried():
    def run(x, idle):
        with Box(1, idle).opened() as box:
            return td.scan(body(box), x, None, length=3)[0]

    graph = td.trace(run)(1, np.int32(2))
    (equation,) = [eq for eq in graph.equations if eq.op.name == "scan"]
    assert (equation.params["n_consts"], equation.params["n_carry"]) == (1, 2)


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_numbers_stay_known_where_every_branch_agrees():
    def run(x):
        with Box(1, 2).opened() as box:

            def step(x):
                return body(box)(x, None)[0]

            x = td.cond(x > 0, step, lambda x: step(-x), td.remat(step)(x))
            return x, range(box.busy)

    found = []
    td.jit(lambda x: found.append(run(x)[1]) or x)(1)
    assert found == [range(5)]


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_other_transforms_see_the_values_but_do_not_own_them():
    with Box(tnp.ones(()), 2).opened() as box:
        seen = []

        def look(x):
            seen.append(box.transform is td.current_transform())
            return td.scan(lambda c, _: (c * box.busy, None), x, None, length=2)[0]

        for transform in (td.jit, td.grad, td.vmap):
            transform(look)(tnp.ones(3) if transform is td.vmap else 1.0)
        assert seen == [False] * 3 and float(box.busy) == 1.0


def test_types_stay():
    def loop(new):
        def step(x, _):
            box.busy = new
            return x, None

        with Box(0, 0).opened() as box:
            td.scan(step, 0, None, length=1)

    for new in (1.5, tnp.ones(2), (1, 2), None):
        with pytest.raises(TypeError, match=r"(?s)scan: what step changes.*goes in"):
            loop(new)
