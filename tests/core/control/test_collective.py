"""Named axes: what the members of one have together, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, TREADLE, agree, array, close, total
from tests.core.dynamic import same_bytes
from tests.refused import refused
from treadle.trace.lowering import Collective
from treadle.trace.op import registry

X = array(4, 4, 3) / 3
"""Four members, each with a matrix of four rows."""


def custom(lib: Any, x: Any) -> Any:
    def plain(x: Any) -> Any:
        return lib.psum(x, "i") + x

    own = lib.custom_vjp(plain)
    own.defvjp(lambda x: (plain(x), x), lambda x, ct: (lib.psum(2 * ct * x, "i"),))
    return own(x) * x


def custom_forward(lib: Any, x: Any) -> Any:
    @lib.custom_jvp
    def own(x: Any) -> Any:
        return lib.psum(lib.np.sin(x), "i")

    def rule(primals: Any, tangents: Any) -> Any:
        return own(*primals), lib.psum(3 * tangents[0], "i")

    own.defjvp(rule)
    return own(x) * x


def loop(lib: Any, x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        return lib.np.sin(lib.psum(carry, "i") * 0.3 + row), lib.pmean(carry, "i")

    return lib.scan(body, 0 * x[0], x)


def branch(lib: Any, x: Any) -> Any:
    def own(x: Any) -> Any:
        return lib.psum(x, "i") * x

    def other(x: Any) -> Any:
        return lib.cond(x[0, 0] > 0, lib.np.cos, lib.np.sin, lib.pmean(x, "i"))

    first = lib.psum(x[0, 0], "i")
    return lib.cond(first > 0, own, other, x), lib.cond(first < 0, own, other, x)


MEMBER: dict[str, Callable[[Any, Any], Any]] = {
    "psum": lambda lib, x: lib.psum(lib.np.sin(x), "i") * x,
    "a tree": lambda lib, x: lib.psum({"a": x * x, "b": (x[0], 2)}, "i"),
    "pmean": lambda lib, x: lib.np.sin(x - lib.pmean(x, "i")),
    "all_gather": lambda lib, x: lib.all_gather(lib.np.sin(x), "i", axis=1) * x[0],
    "all_gather, last": lambda lib, x: lib.all_gather(x * x, "i", axis=-1),
    "all_gather, tiled": lambda lib, x: lib.all_gather(
        lib.np.sin(x), "i", axis=1, tiled=True
    ),
    "psum_scatter": lambda lib, x: lib.psum_scatter(lib.np.sin(x), "i") * x,
    "psum_scatter, tiled": lambda lib, x: lib.psum_scatter(
        lib.np.sin(lib.np.concatenate([x, x * x])), "i", tiled=True
    ),
    "all_to_all": lambda lib, x: lib.all_to_all(lib.np.sin(x), "i", 0, 0),
    "all_to_all, moved": lambda lib, x: lib.all_to_all(lib.np.sin(x), "i", 0, 1),
    "all_to_all, tiled": lambda lib, x: lib.all_to_all(
        lib.np.sin(lib.np.concatenate([x, x * x])), "i", 0, 1, tiled=True
    ),
    "pswapaxes": lambda lib, x: lib.pswapaxes(x * x, "i", 0) * x,
    "ppermute": lambda lib, x: (
        lib.ppermute(lib.np.sin(x), "i", [(0, 2), (2, 3), (3, 0), (1, 1)]) * x
    ),
    "pshuffle": lambda lib, x: lib.pshuffle(x * x, "i", [2, 0, 3, 1]) * x,
    "axis_index": lambda lib, x: x * lib.axis_index("i") + lib.axis_size("i"),
    "row of one's own": lambda lib, x: x[lib.axis_index("i")] * lib.psum(x, "i"),
    "jit inside": lambda lib, x: lib.jit(lambda x: lib.psum(x * x, "i") * x)(x),
    "remat": lambda lib, x: lib.remat(lambda x: lib.np.sin(lib.psum(x, "i")) * x)(x),
    "scan": loop,
    "cond": branch,
    "a branch of some": lambda lib, x: lib.cond(
        x[0, 0] > 0, lambda x: lib.psum(x, "i") * x, lib.np.sin, x
    ),
    "while_loop": lambda lib, x: lib.while_loop(
        lambda c: lib.psum(lib.np.abs(c).sum(), "i") < 50,
        lambda c: c + lib.psum(c * c, "i"),
        x,
    ),
    "while_loop that ends at times": lambda lib, x: lib.while_loop(
        lambda c: c[0] < lib.axis_index("i") + 2,
        lambda c: (c[0] + 1, c[1] + lib.psum(c[1], "i")),
        (0, x),
    ),
    "custom_vjp": custom,
    "custom_jvp": custom_forward,
}
VALUES = {
    "while_loop",
    "while_loop that ends at times",
    "all_to_all, moved",  # JAX's derivative within vmap fails
    "a branch of some",  # JAX's derivatives within and around vmap differ
}


def scalar(lib: Any, f: Any) -> Callable[[Any], Any]:
    return lambda x: total(lib, f(lib, x))


def mapped(lib: Any, f: Any) -> Callable[..., Any]:
    return lib.vmap(f, axis_name="i")


WAYS: dict[str, Callable[[Any, Any], Callable[[Any], Any]]] = {
    "jit": lambda lib, f: lib.jit(mapped(lib, lambda x: f(lib, x))),
    "vmap of grad": lambda lib, f: mapped(lib, lib.grad(scalar(lib, f))),
    "grad of vmap": lambda lib, f: lib.jit(
        lib.grad(lambda x: mapped(lib, scalar(lib, f))(x).sum())
    ),
    "value": lambda lib, f: mapped(lib, lambda x: f(lib, x)),
    "vmap of jit of grad": lambda lib, f: mapped(
        lib, lib.jit(lib.grad(scalar(lib, f)))
    ),
    "vmap of grad of grad": lambda lib, f: lib.jit(
        mapped(lib, lib.grad(lambda x: lib.np.sin(lib.grad(scalar(lib, f))(x)).sum()))
    ),
    "jvp of grad of vmap": lambda lib, f: (
        lambda x: lib.jvp(
            lib.grad(lambda x: mapped(lib, scalar(lib, f))(x).sum()), (x,), (x,)
        )
    ),
}


QUICK = {"psum", "all_gather", "psum_scatter", "all_to_all", "ppermute", "custom_vjp"}


def _rows() -> list[Any]:
    rows = []
    for way in WAYS:
        for name in MEMBER:
            if way in ("jit", "value") or name not in VALUES:
                quick = way == "jit" or (way == "vmap of grad" and name in QUICK)
                marks = [] if quick else [pytest.mark.slow]
                rows.append(pytest.param(name, way, marks=marks, id=f"{name}, {way}"))
    return rows


@pytest.mark.parametrize(("name", "way"), _rows())
def test_agrees(name: str, way: str) -> None:
    f, build = MEMBER[name], WAYS[way]
    found = build(TREADLE, f)(X)
    wanted = jax.jit(build(JAX, f))(X)
    close(found, wanted, 1e-4)


TWO: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda lib, x: [lib.psum(x, n) for n in ("i", "j", ("i", "j"))],
    "product": lambda lib, x: lib.psum(x * x, ("j", "i")) * lib.pmean(x, "j") * x,
    "inner": lambda lib, x: lib.all_gather(lib.np.sin(x), "i") * x,
    "outer": lambda lib, x: lib.all_gather(lib.np.sin(x), "j", axis=1) * x[0],
    "scatter": lambda lib, x: lib.psum_scatter(
        lib.all_gather(x * x, "j", axis=1), "j", scatter_dimension=1
    ),
    "permute": lambda lib, x: lib.ppermute(x * x, "j", [(0, 1), (1, 0)]) * x,
    "index": lambda lib, x: lib.axis_index("i") + 10 * lib.axis_index("j") + x,
}


@pytest.mark.parametrize("way", ["value", pytest.param("grad", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TWO)
def test_two_axes(name: str, way: str) -> None:
    """The outer axis is seen from inside, whatever axes the inner one has moved to."""

    def build(lib: Any) -> Any:
        f = (lambda x: TWO[name](lib, x)) if way == "value" else scalar(lib, TWO[name])
        f = f if way == "value" else lib.grad(f)
        inner = lib.vmap(f, in_axes=1, axis_name="i")
        return lib.jit(lib.vmap(inner, in_axes=-1, out_axes=-1, axis_name="j"))

    agree(build, array(3, 4, 2), tolerance=1e-4)


Y = array(2, 3, 6)
"""Members ("j", "i") of 2 and 3, each with six numbers."""


def both_axes(f: Callable[[Any], Any]) -> Any:
    return td.vmap(td.vmap(f, axis_name="i"), axis_name="j")(Y)


def test_several_axes_are_one_of_which_the_last_varies_fastest() -> None:
    """JAX's vmap refuses them: what is wanted is said by one axis of all members."""
    names, flat = ("j", "i"), Y.reshape(6, 6)
    one: dict[str, Callable[[Any, Any], Any]] = {
        "all_gather": lambda x, n: td.all_gather(x, n, axis=1),
        "tiled": lambda x, n: td.all_gather(x, n, tiled=True),
        "psum_scatter": lambda x, n: td.psum_scatter(x, n),
        "all_to_all": lambda x, n: td.all_to_all(x * x, n, 0, 0),
        "exchange, tiled": lambda x, n: td.all_to_all(
            tnp.stack([x, x * x, 2 * x]), n, 1, 0, tiled=True
        ),
        "ppermute": lambda x, n: td.ppermute(x, n, [(0, 5), (5, 3), (3, 1)]),
        "pshuffle": lambda x, n: td.pshuffle(x, n, [3, 1, 0, 5, 2, 4]),
        "pbroadcast": lambda x, n: td.pbroadcast(x, n, 4),
        "axis_index": lambda x, n: td.axis_index(n) + 0 * x,
        "axis_size": lambda x, n: td.axis_size(n) + 0 * x,
    }
    for name, f in one.items():
        for wrap in (lambda f: f, lambda f: td.grad(lambda x: total(TREADLE, f(x)))):
            wanted = td.vmap(wrap(lambda x, f=f: f(x, "k")), axis_name="k")(flat)
            found = both_axes(wrap(lambda x, f=f: f(x, names)))
            assert found.shape == (2, 3, *wanted.shape[1:]), name
            np.testing.assert_allclose(
                np.asarray(found).reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit])
