"""Callbacks and debug.print: values, order, effects kept, batches, errors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import array, close


def cbrt(x: Any) -> Any:
    return td.pure_callback(np.cbrt, td.ShapeDtype(x.shape, x.dtype), x)


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_pure_callback(wrap: Any) -> None:
    x = array(4)
    close(wrap(cbrt)(x), np.cbrt(x))
    close(wrap(td.vmap(cbrt))(array(3, 2)), np.cbrt(array(3, 2)))
    close(wrap(td.vmap(td.vmap(cbrt), 1, 1))(array(3, 2)), np.cbrt(array(3, 2)))


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_a_callback_may_keep_and_change_its_arguments(wrap: Any) -> None:
    """What it was given is its own: neither reused memory nor the caller's array."""
    kept: list[np.ndarray] = []

    def host(x: np.ndarray) -> np.ndarray:
        kept.append(x.copy())
        kept.append(x)
        x += 1
        return x

    step = wrap(
        lambda x: (td.pure_callback(host, x, x * 2), td.pure_callback(host, x, x))
    )
    given = np.arange(4, dtype=np.float32)
    for _ in range(3):
        double, same = step(given)
        np.testing.assert_array_equal(double, given * 2 + 1)
        np.testing.assert_array_equal(same, given + 1)
    np.testing.assert_array_equal(given, np.arange(4))
    for before, now in zip(kept[::2], kept[1::2], strict=True):
        np.testing.assert_array_equal(now, before + 1)


def test_pytrees_and_broadcast_arguments() -> None:
    def host(p: Any, *, scale: Any) -> Any:
        return {"sum": p["a"] + p["b"] * scale, "n": np.int32(7)}

    def f(a: Any, b: Any) -> Any:
        types = {"sum": td.ShapeDtype(()), "n": td.ShapeDtype((), int)}
        return td.pure_callback(host, types, {"a": a, "b": b}, scale=2.0)

    out = td.jit(td.vmap(f, (0, None)))(array(3), np.float32(1))
    close(out, {"sum": array(3) + 2, "n": np.full(3, 7, np.int32)})


def test_vectorized_is_called_once() -> None:
    shapes = []

    def host(x: Any, y: Any) -> Any:
        shapes.append((x.shape, y.shape))
        return x + y

    def f(x: Any, y: Any) -> Any:
        return td.pure_callback(
            host, td.ShapeDtype(()), x, y, vmap_method="broadcast_all"
        )

    td.vmap(f, (0, None))(array(3), np.float32(1))
    assert shapes == [((3,), (3,))]


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
@pytest.mark.parametrize("wrap", [False, True], ids=["eager", "jit"])
def test_what_vmap_passes_is_what_jax_passes(method: str, wrap: bool) -> None:
    """Shapes and results, of one vmap and of two, the inner one of another axis."""

    def called(jnp: Any, vmap: Any, jit: Any, callback: Any, spec: Any) -> Any:
        shapes: list[Any] = []

        def host(x: Any, y: Any, z: Any) -> Any:
            shapes.append((np.shape(x), np.shape(y), np.shape(z)))
            return np.asarray(np.sum(x, -1) + y * z, np.float32)

        def f(x: Any, y: Any, z: Any) -> Any:
            return callback(host, spec((), "float32"), x, y, z, vmap_method=method)

        once = vmap(f, (0, None, 0))
        twice = vmap(vmap(f, (None, 0, None)), (1, None, 0))
        outs = []
        for g, args in (
            (once, (array(3, 2), np.float32(2), array(3))),
            (twice, (array(2, 3), array(4), array(3))),
        ):
            outs.append(np.asarray((jit(g) if wrap else g)(*map(jnp.asarray, args))))
        return shapes, outs

    ours = called(tnp, td.vmap, td.jit, td.pure_callback, td.ShapeDtype)
    theirs = called(
        jax.numpy, jax.vmap, jax.jit, jax.pure_callback, jax.ShapeDtypeStruct
    )
    assert ours[0] == theirs[0]
    for a, b in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_other_methods_are_refused() -> None:
    def call(**how: Any) -> Any:
        return td.pure_callback(np.cbrt, td.ShapeDtype(()), np.float32(1), **how)

    with pytest.raises(ValueError, match="'sequential', 'expand_dims', 'broadcast_"):
        call(vmap_method="legacy")
    with pytest.raises(TypeError, match='vmap_method="broadcast_all"'):
        td.pure_callback(lambda x: x, td.ShapeDtype(()), 1.0, vectorized=True)
    # A function may have an argument of that name.
    f = lambda x, vectorized: x * vectorized  # noqa: E731
    one = td.ShapeDtype(())
    assert float(td.pure_callback(f, one, np.float32(2), vectorized=True)) == 2


