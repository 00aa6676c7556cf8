"""Names of parts of programs: they go with each equation, and change nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, scopes
from treadle.backends.devices import TARGETS
from treadle.ir.digest import digest
from treadle.ir.graph import Equation, Graph
from treadle.passes.pipeline import optimise

X = np.linspace(0.5, 1.5, 12, dtype=np.float32).reshape(3, 4)


class Attention(nn.Module):
    out: nn.Linear

    def __init__(self, key: Any) -> None:
        self.out = nn.Linear(4, 4, key=key)

    def __call__(self, x: Any) -> Any:
        return self.out(tnp.exp(x))


class Block(nn.Module):
    attention: Attention

    def __call__(self, x: Any) -> Any:
        return tnp.sin(self.attention(x))


class Encoder(nn.Module):
    layers: list[Block]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    encoder: Encoder
    heads: dict[str, Any]

    def __call__(self, x: Any) -> Any:
        return self.heads["value"](self.encoder(x))


def model() -> Model:
    keys = rng.split(rng.key(0), 3)
    layers = [Block(Attention(k)) for k in keys[:2]]
    return Model(Encoder(layers), {"value": nn.Linear(4, 1, key=keys[2])})


def every(graph: Graph, around: str = "") -> Iterator[tuple[str, Equation]]:
    """All equations with their whole scope."""
    for eq in graph.equations:
        path = scopes.joined(around, eq.scope)
        yield path, eq
        for inner in eq.graphs:
            yield from every(inner, path)


def paths(graph: Graph, op: str) -> set[str]:
    return {path for path, eq in every(graph) if eq.op.name == op}


ATTENTIONS = {f"encoder.layers[{i}].attention" for i in (0, 1)}
LINEARS = {f"{path}.out" for path in ATTENTIONS} | {"heads['value']"}


def loss(m: Model, x: Any) -> Any:
    return tnp.sum(m(x) ** 2)


PROGRAMS: dict[str, Callable[[], Callable[..., Any]]] = {
    "plain": lambda: loss,
    "grad": lambda: td.grad(loss),
    "jit": lambda: td.jit(loss),
    "grad of jit": lambda: td.grad(td.jit(loss)),
    "jit of grad": lambda: td.jit(td.grad(loss)),
    "vmap": lambda: lambda m, x: td.vmap(lambda row: loss(m, row))(x),
    "grad of vmap": lambda: td.grad(
        lambda m, x: td.vmap(lambda row: m(row))(x).sum(),
    ),
    "scan": lambda: lambda m, x: td.scan(lambda c, row: (c, m(row)), 0.0, x)[1],
    "grad of scan": lambda: td.grad(
        lambda m, x: td.scan(lambda c, row: (c + m(row).sum(), None), 0.0, x)[0]
    ),
    "remat": lambda: td.grad(td.remat(loss)),
    "hessian": lambda: (
        lambda m, x: td.jvp(lambda x: td.grad(lambda x: loss(m, x))(x), (x,), (x,))
    ),
}


@pytest.mark.parametrize("optimised", [False, True], ids=["traced", "optimised"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equations_keep_the_place_of_their_layer(name: str, optimised: bool) -> None:
    graph = td.trace(PROGRAMS[name]())(model(), X)
    if optimised:
        graph = optimise(graph, TARGETS["cpu"])
    assert paths(graph, "exp") == ATTENTIONS
    assert paths(graph, "dot_general") == LINEARS
    assert all(path in LINEARS | ATTENTIONS | ends(path) for path, _ in every(graph))


def ends(path: str) -> set[str]:
    return {"", "encoder", "encoder.layers[0]", "encoder.layers[1]"}


@pytest.mark.parametrize("name", [n for n in PROGRAMS if "grad" in n])
def test_the_backward_pass_is_marked(name: str) -> None:
    found = list(every(td.trace(PROGRAMS[name]())(model(), X)))
    products = [eq for _, eq in found if eq.op.name == "dot_general"]
    forward = [eq for eq in products if not eq.backward]
    assert {eq.source for eq in forward} == {eq.source for eq in products}
    assert len(forward) == 3
    assert not any(eq.backward for _, eq in found if eq.op.name == "exp")


def test_scopes_join_and_end() -> None:
    @td.named_scope("square")
    def square(x: Any) -> Any:
        return x * x if x.ndim == 0 else square(x[0]) + 1

    def f(x: Any) -> Any:
        with td.named_scope("outer"):
            y = square(x)
            with td.named_scope("inner"):
                y = tnp.sin(y)
        return tnp.cos(y)

    graph = td.trace(f)(X[0])
    assert paths(graph, "mul") == {"outer.square.square"}
    assert paths(graph, "add") == {"outer.square"}
    assert paths(graph, "sin") == {"outer.inner"}
    assert paths(graph, "cos") == {""}


def test_a_scope_ends_where_it_raises() -> None:
    with pytest.raises(ZeroDivisionError), td.named_scope("a"):
        raise ZeroDivisionError
    assert scopes.current.place.path == ""


def test_scopes_are_of_one_thread() -> None:
    decorated, found = td.named_scope("f")(lambda x: x * x), []

    def run() -> None:
        graph = td.trace(decorated)(1.0)
        found.append([eq.scope for eq in graph.equations])

    with td.named_scope("main"):
        threads = [threading.Thread(target=run) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert found == [["f"]] * 4


def test_a_jitted_function_has_the_names_of_each_caller() -> None:
    @td.jit
    def inner(x: Any) -> Any:
        with td.named_scope("inner"):
            return tnp.sin(x)

    def f(x: Any) -> Any:
        with td.named_scope("a"):
            y = inner(x)
        with td.named_scope("b"):
            return tnp.cos(inner(y))

    graph = td.trace(f)(1.0)
    assert paths(graph, "sin") == {"a.inner", "b.inner"}
    inlined = optimise(graph, TARGETS["cpu"])
    assert [eq.scope for eq in inlined.equations] == ["a.inner", "b.inner", "b"]


def test_a_layer_of_another_making_has_the_name_of_the_part_like_it() -> None:
    class Scanned(nn.Module):
        layers: Block
        others: Any = None

        def __call__(self, x: Any) -> Any:
            return td.scan(lambda x, layer: (layer(x), None), x, self.layers)[0]

    layers = model().encoder.layers
    stacked = td.tree.map(lambda *xs: tnp.stack(xs), *layers)
    graph = td.trace(lambda m, x: m(x))(Scanned(stacked), X)
    assert paths(graph, "exp") == {"layers.attention"}
    # Of two like it, it might be either: it has the name of its class.
    again = td.tree.map(lambda x: x + 0, stacked)
    graph = td.trace(lambda m, x: m(x))(Scanned(stacked, again), X)
    assert paths(graph, "exp") == {"Block.attention"}


def test_a_subclass_that_calls_its_base_is_one_layer() -> None:
    class Louder(Attention):
        def __call__(self, x: Any) -> Any:
            return 2 * super().__call__(x)

    graph = td.trace(lambda m, x: m(x))(Block(Louder(rng.key(0))), X)
    assert paths(graph, "exp") == {"attention"}


def test_layers_deeper_inside_have_their_whole_path() -> None:
    class Skipping(nn.Module):
        encoder: Encoder

        def __call__(self, x: Any) -> Any:
            return self.encoder.layers[1].attention(x)

    graph = td.trace(lambda m, x: m(x))(Skipping(model().encoder), X)
    assert paths(graph, "exp") == {"encoder.layers[1].attention"}


def test_names_are_printed() -> None:
    text = str(td.trace(td.grad(loss))(model(), X))
    assert "in encoder.layers[1].attention.out\n" in text
    assert "backward, in encoder.layers[1].attention\n" in text


def test_branches_of_python_have_their_names_once() -> None:
    @td.named_scope("f")
    def f(x: Any) -> Any:
        with td.named_scope("g"):
            y = tnp.sin(x)
            if y > 0:
                y = tnp.exp(y)
        return tnp.cos(y)

    graph = td.trace(f)(1.0)
    assert paths(graph, "sin") == paths(graph, "exp") == {"f.g"}
    assert paths(graph, "cos") == {"f"}


@pytest.mark.parametrize("call", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_errors_say_in_which_layer(call: Any) -> None:
    with pytest.raises(ValueError, match=r"\.py:\d+, in encoder\.layers\[0\]\.atten"):
        call(lambda m, x: m(x))(model(), X[:, :3])


def test_names_change_neither_keys_nor_digests() -> None:
    def f(x: Any) -> Any:
        return tnp.sin(x) * x

    plain, named = td.trace(f)(X), td.trace(td.named_scope("a")(f))(X)
    assert {eq.scope for eq in named.equations} == {"a"}
    assert plain.key() == named.key()
    assert digest(plain) == digest(named) is not None


@pytest.mark.parametrize(("name", "error"), [(3, TypeError), ("", ValueError)])
def test_a_scope_needs_a_name(name: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="needs a name"):
        td.named_scope(name)