def test_extremes_and_who_has_them(wrap: Any) -> None:
    """JAX has no derivative of these: the whole array's extreme is the oracle."""
    x = np.float32([[1, 5, 2], [4, 5, -1], [4, 0, -3]])

    def members(name: str) -> Any:
        extreme = getattr(td, name)
        return lambda x: td.vmap(lambda r: extreme(r, "i") * tnp.sin(r), axis_name="i")(
            x
        ).sum()

    for name, whole in (("pmax", tnp.max), ("pmin", tnp.min)):
        want = lambda x, whole=whole: (whole(x, 0) * tnp.sin(x)).sum()  # noqa: E731
        for twice in (False, True):
            for f, g in ((members(name), want),):
                f, g = td.grad(f), td.grad(g)
                if twice:
                    f, g = (td.jacfwd(h) for h in (f, g))
                np.testing.assert_allclose(wrap(f)(x), g(x), rtol=1e-5, atol=1e-6)
    inside = td.vmap(td.grad(lambda r: td.pmax(r, "i").sum()), axis_name="i")(x)
    assert np.array_equal(
        inside, 3 * np.float32([[0, 0.5, 1], [0.5, 0.5, 0], [0.5, 0, 0]])
    )


def test_who_gets_nothing_gets_zeros() -> None:
    f = td.vmap(lambda x: td.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")
    x = np.float32([[1, 2], [3, np.nan], [5, 6]])
    assert np.array_equal(f(x), np.float32([[0, 0], [1, 2], [3, np.nan]]), True)
    back = td.vjp(f, x)[1](x)
    assert np.array_equal(back[0], np.float32([[3, np.nan], [5, 6], [0, 0]]), True)


def test_what_is_the_same_for_all() -> None:
    """Results that all members share have no axis, and arguments need none."""
    b = np.float32([1, 2, 3])

    def f(a: Any, b: Any) -> Any:
        return (
            td.psum(b, "i"),
            td.psum(a, "i"),
            td.pmean(b, "i"),
            td.pmax(b, "i"),
            td.all_gather(b, "i"),
            td.pbroadcast(a, "i", 2),
        )

    axes = {"in_axes": (0, None), "out_axes": None, "axis_name": "i"}
    for wrap in (lambda f: f, td.jit):
        found = wrap(td.vmap(f, **axes))(b, b)
        wanted = (3 * b, 6, b, b, np.stack([b] * 3), 3)
        for x, y in zip(found, wanted, strict=True):
            assert np.array_equal(x, y)
        for g, want in (
            (lambda b: td.psum_scatter(b, "i"), 3 * b),
            (lambda b: td.all_to_all(b, "i", 0, 0), np.stack([b] * 3, 1)),
            (lambda b: td.ppermute(b, "i", [(0, 2)]), np.stack([0 * b, 0 * b, b])),
        ):
            alone = td.vmap(g, None, axis_name="i", axis_size=3)
            assert np.array_equal(wrap(alone)(b), want)


def test_numbers_stay_numbers_and_bools_are_counted() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append((td.psum(1, "i"), td.psum(2.5, "i"), td.axis_size("i")))
        return td.psum(x > 0, "i"), td.pmean(x > 0, "i"), td.pmean(3, "i")

    counts, shares, mean = td.vmap(f, axis_name="i")(np.float32([1, -1, 2, 3]))
    assert seen == [(4, 10.0, 4)]
    assert np.array_equal(counts, [3] * 4)
    assert counts.dtype == np.int32
    assert np.array_equal(shares, [0.75] * 4)
    assert np.array_equal(mean, [3.0] * 4)


def test_a_jitted_function_is_traced_for_each_axis() -> None:
    """It may do something else for another length, and where there is none."""

    @td.jit
    def f(x: Any) -> Any:
        return x * td.axis_size("i") + td.psum(x, "i")

    for n in (3, 5, 3):
        found = td.vmap(f, axis_name="i")(np.ones(n, np.float32))
        assert np.array_equal(found, np.full(n, 2 * n, np.float32))
    with pytest.raises(NameError, match="axis 'i', which is not mapped here"):
        f(1.0)
    with pytest.raises(NameError, match="In scope: 'j'"):
        td.vmap(f, axis_name="j")(np.ones(3))


def test_an_inner_axis_hides_an_outer_one_of_its_name() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def f(x: Any) -> Any:
        return td.psum(x, "i")

    inner = td.vmap(td.vmap(f, axis_name="i"), axis_name="i")(x)
    assert np.array_equal(inner, np.repeat(x.sum(1, keepdims=True), 3, 1))
    outer = td.vmap(lambda x: td.vmap(f)(x), axis_name="i")(x)
    assert np.array_equal(outer, np.repeat(x.sum(0, keepdims=True), 2, 0))


def test_any_number_of_members() -> None:
    """One program, whose number of members is a symbol."""

    def normalised(x: Any) -> Any:
        def f(row: Any) -> Any:
            near = td.all_gather(row, "i").sum(0) + td.axis_index("i")
            return row / td.psum(row * row, "i") + near * td.pmean(row, "i")

        return td.vmap(f, axis_name="i")(x), td.grad(
            lambda x: tnp.sin(td.vmap(f, axis_name="i")(x)).sum()
        )(x)

    f = td.jit(normalised, dynamic={"x": ("n", None)})
    for n in (2, 7, 1, 4):
        x = array(n, 3) + 2
        wanted = td.jit(normalised, dynamic=False)(x)
        assert not (why := same_bytes(f(x), wanted)), f"{n} members: {why}"
    assert len(f.report().programs) <= 2


def test_records_say_what_a_group_would_do() -> None:
    ops = [op for op in registry.values() if isinstance(op.lowering, Collective)]
    assert sorted(op.lowering.what for op in ops) == [
        "collect", "exchange", "index", "max", "min", "permute", "scatter_sum", "sum",
    ]  # fmt: skip
    graphs = []

    def f(x: Any) -> Any:
        graphs.append(td.trace(lambda x: td.psum(x, ("i", "j")))(x))
        return x

    both_axes(f)
    (eq,) = graphs[0].equations
    assert [(a.name, a.size) for a in eq.params["over"]] == [("i", 3), ("j", 2)]


def inside(f: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: td.vmap(f, axis_name="i")(tnp.ones((4, 3)))


MISTAKES: dict[str, tuple[Callable[[Any], Any], type[Exception], list[str]]] = {
    "name": (lambda x: td.psum(x, "j"), NameError, ["'j'", "In scope: 'i'"]),
    "no name": (lambda x: td.psum(x, 0), TypeError, ["by a string", "got 0"]),
    "twice": (lambda x: td.psum(x, ("i", "i")), ValueError, ["none twice"]),
    "none": (lambda x: td.pmax(x, ()), ValueError, ["at least one axis"]),
    "rows": (
        lambda x: td.psum_scatter(x, "i"),
        ValueError,
        ["psum_scatter of f32[3]: the length of axis 0 must be 4", "'i'"],
    ),
    "parts": (
        lambda x: td.all_to_all(x, "i", 0, 0, tiled=True),
        ValueError,
        ["must be divisible by 4"],
    ),
    "axis": (lambda x: td.all_gather(x, "i", axis=2), ValueError, ["axis 2", "f32[3]"]),
    "pairs": (lambda x: td.ppermute(x, "i", [0, 1]), TypeError, ["(source, dest"]),
    "member": (lambda x: td.ppermute(x, "i", [(0, 4)]), ValueError, ["member 4"]),
    "two givers": (
        lambda x: td.ppermute(x, "i", [(0, 1), (2, 1)]),
        ValueError,
        ["member 1 as a destination"],
    ),
    "order": (lambda x: td.pshuffle(x, "i", [0, 1]), ValueError, ["td.ppermute"]),
    "source": (lambda x: td.pbroadcast(x, "i", 4), ValueError, ["source=4"]),
    "leaf": (lambda x: td.psum("x", "i"), TypeError, ["psum: x", "str"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    f, error, parts = MISTAKES[name]
    refused(inside(f), error, *parts, at=f)


def test_no_axis_at_all() -> None:
    f = lambda: td.axis_index("i")  # noqa: E731
    refused(f, NameError, "No named axis is mapped", "td.vmap(f, axis_name='i')")
