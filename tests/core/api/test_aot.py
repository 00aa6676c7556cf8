"""Stages ahead of calls: what they say, what compiled programs take and refuse."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, rng
from treadle.api.aot import Compiled

X = td.ShapeDtype((4, 3))


def loss(model: Any, x: Any, y: Any, *, power: int = 2) -> Any:
    return {"loss": tnp.mean(abs(model(x) - y) ** power), "out": (model(x), None)}


def model() -> nn.MLP:
    return nn.MLP([3, 8, 2], key=rng.key(0))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def test_every_stage_says_what_goes_in_and_out() -> None:
    f = td.jit(loss, static="power", donate="y")
    spec = td.eval_shape(model)
    args = (spec, X, td.ShapeDtype((4, 2)))
    traced = f.trace(*args, power=3)
    lowered = traced.lower()
    compiled = lowered.compile()
    for stage in (traced, lowered, compiled):
        assert stage.name == "loss"
        assert stage.in_tree == td.tree.structure((args, {}))
        assert td.tree.leaves(stage.args_info) == td.tree.leaves(args)
        wanted = td.eval_shape(lambda *a: loss(*a, power=3), *args)
        assert stage.out_tree == td.tree.structure(wanted)
        assert td.tree.leaves(stage.out_info) == td.tree.leaves(wanted)
        assert stage.donated == ("y",)
        assert "x: f32[4,3]" in repr(stage)
    assert f.lower(*args, power=3).plan is lowered.plan


def test_eval_shape_of_a_jitted_function_is_jaxs() -> None:
    def f(x: Any, n: int) -> Any:
        return {"a": x[:n] * 2, "b": (x > 0, None)}

    found = td.jit(f, static="n").eval_shape(X, 2)
    expected = jax.jit(f, static_argnames="n").eval_shape(
        jax.ShapeDtypeStruct((4, 3), "float32"), 2
    )
    for ours, theirs in zip(
        td.tree.leaves(found), jax.tree.leaves(expected), strict=True
    ):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)

    class Doubled(nn.Module):
        @td.jit
        def apply(self, x: Any) -> Any:
            return x + x

    assert Doubled().apply.eval_shape(X).shape == (4, 3)


def test_graphs_of_functions_with_static_arguments() -> None:
    def f(x: Any, power: int, *, scale: float, flag: str) -> Any:
        return x**power * (scale if flag == "on" else 1.0)

    for static in (("power", "flag"), (1, "flag")):
        graph = td.trace(f, static=static)(X, 3, scale=2.0, flag="on")
        assert [t.shape for t in graph.out_types] == [(4, 3)]
        assert len(graph.inputs) == 2
    last = td.trace(lambda x, names: x * len(names), static=-1)
    assert len(last(X, ("a", "b")).inputs) == 1
    refused(lambda: td.trace(f, static="q"), ValueError, "static='q'", "power (1)")


def test_it_is_traced_once_and_computes_what_the_jitted_function_does() -> None:
    traces = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        traces.append(1)
        return loss(*args, **kwargs)

    f = td.jit(counted, static="power", dynamic=False)
    m, x, y = model(), random(4, 3), random(4, 2)
    compiled = f.trace(m, X, y, power=2).lower().compile()
    for _ in range(4):  # the third takes another path
        found = compiled(m, x, y, power=2)
    wanted = f(m, x, y, power=2)
    assert len(traces) == 1
    assert td.tree.structure(found) == td.tree.structure(wanted)
    for a, b in zip(td.tree.leaves(found), td.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
    with td.disable_jit():
        eager = loss(m, x, y)
    np.testing.assert_allclose(found["loss"], eager["loss"], rtol=1e-6)


def test_other_arguments_are_refused_with_the_difference() -> None:
    f = td.jit(loss, static="power")
    m, x, y = model(), random(4, 3), random(4, 2)
    compiled = f.lower(m, x, y, power=2).compile()
    compiled(m, x, y, power=2)
    for call, *words in (
        (lambda: compiled(m, random(5, 3), y, power=2), "x is f32[5,3], was f32[4,3]"),
        (lambda: compiled(m, x.astype(int), y, power=2), "x is i64[4,3], was f32[4,3]"),
        (lambda: compiled(m, x, (y,), power=2), "structure", "a leaf against tuple"),
        (lambda: compiled(m, x, y, power=3), "static 'power' is 3, was 2"),
        (lambda: compiled(m, x, y), "static 'power' is not given, was 2"),
        (lambda: compiled(m, x, y, power=True), "static 'power' is True"),
        (lambda: compiled(m, x, X, power=2), "is a ShapeDtype", "no values"),
    ):
        refused(call, TypeError, *words)
    # It is as good as before.
    np.testing.assert_array_equal(
        compiled(m, x, y, power=2)["loss"], f(m, x, y, power=2)["loss"]
    )


def test_numbers_will_do_for_arrays_of_their_dtype() -> None:
    compiled = td.jit(lambda x, n: x * n).lower(X, td.ShapeDtype(())).compile()
    x = random(4, 3)
    np.testing.assert_array_equal(compiled(x, 2.0), x * 2)
    np.testing.assert_array_equal(compiled(x, np.float32(3.0)), x * 3)
    refused(lambda: compiled(x, 2), TypeError, "n is i32[], was f32[]")


def test_within_a_trace_it_is_refused() -> None:
    compiled = td.jit(tnp.sin).lower(td.ShapeDtype(())).compile()
    for call in (td.grad(compiled), td.jit(lambda x: compiled(x))):
        with pytest.raises(TypeError, match="while a transform is tracing"):
            call(1.0)


def test_what_closes_over_a_traced_value_is_not_compiled_ahead() -> None:
    def outer(a: Any) -> Any:
        return td.jit(lambda x: x * a).lower(1.0)

    with pytest.raises(td.errors.TracerError, match="closes over a value"):
        td.grad(outer)(2.0)


def test_captured_arrays_are_those_of_the_trace() -> None:
    w = tnp.array(random(50))
    compiled = td.jit(lambda x: x * w).lower(td.ShapeDtype((50,))).compile()
    np.testing.assert_array_equal(compiled(random(50)), random(50) * random(50))
    assert compiled.memory_analysis().live[0].name == "captured 0"


def test_donated_arguments_are_gone() -> None:
    compiled = td.jit(lambda x: x + 1, donate="x").lower(X).compile()
    x = tnp.array(random(4, 3)) * 1
    compiled(x)
    refused(lambda: x + 1, td.errors.DonatedError, "donated to <lambda>")


def test_named_axes_stay_open() -> None:
    def f(x: Any, w: Any) -> Any:
        if x.shape[0] > 8:
            return x @ w + 1
        return x @ w

    jitted = td.jit(f, dynamic={"x": ("batch", None)})
    compiled = jitted.lower(td.ShapeDtype((4, 3)), td.ShapeDtype((3, 2))).compile()
    assert compiled.out_info.shape == (4, 2)
    w = random(3, 2)
    for n in (4, 6, 8, 4):
        np.testing.assert_allclose(
            compiled(random(n, 3), w), random(n, 3) @ w, rtol=1e-5
        )
    assert jitted.report().traces == 1
    refused(lambda: compiled(random(9, 3), w), TypeError, "x is f32[9,3]", "batch")
    refused(lambda: compiled(random(4, 5), w), TypeError, "x is f32[4,5]")
    # Axes that nobody has named are of the sizes that were given.
    fixed = td.jit(f)
    for n in (4, 5, 6):
        fixed(random(n, 3), w)
    compiled = fixed.lower(td.ShapeDtype((7, 3)), w).compile()
    np.testing.assert_allclose(compiled(random(7, 3), w), random(7, 3) @ w, rtol=1e-5)
    refused(lambda: compiled(random(6, 3), w), TypeError, "x is f32[6,3], was f32[7,3]")


def test_each_stage_as_text() -> None:
    traced = td.jit(lambda x: tnp.exp(x) * 2).trace(X)
    assert "= exp a" in traced.as_text() and "test_aot.py" in traced.as_text()
    lowered = traced.lower()
    text = lowered.as_text()
    assert "NestStep (exp, mul): input 0, constant 0 -> output 0" in text
    assert "exp v0" in text and "kernel 0:" in text
    assert "exp, mul" in lowered.explain()
    compiled = lowered.compile().as_text()
    assert compiled.count("define") >= 1 and "%args" in compiled


def test_methods_have_stages() -> None:
    class Scaled(nn.Module):
        scale: Any

        @td.jit
        def __call__(self, x: Any) -> Any:
            return x * self.scale

    compiled = Scaled.__call__.lower(Scaled(tnp.array(3.0)), X).compile()
    bound = Scaled(tnp.array(3.0)).__call__.trace(X)
    assert bound.graph is Scaled.__call__.trace(Scaled(tnp.array(3.0)), X).graph
    np.testing.assert_array_equal(
        compiled(Scaled(tnp.array(2.0)), random(4, 3)), random(4, 3) * 2
    )


@pytest.mark.parametrize("donate", [(), (0,)])
def test_sizes_agree_with_jax(donate: tuple[int, ...]) -> None:
    def f(np_: Any) -> Any:
        return lambda w, x, n: (w - np_.sum(x) * n, {"y": np_.tanh(x)})

    w, x, n = random(16, 8), random(5, 16), np.float32(2.0)
    ours = td.jit(f(tnp), donate=donate).lower(w, x, n).memory_analysis()
    theirs = jax.jit(f(jax.numpy), donate_argnums=donate).lower(w, x, n)
    wanted: Any = theirs.compile().memory_analysis()
    assert ours.arguments == wanted.argument_size_in_bytes
    assert ours.aliased == wanted.alias_size_in_bytes
    # (XLA counts a table of pointers to the two results.)
    assert ours.outputs + 2 * 8 == wanted.output_size_in_bytes


def test_flops_agree_with_jax() -> None:
    def f(np_: Any) -> Any:
        return lambda a, b, c: np_.exp((a @ b + c) * c)

    args = random(32, 48), random(48, 24), random(32, 24)
    ours = td.jit(f(tnp)).lower(*args).cost_analysis()
    theirs: Any = jax.jit(f(jax.numpy)).lower(*args).compile().cost_analysis()
    assert ours.flops == theirs["flops"] == 2 * 32 * 48 * 24 + 2 * 32 * 24
    assert ours.transcendentals == theirs["transcendentals"] == 32 * 24
    assert ours.bytes_read == sum(a.nbytes for a in args)
    assert ours.bytes_written == 32 * 24 * 4


def test_what_is_not_counted_is_said() -> None:
    def f(x: Any) -> Any:
        y = td.while_loop(lambda x: x.sum() > 1, lambda x: x / 2, x)
        return tnp.linalg.cholesky(y + 9 * tnp.eye(3)), td.pure_callback(np.cbrt, y, y)

    notes = "\n".join(td.jit(f).lower(random(3, 3)).cost_analysis().notes)
    for text in ("1 x while loops", "libraries", "on the host"):
        assert text in notes
    assert td.jit(tnp.sin).lower(X).cost_analysis().notes == ()


def test_lines_and_types_of_what_is_alive_at_the_peak() -> None:
    def f(a: Any, b: Any) -> Any:
        first = a @ b
        second = tnp.tanh(first) @ b
        return tnp.sort(second, axis=1).sum(), first[0]

    size = 64
    lowered = td.jit(f).lower(random(size, size), random(size, size))
    use = lowered.memory_analysis()
    assert use.arguments == 2 * size * size * 4
    assert use.outputs == 4 + size * 4
    temporaries = [row for row in use.live if row.kind == "temporary"]
    assert sum(row.nbytes for row in temporaries) <= use.temporaries
    assert use.peak == use.arguments + use.outputs + use.temporaries + use.constants
    values = [row for row in temporaries if row.type is not None]
    assert any(row.type.shape == (size, size) for row in values)
    lines = {row.origin.source.rpartition(":")[2] for row in values}
    first = f.__code__.co_firstlineno
    assert lines <= {str(first + k) for k in (1, 2, 3)}
    for text in ("peak", "argument", "f32[64,64]", "test_aot.py:"):
        assert text in str(use)


def test_the_arena_is_what_the_program_touches() -> None:
    """The bytes behind the temporaries stay as they were, those of them change."""

    def f(x: Any, w: Any) -> Any:
        h = tnp.tanh(x @ w)
        return tnp.sum(tnp.sort(h * tnp.sum(h), 0) @ w, 1)

    x, w = random(400, 24), random(24, 24)
    compiled = td.jit(f).lower(x, w).compile()
    use = compiled.memory_analysis()
    program = compiled.program
    words, arena = program.linked.program.slot_count, use.temporaries
    outs = [np.zeros(t.shape, t.dtype) for t, _, _ in program._outs]
    memory = np.full(arena + 4096 + 64, 0xA5, np.uint8)
    start = -memory.ctypes.data % 64
    slots = np.zeros(words, np.int64)
    given = [memory[start:], x, w, *outs]
    addresses = [a.ctypes.data for a in given] + list(program.linked.constants)
    slots[: len(addresses)] = addresses
    assert program.linked.program.run(slots.ctypes.data) == 0
    np.testing.assert_array_equal(outs[0], compiled(x, w))
    changed = np.flatnonzero(memory[start:] != 0xA5)
    # (Work memory of products may be more than these sizes need.)
    assert 0.9 * arena < changed.max() < arena
    alive = sum(row.nbytes for row in use.live if row.kind == "temporary")
    assert alive <= arena
    # The peak is no more than what some bytes hold: half of them at least.
    assert changed.size > 0.5 * alive
    assert isinstance(compiled, Compiled)
