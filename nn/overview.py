"""Tables of a model: its arrays, or what its layers do with given inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import treadle as td
from treadle import rng, tree
from treadle.errors import at, user_source
from treadle.nn.show import rows, size_text
from treadle.nn.state import stateful
from treadle.nn.watch import watching

_RUNS = 5
_MOST_TYPES = 3
_UNKNOWN = "?"


def summary(
    model: Any,
    *inputs: Any,
    depth: int | None = None,
    timed: bool = False,
    **options: Any,
) -> str:
    """A table of a model: of its arrays, or of its layers if there are inputs.

    With inputs it has a row for each layer that is called: path, class, types of inputs
    and output, trainable numbers, bytes of all arrays in it, and the floating-point
    operations of a call (`Lowered.cost_analysis`). Nothing is computed for that; inputs
    may be `td.ShapeDtype`, and a model may be what `td.eval_shape` gives. A layer that
    is called more than once on the same types says how often. In a `td.scan` or
    `td.vmap`, rows are of one iteration or example.

    Args:
      inputs, options: what the model is called with.
      depth: leave out layers deeper inside than so many others.
      timed: run the model once, and each layer that was called on arrays a few times
        more, jitted: the quickest time of a call is a further column.

    >>> from treadle import nn, rng
    >>> mlp = nn.MLP((2, 16, 1), key=rng.key(0))
    >>> print(nn.summary(mlp))
    array            type       elements  bytes
    layers.0.weight  f32[2,16]        32  128 B
    layers.0.bias    f32[16]          16   64 B
    layers.1.weight  f32[16,1]        16   64 B
    layers.1.bias    f32[1]            1    4 B
    MLP              trainable        65  260 B
    >>> print(nn.summary(mlp, td.ShapeDtype((8, 2))))
    layer     class   input      output     parameters  bytes  FLOPs
              MLP     f32[8,2]   f32[8,1]           65  260 B    904
    layers.0  Linear  f32[8,2]   f32[8,16]          48  192 B    640
    layers.1  Linear  f32[8,16]  f32[8,1]           17   68 B    264
    """
    if not inputs and not options:
        return _of_arrays(model)
    table = layer_table(model, *inputs, depth=depth, timed=timed, **options)
    return _aligned(table, left=4)


def layer_table(
    model: Any,
    *inputs: Any,
    depth: int | None = None,
    timed: bool = False,
    **options: Any,
) -> list[list[str]]:
    """The rows of a `summary` with inputs, the head first: for other ways to show it.

    >>> from treadle import nn, rng
    >>> layer_table(nn.Linear(2, 1, key=rng.key(0)), td.ShapeDtype((8, 2)))[1]
    ['', 'Linear', 'f32[8,2]', 'f32[8,1]', '3', '12 B', '40']
    """
    if not callable(model):
        raise TypeError(
            f"summary: inputs are for a model that can be called, not a "
            f"{type(model).__name__}{at(user_source())}"
        )
    calls = _Calls(kept=timed)
    key = rng.key(0)

    def run(model: Any, inputs: Any, options: Any) -> Any:
        with watching(calls.told):
            return stateful(model, key=key)(*inputs, **options)[0]

    leaves, form = tree.flatten((model, inputs, options))
    if timed:
        run(*form.unflatten(leaves))
    else:
        places = [i for i, x in enumerate(leaves) if _is_typed(x)]
        td.eval_shape(
            lambda *xs: run(*form.unflatten(_put(leaves, places, xs))),
            *[_abstract(leaves[i]) for i in places],
        )
    shown = [c for c in calls.found if depth is None or c.depth <= depth]
    return _of_layers(shown, timed)


@dataclass
class _Call:
    """How a layer was called: as types, and with what, if that was kept.

    form, leaves: of (layer, args, kwargs). output: its types as text.
    """

    path: str
    name: str
    form: tree.Structure
    leaves: list[Any]
    kept: list[Any]
    output: str
    count: int = 1

    @property
    def layer(self) -> Any:
        return self.form.unflatten(self.leaves)[0]

    @property
    def inputs(self) -> str:
        return _types(self.form.unflatten(self.leaves)[1:])

    @property
    def depth(self) -> int:
        return len(self.path.split(".")) if self.path else 0

    def is_like(self, other: _Call) -> bool:
        return (self.path, self.form, self.leaves) == (
            other.path,
            other.form,
            other.leaves,
        )

    def alone(self) -> tuple[Callable[..., Any], list[int]]:
        """The call as a function of the arrays in it, and which leaves these are."""
        places = [i for i, x in enumerate(self.leaves) if _is_typed(x)]
        key = rng.key(0)

        def run(*arrays: Any) -> Any:
            layer, args, kwargs = self.form.unflatten(_put(self.leaves, places, arrays))
            output, after = stateful(layer, key=key)(*args, **kwargs)
            return tree.leaves((output, after))

        return run, places

    def flops(self) -> int | None:
        """None for a layer that works only inside of its model, as one that speaks of
        an axis by its name."""
        run, places = self.alone()
        try:
            lowered = td.jit(run).lower(*[_abstract(self.leaves[i]) for i in places])
        except NameError:  # what an axis that is not mapped here is
            return None
        return lowered.cost_analysis().flops

    def seconds(self) -> float | None:
        """The quickest time of some; None for a call in the body of a loop."""
        run, places = self.alone()
        arrays = [self.kept[i] for i in places] if self.kept else []
        if not self.kept or any(map(td.is_traced, arrays)):
            return None
        jitted = td.jit(run)
        jitted(*arrays)
        times = []
        for _ in range(_RUNS):
            start = perf_counter()
            jitted(*arrays)
            times.append(perf_counter() - start)
        return min(times)


class _Calls:
    """The calls of layers, each before those inside of it."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.found: list[_Call] = []

    def told(self, path: str, layer: Any, args: Any, kwargs: Any, output: Any) -> Any:
        if isinstance(layer, str):  # what `record` names
            return output
        leaves, form = tree.flatten((layer, args, kwargs))
        types = [_abstract(x) if _is_typed(x) else x for x in leaves]
        kept = leaves if self.kept else []
        name = type(layer).__name__
        call = _Call(path, name, form, types, kept, _types(output))
        for other in self.found:
            if other.is_like(call):
                other.count += 1
                return output
        place = len(self.found)
        while place and _is_inside(self.found[place - 1].path, path):
            place -= 1
        self.found.insert(place, call)
        return output


