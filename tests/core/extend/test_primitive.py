"""Primitives from outside: rules, transforms, errors, plans on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends import by_reference
from treadle.backends import plans

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(3, 4)).astype("float32")


pytestmark = pytest.mark.usefixtures("no_primitives_left")


def outer(**rules: Any) -> Any:
    """A primitive that is linear in both of its arguments: products of vectors."""

    def jvp(xs: Any, ts: Any) -> Any:
        (x, y), (dx, dy) = xs, ts
        first = None if dx is None else made(dx, y)
        second = None if dy is None else made(x, dy)
        if first is None or second is None:
            return made(x, y), second if first is None else first
        return made(x, y), first + second

    def transpose(ct: Any, x: Any, y: Any) -> Any:
        if isinstance(x, td.extend.Linear):
            return [ct @ y, None]
        return [None, x @ ct]

    def types(x: Any, y: Any) -> Any:
        if x.ndim != 1 or y.ndim != 1:
            raise ValueError(f"outer of {x} and {y}: vectors expected")
        return td.ShapeDtype((*x.shape, *y.shape), x.dtype)

    made = td.extend.primitive(
        "test.outer",
        np.outer,
        types=types,
        **{"jvp": jvp, "transpose": transpose, **rules},
    )
    return made


def by_jax(x: Any, y: Any) -> Any:
    return jnp.sum(jnp.sin(jnp.outer(x, y)))


@pytest.mark.parametrize("batched", [False, True])
def test_a_primitive_runs_under_every_transform(batched: bool) -> None:
    def batch(size: int, args: Any, axes: Any) -> Any:
        x, y = (
            tnp.broadcast_to(a, (size, *a.shape))
            if d is None
            else tnp.moveaxis(a, d, 0)
            for a, d in zip(args, axes, strict=True)
        )
        return x[:, :, None] * y[:, None, :], 0

    cross = outer(**({"batch": batch} if batched else {}))

    def f(x: Any, y: Any) -> Any:
        return tnp.sum(tnp.sin(cross(x, y)))

    x, y = X[0], Y[1]
    pairs = [
        (f, by_jax),
        (td.grad(f, argnums=(0, 1)), jax.grad(by_jax, (0, 1))),
        (td.hessian(f), jax.hessian(by_jax)),
        (td.jacfwd(f, argnums=1), jax.jacfwd(by_jax, 1)),
    ]
    for ours, theirs in pairs:
        wanted = jax.tree.leaves(theirs(x, y))
        for run in (ours, td.jit(ours)):
            for found, want in zip(td.tree.leaves(run(x, y)), wanted, strict=True):
                np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)
    gradient = td.grad(f, argnums=(0, 1))
    wanted = jax.vmap(jax.grad(by_jax, (0, 1)), (0, None))(X, y)
    for run in (td.vmap(gradient, in_axes=(0, None)),):
        for each in (run, td.jit(run)):
            for found, want in zip(each(X, y), wanted, strict=True):
                np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_it_runs_in_loops_and_for_open_sizes() -> None:
    cross = outer()

    @td.jit(dynamic={"xs": ("n", None)})
    def total(xs: Any) -> Any:
        begin = tnp.zeros((4, 4))
        return td.scan(lambda c, x: (c + cross(x, x), None), begin, xs)[0]

    for n in (3, 1, 7):
        xs = np.arange(4 * n, dtype="float32").reshape(n, 4)
        np.testing.assert_allclose(total(xs), xs.T @ xs)


def test_a_primitive_with_several_results() -> None:
    made = td.extend.primitive(
        "test.parts",
        lambda x, *, n: [x[:n], x[n:]],
        types=lambda x, *, n: [
            td.ShapeDtype((n,), x.dtype),
            td.ShapeDtype((x.shape[0] - n,), x.dtype),
        ],
        jvp=lambda xs, ts, *, n: (made(*xs, n=n), made(*ts, n=n)),
        transpose=lambda cts, x, *, n: [
            tnp.concatenate(
                [
                    tnp.zeros((m,)) if c is None else c
                    for c, m in zip(cts, (n, x.shape[0] - n), strict=True)
                ]
            )
        ],
        multiple=True,
    )
    head, tail = td.jit(lambda x: made(x, n=1))(X[0])
    np.testing.assert_array_equal(np.concatenate([head, tail]), X[0])
    found = td.jit(td.grad(lambda x: tnp.sum(made(x, n=1)[1] ** 2)))(X[0])
    np.testing.assert_allclose(found, np.where(np.arange(4) > 0, 2 * X[0], 0))
    rows = td.vmap(lambda x: made(x, n=3), in_axes=1)(X.T)
    np.testing.assert_array_equal(rows[1], X[:, 3:])


def softsign(expression: Any = "", **options: Any) -> Any:
    if expression == "":
        expression = lambda w, x: w("div", x, w("add", w("abs", x), 1.0))  # noqa: E731
    return td.extend.elementwise(
        "test.softsign",
        lambda x: x / (1 + np.abs(x)),
        [lambda g, out, x: g / (1 + abs(x)) ** 2],
        expression=expression,
        **options,
    )


@pytest.mark.parametrize("expression", ["", None])
def test_an_elementwise_operation(expression: Any) -> None:
    op = softsign(expression)
    wanted = X / (1 + np.abs(X))
    slope = 1 / (1 + np.abs(X)) ** 2
    with by_reference.checked():
        for run in (op, td.jit(op), td.vmap(op), td.jit(td.vmap(op, in_axes=1))):
            found = run(X)
            want = wanted if found.shape == (3, 4) else wanted.T
            np.testing.assert_allclose(found, want, rtol=1e-6)
        gradient = td.grad(lambda x: tnp.sum(op(x)))
        for run in (gradient, td.jit(gradient)):
            np.testing.assert_allclose(run(X), slope, rtol=1e-5)
    second = td.jit(td.grad(td.grad(op)))(2.0)
    np.testing.assert_allclose(second, -2 / 27, rtol=1e-5)
    fused = str(td.jit(lambda x: op(x * 2) + 1).explain(X))
    assert ("host" in fused) == (expression is None)


def test_numbers_take_the_dtype_of_arrays() -> None:
    add = td.extend.elementwise(
        "test.add",
        np.add,
        [lambda g, out, x, y: g] * 2,
        expression="add",
    )
    x = X.astype("bfloat16")
    assert add(x, 2.0).dtype == td.jit(lambda x: add(x, 2.0))(x).dtype == td.bfloat16
    with pytest.raises(TypeError, match="different dtypes"):
        add(x, X)
    with pytest.raises(TypeError, match=r"not defined for dtype int32"):
        add(1, 2)


SHAPE = {"types": lambda x: td.ShapeDtype(x.shape, x.dtype)}
CUBE = (lambda x: x**3, SHAPE)
WRONG: list[tuple[Any, str]] = [
    (lambda: td.extend.primitive("cube", np.square, **SHAPE), "has a dot"),
    (
        lambda: td.grad(td.extend.primitive("test.f", np.square, **SHAPE))(1.0),
        "test.f has no derivative[\\s\\S]*jvp=",
    ),
    (
        lambda: td.grad(td.extend.elementwise("test.f", np.square))(1.0),
        "test.f has no derivative[\\s\\S]*partials=",
    ),
    (
        lambda: td.extend.primitive("test.f", lambda x: x[:1], **SHAPE)(X),
        r"gives float32\[1, 4\], the rule of types says f32\[3,4\]",
    ),
    (
        lambda: td.jit(td.extend.primitive("test.f", lambda x: x > 0, **SHAPE))(X),
        r"gives bool\[3, 4\], the rule of types says",
    ),
    (
        lambda: td.extend.primitive("test.f", np.sin, types=lambda x: x.shape)(X),
        "must give `td.ShapeDtype",
    ),
    (
        lambda: td.grad(
            f := td.extend.primitive(
                "test.f", np.sin, **SHAPE, jvp=lambda xs, ts: (f(*xs), ts[0][None])
            )
        )(1.0),
        r"`jvp` gives a tangent f32\[1\], and the result is f32\[\]",
    ),
    (
        lambda: td.extend.primitive("test.f", np.sin, types=lambda x: (x, x))(X),
        "got .*[\\s\\S]*multiple=True",
    ),
    (
        lambda: td.grad(
            f := td.extend.primitive(
                "test.f", np.sin, **SHAPE, jvp=lambda xs, ts: (f(*xs), f(*ts))
            )
        )(1.0),
        "can't be transposed[\\s\\S]*`transpose=`",
    ),
    (
        lambda: td.jit(
            td.extend.elementwise(
                "test.f", np.sin, expression=lambda w, x: w("sine", x)
            )
        )(X),
        "no scalar instruction 'sine'[\\s\\S]*cos",
    ),
    (lambda: outer()(X, X), "vectors expected"),
    (lambda: outer()([1, 2], X[0]), "takes arrays, got a list"),
    (lambda: td.extend.primitive("test.f", np.sin, **SHAPE)(X, n=[1]), "hashed"),
]


@pytest.mark.parametrize("call, message", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_says_so_at_the_users_line(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert f"\n  at {__file__}" in str(caught.value)


def test_another_definition_has_another_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kernel computes is part of its plan: the name alone does not say."""
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "WORTH_STORING", 1)

    def run() -> Any:
        op = softsign()
        return td.jit(lambda x: op(x) * 1.5)(X)

    first, again = run(), run()
    assert len([*tmp_path.glob("plan*")]) == 1
    np.testing.assert_array_equal(first, again)
    twice = softsign(lambda w, x: w("add", x, x))
    np.testing.assert_allclose(td.jit(lambda x: twice(x) * 1.5)(X), 3 * X, rtol=1e-6)
    assert len([*tmp_path.glob("plan*")]) == 2


def test_a_name_that_is_taken() -> None:
    def anew() -> Any:
        return td.extend.primitive("test.taken", np.sin, **SHAPE)

    first, second = anew(), anew()  # by one line, as a module does that runs again
    np.testing.assert_array_equal(first(X), second(X))
    first = td.extend.primitive("test.other", np.sin, **SHAPE)
    with pytest.raises(ValueError, match=r"there already[\s\S]*made at ") as caught:
        td.extend.primitive("test.other", np.cos, **SHAPE)
    assert str(caught.value).count(__file__) == 2
    np.testing.assert_allclose(td.jit(first)(X), np.sin(X), rtol=1e-6)
    source = "made = td.extend.elementwise('test.other', np.cos)"
    there = Path(__file__).with_name("test_ffi.py")
    with pytest.raises(ValueError, match="there already"):
        exec(compile(source, there, "exec"), {"td": td, "np": np})
    # A cell of a notebook that is run again is another file each time.
    exec(compile(source.replace("other", "cell"), "<cell 1>", "exec"), globals())
    exec(compile("\n" + source.replace("other", "cell"), "<cell 2>", "exec"), globals())