def test_effects_have_happened_behind_the_barrier() -> None:
    seen: list[float] = []

    @td.jit
    def f(x: Any) -> Any:
        td.io_callback(lambda v: seen.append(float(v)), None, x, ordered=True)
        td.io_callback(lambda v: seen.append(-float(v)), None, x, ordered=False)
        td.debug.callback(lambda v, by: seen.append(v + by), x, by=2.0, ordered=True)
        return x

    f(1.0)
    td.effects_barrier()
    assert seen == [1.0, -1.0, 3.0]


def test_derivative_by_custom_jvp() -> None:
    f = td.custom_jvp(cbrt)
    f.defjvps(lambda t, out, x: t / (3 * out * out))
    x = np.float32(8)
    for wrap in (lambda g: g, td.jit):
        close(wrap(td.grad(f))(x), np.float32(1 / 12))


def test_no_derivative() -> None:
    with pytest.raises(TypeError, match="custom_jvp"):
        td.grad(cbrt)(np.float32(1))
    f = lambda x: cbrt(td.stop_gradient(x)) * x  # noqa: E731
    close(td.grad(f)(np.float32(8)), np.float32(2))


def test_wrong_result() -> None:
    with pytest.raises(TypeError, match=r"declared f32\[\] but returned"):
        td.pure_callback(lambda: np.ones(3), td.ShapeDtype(()))


# Effects ------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_effects_are_kept_in_order(wrap: Any) -> None:
    seen = []

    def note(tag: int) -> Any:
        return lambda x: seen.append((tag, float(x)))

    def f(x: Any) -> Any:
        td.debug.callback(note(0), x)
        y = tnp.sin(x)
        td.io_callback(note(1), None, y * 0)
        td.scan(
            lambda c, i: (td.debug.callback(note(2), i), (c, None))[1],
            0.0,
            tnp.arange(2.0),
        )
        td.cond(x > 0, lambda: td.debug.callback(note(3), x), lambda: None)
        return x

    wrap(f)(1.0)
    assert seen == [(0, 1.0), (1, 0.0), (2, 0.0), (2, 1.0), (3, 1.0)]


def test_effects_under_transforms() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        td.debug.callback(lambda x: seen.append(float(x)), x)
        return x * x

    for wrap in (lambda g: g, td.jit):
        seen.clear()
        wrap(td.vmap(f))(np.array([1.0, 2.0], np.float32))
        assert seen == [1.0, 2.0]
        seen.clear()
        close(wrap(td.grad(f))(3.0), np.float32(6))
        assert seen == [3.0]
        seen.clear()
        wrap(td.grad(lambda x: td.scan(lambda c, _: (f(c), None), x, None, 2)[0]))(2.0)
        assert seen == [2.0, 4.0]


def test_io_callback_gives_results() -> None:
    state = {"n": 0}

    def count() -> Any:
        state["n"] += 1
        return np.int32(state["n"])

    f = td.jit(lambda: td.io_callback(count, td.ShapeDtype((), int)))
    assert [int(f()), int(f())] == [1, 2]


