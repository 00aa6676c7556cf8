"""Arrays by name into modules, and back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source, warn
from treadle.weights.rules import Group, Names, Rule, as_rules, filled, group, names_of

Model = TypeVar("Model")

_MOST_LISTED = 10
_NEAR = 0.8
_REMEDY = """\
Give the names that differ by `names=` (`weights.Rule`); names that map to None are \
not taken. With `strict=False`, what is missing stays as it is, and what is left over \
is not taken."""


def of(model: Any, names: Names = None) -> dict[str, np.ndarray]:
    """The arrays of a model by name: those of its parameters, buffers and State cells.

    Args:
      model: a Module or pytree; a dict of arrays stays what it is.
      names: what they are called elsewhere, as `into` takes it; by default they have
        their paths, as ``"layers.0.weight"``.

    Raises:
      ValueError: if `names` has no name for an array, or the same for two.

    >>> from treadle import nn, rng, weights
    >>> model = nn.Sequential(nn.Linear(2, 3, key=rng.key(0)), nn.relu)
    >>> list(weights.of(model))
    ['layers.0.weight', 'layers.0.bias']
    """
    leaves, form = tree.flatten(model)
    arrays = {
        dotted(path): np.asarray(leaf)
        for path, leaf in zip(tree.paths(form), leaves, strict=True)
        if td.is_array(leaf)
    }
    if names is None:
        return arrays
    found, problems = _exported(arrays, names)
    if problems:
        raise ValueError(
            f"{type(model).__name__} can't be written under these names:\n"
            + "\n".join(problems)
            + at(user_source())
        )
    return found


_NOT_BY_NAME = """\
weights.into takes a dict of arrays by name, got {found}{at}
Those of a file: `weights.load(path)`; of another model: `weights.of(model)`."""


def into(
    model: Model,
    values: Mapping[str, Any],
    names: Names = None,
    *,
    strict: bool = True,
) -> Model:
    """The model with the arrays of a file in place of its own.

    Each array of the model gets exactly one, in the dtype that it has; they are copied.

    Args:
      model: a Module or pytree. One of types will do, which `td.eval_shape` makes
        without drawing a number: ``td.eval_shape(lambda: nn.MLP((2, 1), key=key))``.
      values: arrays by name, as `load` gives them.
      names: how their names translate: `Rule` objects (those of PyTorch's layers:
        `torch_rules(model)`), or a dict of names by theirs, with the templates of
        rules. The first that fits counts. By default names are the paths in the model.
      strict: whether missing and left-over arrays are errors, not warnings.

    Raises:
      TypeError: if `values` is not a dict.
      ValueError: naming all that is missing, left over, doubled, or of another shape or
        kind, with the names that come near.

    >>> import numpy as np
    >>> from treadle import nn, rng, weights
    >>> layer = nn.Linear(2, 1, bias=False, key=rng.key(0))
    >>> theirs = {"fc.weight": np.ones((1, 2), np.float32)}
    >>> names = [weights.Rule("fc.{leaf}", "{leaf}", weights.TORCH)]
    >>> weights.into(layer, theirs, names).weight
    Array([[1.],
           [1.]], dtype=float32)
    """
    if not isinstance(values, Mapping):
        found = type(values).__name__
        raise TypeError(_NOT_BY_NAME.format(found=found, at=at(user_source())))
    leaves, form = tree.flatten(model)
    paths = [dotted(path) for path in tree.paths(form)]
    targets = {
        path: leaf if isinstance(leaf, td.ArrayType) else td.typeof(leaf)
        for path, leaf in zip(paths, leaves, strict=True)
        if td.is_array(leaf) or isinstance(leaf, td.ArrayType)
    }
    arrays, faults = _imported(values, names, targets)
    unexpected = [n for n in faults.unexpected if n not in faults.explained]
    missing = [p for p in targets if p not in arrays and p not in faults.explained]
    absent = _listed("missing", missing, unexpected, targets)
    absent += _listed("left over", unexpected, missing, values)
    kind = type(model).__name__
    nothing = bool(targets) and not any(path in arrays for path in targets)
    if faults.wrong or ((strict or nothing) and absent):
        raise ValueError(
            "\n".join([f"the arrays do not fit {kind}:", *faults.wrong, *absent])
            + f"{at(user_source())}\n{_REMEDY}"
        )
    if absent:
        warn("\n".join([f"not all arrays fit {kind}:", *absent]))
    return form.unflatten(
        [
            _copied(arrays[path], targets[path].dtype) if path in arrays else leaf
            for path, leaf in zip(paths, leaves, strict=True)
        ]
    )


def dotted(path: tree.Path) -> str:
    """A path as files name it.

    >>> dotted((tree.Attribute("layers"), 0, tree.Attribute("weight")))
    'layers.0.weight'
    """
    return ".".join(
        key.name if isinstance(key, tree.Attribute) else str(key) for key in path
    )


def _copied(array: np.ndarray, dtype: np.dtype) -> td.Array:
    return tnp.array(np.ascontiguousarray(array).astype(dtype, copy=False))


class _Faults:
    """What does not fit, collected for one error."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.unexpected: list[str] = []
        # Names and paths of which `wrong` has a line.
        self.explained: set[str] = set()

    def add(self, line: str, *about: str) -> None:
        self.wrong.append(f"  {line}")
        self.explained.update(about)


