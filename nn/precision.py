"""In which dtypes a model holds its parameters, computes, and gives its results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import treadle as td
from treadle import tree
from treadle.errors import at, user_source, warn
from treadle.nn.cast import cast
from treadle.nn.check import PrecisionWarning, floats_as, is_floating
from treadle.nn.module import Module, fields_of, with_fields
from treadle.nn.state import State, changed
from treadle.nn.surgery import iterate

_NO_FLOAT = """\
nn.Precision: {name} is a dtype of floating-point numbers, or None; got {value!r}{at}
For example `nn.Precision(compute="bfloat16")`."""
_NO_FIELD = """\
nn.Precision: {names} can't be told to compute in {dtype}{at}
They hold arrays and have no field `dtype`. Give the class one, None by default, and \
take operands in it: `x, weight = nn.operands("{kind}", self.dtype, x, self.weight)`; \
or leave them out: `policy.apply(model, where=~td.tree.select({kind}))`."""
_NO_MODEL = """\
nn.Precision: output={dtype} is that of a Module's call, got a {found}{at}
Apply it to each of the modules in it: `nn.at(...).apply(policy.apply)`."""

Model = TypeVar("Model")


@dataclass(frozen=True)
class Precision:
    """A policy: in which dtypes a model holds its parameters, computes, gives its
    results, and keeps its state. What is None stays as it is.

    Mixed precision, the usual way to train in 16 bits, is a matter of `compute` alone:
    parameters stay in float32, layers take them and their inputs in bfloat16, and
    gradients and the optimizer's state are in float32, as the parameters are. The
    statistics of norms, softmax and losses are always computed in float32 at least.

    Args:
      params: of parameters and buffers (`nn.cast`). Gradients have the same.
      compute: in which layers compute: it becomes their field `dtype`. Layers without
        arrays have none, and compute in the dtype of what they are given.
      output: in which calls of the model give floating results; its methods are left
        alone.
      state: of what State cells hold: running statistics, caches.

    Raises:
      ValueError: for what is no dtype of floating-point numbers.

    >>> from treadle import nn, rng
    >>> policy = nn.Precision(compute="bfloat16", output="float32")
    >>> model = policy.apply(nn.MLP((2, 8, 1), key=rng.key(0)))
    >>> layer = model.layers[0]
    >>> layer.weight.dtype, layer.dtype
    (dtype('float32'), dtype(bfloat16))
    """

    params: Any = None
    compute: Any = None
    output: Any = None
    state: Any = None

    def __post_init__(self) -> None:
        for name in ("params", "compute", "output", "state"):
            object.__setattr__(self, name, _dtype(name, getattr(self, name)))

    def apply(self, model: Model, where: Any = None) -> Model:
        """A model that follows the policy.

        What it says goes before the `dtype` that layers were made with, and before what
        another policy said: so exceptions are policies of their own, applied after.

        Args:
          where: what `treadle.tree.select` takes: patterns, a class, a function of path
            and array, a mask; all by default. A layer computes in `compute` if all its
            arrays are chosen. `output` is that of the model, whatever is chosen.

        Warns:
          PrecisionWarning: about modules of yours that hold arrays and have no field
            `dtype`: they compute as they are written.

        >>> import treadle as td
        >>> from treadle import nn, rng
        >>> import treadle.numpy as tnp
        >>> k1, k2 = rng.split(rng.key(0))
        >>> model = nn.Sequential(nn.Linear(2, 8, key=k1), nn.LayerNorm(8))
        >>> model = nn.Precision(compute="bfloat16").apply(model)
        >>> model(tnp.ones((3, 2))).dtype
        dtype(bfloat16)
        >>> model = nn.Precision(compute="float32").apply(model, where=nn.LayerNorm)
        >>> model(tnp.ones((3, 2))).dtype
        dtype('float32')
        """
        chosen = tree.select(True if where is None else where)
        if self.compute is not None:
            model = _computing(model, self.compute, chosen)
        if self.params is not None:
            model = cast(model, self.params, chosen)
        if self.state is not None:
            cells = tree.select(State, required=False)
            model = cast(model, self.state, chosen & cells, state=True)
        if self.output is None:
            return model
        if not isinstance(model, Module):
            raise TypeError(
                _NO_MODEL.format(
                    dtype=self.output, found=type(model).__name__, at=at(user_source())
                )
            )
        return with_fields(model, {"output_dtype": self.output})

    def cast_to_params(self, values: Any) -> Any:
        """A pytree with its floating arrays in the dtype of parameters."""
        return values if self.params is None else floats_as(values, self.params)

    def cast_to_compute(self, values: Any) -> Any:
        """A pytree (a batch) with its floating arrays in the dtype of computations.

        >>> import numpy as np
        >>> from treadle import nn
        >>> policy = nn.Precision(compute="float16")
        >>> policy.cast_to_compute([np.ones(2), np.arange(2)])
        [array([1., 1.], dtype=float16), array([0, 1])]
        """
        return values if self.compute is None else floats_as(values, self.compute)

    def cast_to_output(self, values: Any) -> Any:
        """A pytree with its floating arrays in the dtype of results."""
        return values if self.output is None else floats_as(values, self.output)


def _dtype(name: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        found = td.dtypes.canonical(value)
    except TypeError:
        found = None
    if found is None or not td.dtypes.is_float(found):
        raise ValueError(_NO_FLOAT.format(name=name, value=value, at=at(user_source())))
    return found


def _computing(model: Model, dtype: Any, chosen: tree.Selector) -> Model:
    leaves, form = tree.flatten(model)
    flags: Any = form.unflatten(chosen.flags(leaves, form))
    # By path: a layer without arrays that stands in two places comes once here only.
    marks = dict(iterate(flags))
    meant, without = set(), {}
    for path, module in iterate(model):
        mark = marks[path]
        own = list(_own(mark))
        if not all(own or tree.leaves(mark) or [False]):
            continue
        if "dtype" in fields_of(module):
            meant.add(id(module))
        elif any(map(is_floating, _own(module))) and not _is_ours(module):
            without[type(module).__name__] = path
    if without:
        names = ", ".join([f"{k} at `{p}`" if p else k for k, p in without.items()])
        text = _NO_FIELD.format(
            names=names, dtype=dtype, kind=next(iter(without)), at=at(user_source())
        )
        warn(text, PrecisionWarning)
    return changed(model, lambda m: {"dtype": dtype} if id(m) in meant else {})


def _own(module: Module) -> Iterator[Any]:
    """The leaves that a module holds itself, not in modules inside of it."""
    for x in tree.leaves(module, lambda x: isinstance(x, Module) and x is not module):
        if not isinstance(x, Module):
            yield x


def _is_ours(module: Module) -> bool:
    """Whether the module is the library's: these compute in what they are given."""
    return type(module).__module__.startswith("treadle.")