@pytest.mark.parametrize(
    "wrap", [td.jit, lambda f: f, td.vmap], ids=["jit", "", "vmap"]
)
def test_a_debug_callback_gets_what_is_no_array_as_it_is(wrap: Any) -> None:
    seen: list[Any] = []

    def log(name: str, x: Any, *, unit: Any, times: Any) -> None:
        seen.append((name, float(x), unit, float(times)))

    def f(debug: Any, x: Any) -> Any:
        debug.callback(log, "loss", x, unit={"m": len}, times=2)
        return x

    wrap(lambda x: f(td.debug, x))(np.ones(1, "float32") if wrap is td.vmap else 1.0)
    mine, seen = seen, []
    f(jax.debug, np.float32(1))
    jax.effects_barrier()
    assert mine == seen == [("loss", 1.0, {"m": len}, 2.0)]


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    @td.jit
    def f(x: Any) -> Any:
        y = {"a": x + 1}
        td.debug.print("x={:.1f} and {name}: {y}", x, name="y", y=y, ordered=True)
        return x

    f(1.0)
    td.vmap(f)(np.array([2.0, 3.0], np.float32))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" and")[0] for line in lines] == ["x=1.0", "x=2.0", "x=3.0"]
    assert "y: {'a':" in lines[0]


def test_print_checks_its_format_at_once() -> None:
    with pytest.raises(IndexError, match=r"debug\.print"):
        td.jit(lambda x: td.debug.print("{} {}", x))(1.0)
    with pytest.raises(KeyError, match="does not fit"):
        td.debug.print("{y}", x=1)


def test_a_batch_of_none() -> None:
    f = td.vmap(lambda x: td.pure_callback(np.sin, td.ShapeDtype((2,)), x))
    for wrap in (f, td.jit(f)):
        assert wrap(tnp.ones((0, 2))).shape == (0, 2)


def test_a_wrong_result_names_the_callback() -> None:
    def wrong(x: Any) -> Any:
        return np.ones(2)

    def run(x: Any) -> Any:
        return td.pure_callback(wrong, td.ShapeDtype(()), x)

    for wrap in (run, td.jit(run), lambda x: td.vmap(run)(tnp.ones(2))):
        with pytest.raises(TypeError, match=r"callback wrong declared.*\n  at"):
            wrap(1.0)


def test_integers_of_python_must_fit() -> None:
    def run(number: Any, dtype: str) -> Any:
        f = lambda x: td.pure_callback(lambda x: number, td.ShapeDtype((), dtype), x)  # noqa: E731
        results = f(1.0), td.jit(f)(1.0), td.vmap(f)(np.ones(1))[0]
        return [int(r) for r in results]

    for number, dtype in ((5, "uint8"), (255, "uint8"), (-128, "int8"), (7, "int32")):
        assert run(number, dtype) == [number] * 3
    for number, dtype in (
        (2**40, "int32"),
        (-1, "uint8"),
        (256, "uint8"),
        (2**70, "i8"),
    ):
        with pytest.raises(TypeError, match="declared"):
            run(number, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_a_result_of_another_dtype_is_refused(dtype: str) -> None:
    def other(x: Any) -> Any:
        return np.asarray(x, dtype)

    def run(x: Any) -> Any:
        return td.pure_callback(other, x, x)

    one = tnp.ones((), "float32")
    for wrap in (run, td.jit(run), lambda x: td.vmap(run)(tnp.ones(2))):
        with pytest.raises(TypeError, match=rf"declared f32.*{dtype}[\s\S]*astype"):
            wrap(one)


def test_results_that_are_python_numbers() -> None:
    def run(x: Any) -> Any:
        return td.pure_callback(lambda x: float(x) * 2, x, x)

    one = tnp.ones((), "float32")
    for wrap in (run, td.jit(run), lambda x: td.vmap(run)(tnp.ones(2))[0]):
        np.testing.assert_array_equal(wrap(one), np.float32(2), strict=True)


def test_a_mask_that_a_callback_returns_is_not_dropped() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [1, 0])
    with pytest.raises(TypeError, match="masked arrays are not supported"):
        td.pure_callback(lambda x: masked, td.ShapeDtype((2,), "float64"), 1.0)