def _imported(
    values: Mapping[str, Any], names: Names, targets: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], _Faults]:
    """The arrays by our paths."""
    grouped = group(values, as_rules(names), theirs=True)
    faults = _Faults()
    faults.unexpected += grouped.left
    arrays: dict[str, np.ndarray] = {}
    source: dict[str, str] = {}
    for found in grouped.groups:
        if found.rule.ours is None:
            _check_tied(found, values, faults)
            continue
        taken = ", ".join(f"`{name}`" for name in found.members.values())
        paths = [filled(t, found.values) for t in names_of(found.rule.ours)]
        if not any(path in targets for path in paths):
            faults.unexpected += found.members.values()
            continue
        theirs = names_of(found.rule.theirs)
        absent = [
            filled(t, found.values)
            for place, t in enumerate(theirs)
            if place not in found.members
        ]
        if absent:
            need = ", ".join(f"`{name}`" for name in absent)
            line = f"`{paths[0]}` is made of {taken} and of {need}, which is missing"
            faults.add(line, *paths, *found.members.values())
            continue
        parts = [
            found.rule.layout.to_ours(np.asarray(values[found.members[place]]))
            for place in range(len(theirs))
        ]
        for path, array in _placed(found.rule, paths, parts, taken, faults):
            if path in arrays:
                faults.add(f"`{path}` gets both {source[path]} and {taken}", path)
            arrays[path], source[path] = array, taken
            _check_fit(path, array, taken, targets, faults)
    return arrays, faults


def _placed(
    rule: Rule, paths: list[str], parts: list[np.ndarray], taken: str, faults: _Faults
) -> Iterable[tuple[str, np.ndarray]]:
    """Parts joined, or one array split, for paths."""
    if rule.merge:
        return zip(paths, rule.merge.to_ours(parts), strict=True)
    shapes = [part.shape for part in parts]
    if len({shape[:-1] for shape in shapes}) > 1:
        faults.add(f"{taken} of shapes {shapes} can't be joined for `{paths[0]}`")
        return []
    whole = np.concatenate(parts, -1) if len(parts) > 1 else parts[0]
    if len(paths) == 1:
        return [(paths[0], whole)]
    if not whole.ndim or whole.shape[-1] % len(paths):
        faults.add(f"{taken} of shape {whole.shape} can't be split for {paths}")
        return []
    return zip(paths, np.split(whole, len(paths), -1), strict=True)


def _check_fit(
    path: str,
    array: np.ndarray,
    taken: str,
    targets: Mapping[str, Any],
    faults: _Faults,
) -> None:
    if path not in targets:
        faults.add(f"{taken} is for `{path}`, which the model has not")
        return
    target = targets[path]
    if array.shape != target.shape:
        line = f"`{path}` is {target}, and {taken} gives {list(array.shape)}"
        if array.shape == target.shape[::-1]:
            line += ": is it PyTorch's? `names=weights.torch_rules(model)`"
        faults.add(line, path)
    elif _kind(array.dtype) != _kind(target.dtype):
        faults.add(f"`{path}` is {target}, and {taken} is of {array.dtype}", path)


def _kind(dtype: np.dtype) -> str:
    # The halves and eighths of ml_dtypes are "V" to NumPy.
    return {"u": "i", "b": "i", "V": "f"}.get(dtype.kind, dtype.kind)


def _check_tied(found: Group, values: Mapping[str, Any], faults: _Faults) -> None:
    if found.rule.same_as is None:
        return
    other = filled(found.rule.same_as, found.values)
    for name in found.members.values():
        if other not in values:
            faults.add(f"`{name}` should be the same as `{other}`, which is missing")
        elif not np.array_equal(values[name], values[other]):
            faults.add(f"`{name}` differs from `{other}`; the model has one for both")


def _exported(
    arrays: Mapping[str, np.ndarray], names: Names
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays by their names."""
    grouped = group(arrays, as_rules(names), theirs=False)
    problems = [f"  no name for `{path}`" for path in grouped.left]
    out: dict[str, np.ndarray] = {}
    for found in grouped.groups:
        layout, ours = found.rule.layout, names_of(found.rule.ours)
        theirs = [filled(t, found.values) for t in names_of(found.rule.theirs)]
        if len(found.members) < len(ours):
            problems.append(f"  `{theirs[0]}` is made of more than {found.members}")
            continue
        parts = [arrays[found.members[place]] for place in range(len(ours))]
        if found.rule.merge:
            pieces = found.rule.merge.to_theirs(parts)
        else:
            pieces = _split(parts, theirs, problems)
        for name, piece in zip(theirs, pieces, strict=False):
            if name in out:
                problems.append(f"  two arrays are called `{name}`")
            out[name] = layout.to_theirs(piece)
    return out, problems


def _split(
    parts: list[np.ndarray], names: list[str], problems: list[str]
) -> list[np.ndarray]:
    whole = np.concatenate(parts, -1) if len(parts) > 1 else parts[0]
    if whole.ndim and whole.shape[-1] % len(names):
        problems.append(f"  {whole.shape} can't be split evenly for {names}")
        return []
    return np.split(whole, len(names), -1) if len(names) > 1 else [whole]


def _listed(
    title: str, names: list[str], others: list[str], known: Mapping[str, Any]
) -> list[str]:
    """A line each for what is missing or left over, with what is near on the other
    side."""
    lines = []
    for name in names[:_MOST_LISTED]:
        near = difflib.get_close_matches(name, others, 1, _NEAR)
        hint = f"; left is `{near[0]}`" if near else ""
        value = known[name]
        about = repr(td.typeof(value)) if td.is_array(value) else repr(value)
        lines.append(f"  {title}: `{name}` ({about:.40}){hint}")
    if len(names) > _MOST_LISTED:
        lines.append(f"  and {len(names) - _MOST_LISTED} more that are {title}")
    return lines