def _is_inside(path: str, around: str) -> bool:
    return not around or path.startswith(f"{around}.")


def _is_typed(x: Any) -> bool:
    return td.is_array(x) or isinstance(x, td.ArrayType)


def _abstract(x: Any) -> Any:
    return x if isinstance(x, td.ArrayType) else td.typeof(x).strong()


def _put(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> Any:
    full = list(leaves)
    for i, value in zip(places, values, strict=True):
        full[i] = value
    return full


def _types(values: Any) -> str:
    found = [_abstract(x) for x in tree.leaves(values) if _is_typed(x)]
    words = [repr(t) for t in found[:_MOST_TYPES]]
    if len(found) > _MOST_TYPES:
        words[-1] = f"… ({len(found)})"
    return ", ".join(words)


def _of_layers(calls: Sequence[_Call], timed: bool) -> list[list[str]]:
    head = ["layer", "class", "input", "output", "parameters", "bytes", "FLOPs"]
    table = [head + ["time"] * timed]
    for call in calls:
        arrays = rows(call.layer)
        flops = call.flops()
        row = [
            call.path + f" ({call.count} calls)" * (call.count > 1),
            call.name,
            call.inputs,
            call.output,
            f"{sum(r.elements for r in arrays if r.trainable):,}",
            size_text(sum(r.bytes for r in arrays)),
            _UNKNOWN if flops is None else _number(flops),
        ]
        if timed:
            seconds = call.seconds()
            row.append(_UNKNOWN if seconds is None else _time(seconds))
        table.append(row)
    return table


def _of_arrays(model: Any) -> str:
    found = rows(model)
    table = [["array", "type", "elements", "bytes"]]
    for row in found:
        kind = row.type if row.trainable else f"{row.type} (not trained)"
        table.append([row.path, kind, f"{row.elements:,}", size_text(row.bytes)])
    name = type(model).__name__
    for label, trainable in (("trainable", True), ("not trained", False)):
        chosen = [row for row in found if row.trainable == trainable]
        if chosen or trainable:
            n, size = (sum(r.elements for r in chosen), sum(r.bytes for r in chosen))
            table.append([name, label, f"{n:,}", size_text(size)])
    return _aligned(table, left=2)


def _aligned(table: Sequence[Sequence[str]], left: int) -> str:
    """The rows below each other; columns after so many are flush right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if i < left else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    )


def _number(n: int) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:,}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
