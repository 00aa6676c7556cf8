"""Collections: what is added in scan, vmap and remat, and in nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import tree

XS = np.arange(6, dtype=np.float32).reshape(3, 2)


def gathered(function, *args):
    with td.Collection().opened() as seen:
        out = function(seen, *args)
    return out, seen.entries


def loop(seen, xs):
    """A scan and a vmap inside of a scan, and one entry behind."""

    def inner(total, x):
        seen.add("inner", total * x)
        return total + x, None

    def example(x):
        seen.add("example", {"twice": 2 * x, "one": 1.0})
        return x + 1

    def body(total, row):
        total, _ = td.scan(inner, total, row)
        seen.add("mapped before", total)
        return total + td.vmap(example)(row).sum(), total

    out = td.scan(body, 0.0, xs)
    seen.add("inner", out[0])
    return out


def by_hand(xs):
    total, inner, before, ys = np.float32(0), [], [], []
    for row in xs:
        inner.append([])
        for x in row:
            inner[-1].append(total * x)
            total = total + x
        before.append(total)
        ys.append(total)
        total = total + (row + 1).sum()
    entries = {
        "inner": np.array(inner),
        "mapped before": np.array(before),
        "example": {"twice": 2 * xs, "one": np.ones_like(xs)},
        "inner#2": total,
    }
    return (total, np.array(ys)), entries


@pytest.mark.parametrize("mode", ["eager", "jit", "disabled"])
def test_loops_stack_what_their_bodies_add(mode):
    def run(xs):
        return gathered(loop, xs)

    if mode == "disabled":
        with td.disable_jit():
            found = run(XS)
    else:
        found = (td.jit(run) if mode == "jit" else run)(XS)
    assert set(found[1]) == set(by_hand(XS)[1])
    tree.map(np.testing.assert_allclose, found, by_hand(XS))


def test_under_transforms_from_outside():
    """What was added is a result like others: it has gradients, and examples."""

    def score(xs):
        (total, ys), entries = gathered(loop, xs)
        return total + ys.sum() + (entries["inner"] ** 2).sum()

    td.check_grads(score, (XS,), order=1, modes=("rev",))
    each = td.vmap(lambda xs: gathered(loop, xs)[1])(np.stack([XS, 2 * XS]))
    tree.map(
        np.testing.assert_allclose, tree.map(lambda x: x[1], each), by_hand(2 * XS)[1]
    )


def test_remat_and_out_axes():
    def program(seen, x):
        def function(x, flag):
            if flag:
                seen.add("sine", tnp.sin(x))
            return tnp.cos(tnp.sin(x))

        y = td.remat(function)(x, True)
        return y, td.vmap(lambda v: tnp.stack([v, v]), out_axes=1)(x)

    (y, columns), entries = gathered(program, XS[0])
    np.testing.assert_allclose(entries["sine"], np.sin(XS[0]), rtol=1e-6)
    np.testing.assert_allclose(y, np.cos(np.sin(XS[0])), rtol=1e-6)
    assert columns.shape == (2, 2)


def test_elsewhere_nothing_is_added():
    def program(seen, x):
        def add(x):
            seen.add("x", x)
            assert not seen.is_here
            return x * x

        td.jit(add)(x)
        td.grad(add)(x)
        x = td.cond(x > 0, add, add, x)
        return td.while_loop(lambda x: x < 9, add, x)

    assert td.jit(lambda x: gathered(program, x)[1])(2.0) == {}
    seen = td.Collection()
    seen.add("closed", 1.0)
    assert seen.entries == {}
