"""Which arrays of a model are trained, and what was said of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, TypeVar

from treadle import tree
from treadle.errors import at, user_source
from treadle.nn.field import Entry, Mixed, container_entry, layout_of
from treadle.nn.module import Module
from treadle.nn.role import Role

_NO_ROLE = """\
an array in a {kind} can't be frozen by itself{at}
Modules know which of their arrays are trained. Hold the array in a field of a Module, \
or differentiate in a part: `chosen, rest = nn.partition(model, where)`."""

Model = TypeVar("Model")


def freeze(model: Model, where: Any = None) -> Model:
    """A model in which some parameters are not trained.

    `td.grad` gives None for frozen arrays, and optimizers, weight decay and averages
    leave them alone; jit, checkpoints and `cast` see them as any array. A layer stays
    frozen in whatever model it is put. Make the optimizer's state for the model as it
    is trained: after `freeze` or `unfreeze`.

    Args:
      where: what `treadle.tree.select` takes: patterns (``"encoder.**.bias"``), a
        class, a function of path and array, a mask, ``lambda model: model.part``; all
        by default.

    Raises:
      TypeError: for an array that is in no Module.

    >>> import treadle as td, treadle.numpy as tnp
    >>> from treadle import nn, rng
    >>> model = nn.freeze(nn.MLP((2, 3, 1), key=rng.key(0)), "layers.0")
    >>> list(nn.parameters(model))
    ['layers.1.weight', 'layers.1.bias']
    >>> td.grad(lambda m: m(tnp.ones(2)).sum())(model).layers[0].weight is None
    True
    """
    return _with_frozen(model, where, True)


def unfreeze(model: Model, where: Any = None) -> Model:
    """A model in which some frozen parameters are trained again. Buffers stay buffers.

    Args:
      where: as for `freeze`; all by default.

    >>> from treadle import nn, rng
    >>> model = nn.freeze(nn.MLP((2, 3, 1), key=rng.key(0)))
    >>> list(nn.parameters(nn.unfreeze(model, "**.bias")))
    ['layers.0.bias', 'layers.1.bias']
    """
    return _with_frozen(model, where, False)


def _with_frozen(model: Any, where: Any, frozen: bool) -> Any:
    leaves, form = tree.flatten(model)
    flags = tree.select(True if where is None else where).flags(leaves, form)
    return _node(form, iter(flags), frozen).unflatten(leaves)


def _node(form: tree.Structure, flags: Iterator[bool], frozen: bool) -> tree.Structure:
    """A structure whose chosen leaves are frozen, or not."""
    aux: Any = form.aux
    if not form.children:
        return form
    if form.kind is not None and issubclass(form.kind, Module):
        entries, children = _entries(aux.entries, form.children, flags, frozen)
        kind: Any = form.kind
        layout = layout_of(kind, entries, kind._may_be_lazy, aux.ties)
        return tree.Structure(kind, layout, children)
    found = []
    for child, constant in zip(form.children, form.constants, strict=True):
        if child is not tree.LEAF:
            found.append(_node(child, flags, frozen))
            continue
        if next(flags) and frozen and not constant:
            raise TypeError(_NO_ROLE.format(kind=form.name, at=at(user_source())))
        found.append(child)
    return tree.Structure(form.kind, aux, tuple(found))


def _entries(
    entries: tuple[Entry, ...],
    children: tuple[tree.Structure, ...],
    flags: Iterator[bool],
    frozen: bool,
) -> tuple[tuple[Entry, ...], tuple[tree.Structure, ...]]:
    rest = iter(children)
    pairs = [
        (e, None) if e.static else _entry(e, next(rest), flags, frozen) for e in entries
    ]
    forms = [form for _, form in pairs if form is not None]
    return tuple([entry for entry, _ in pairs]), tuple(forms)


def _entry(
    entry: Entry, form: tree.Structure, flags: Iterator[bool], frozen: bool
) -> tuple[Entry, tree.Structure]:
    kind, aux = form.kind, form.aux
    if form is tree.LEAF or _is_whole(form):
        chosen = [next(flags) for _ in range(form.count)]
        if chosen and all(chosen):
            role = (entry.role or Role()).as_frozen(frozen)
            return entry._replace(role=role), form
        if not any(chosen):
            return entry, form
        raise TypeError(_NO_ROLE.format(kind=form.name, at=at(user_source())))
    if kind is Mixed:
        template: Any = aux
        kind, entries = template.kind, template.entries
    elif form.children and (kind in (list, tuple, dict) or hasattr(kind, "_fields")):
        names: Any = aux if kind is dict else range(len(form.children))
        entries = tuple([Entry(name, False) for name in names])
    else:
        return entry, _node(form, flags, frozen)
    entries, children = _entries(entries, form.children, flags, frozen)
    made = container_entry(entry.name, kind, entries)  # type: ignore[arg-type]
    if made.template is not None:
        return made, tree.Structure(Mixed, made.template, children)
    aux = tuple([e.name for e in entries]) if kind is dict else None
    return made, tree.Structure(kind, aux, children)


def _is_whole(form: tree.Structure) -> bool:
    """Whether it is a container of a class of the user's, with nothing but arrays."""
    return (
        form.kind not in (None, Mixed, list, tuple, dict)
        and not hasattr(form.kind, "_fields")
        and any(c is tree.LEAF for c in form.children)
        and all(c is tree.LEAF or c.is_none for c in form.children)
        and not any(form.constants)
        and not issubclass(form.kind, Module)
    )


def metadata(model: Any) -> dict[str, dict[str, Hashable]]:
    """What was said of arrays by `Param` and `Buffer`, by path; arrays of which nothing
    was said are left out.

    >>> import treadle.numpy as tnp
    >>> from treadle import nn
    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         self.scale = nn.Param(tnp.ones((2, 3)), axes=("embed", "mlp"))
    >>> nn.metadata([Scale()])
    {'0.scale': {'axes': ('embed', 'mlp')}}
    """
    form = tree.structure(model)
    pairs = zip(tree.paths(form), _metadata(form, ()), strict=True)
    return {tree.dotted(path): dict(said) for path, said in pairs if said}


def tagged(**metadata: Hashable) -> tree.Selector:
    """Selects the arrays of which this was said by `Param` and `Buffer`.

    >>> import treadle.numpy as tnp
    >>> from treadle import nn, optim
    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         self.scale = nn.Param(tnp.ones(2), decay=False)
    ...         self.weight = tnp.ones(2)
    >>> nn.tagged(decay=False)(Scale())
    Scale(scale=True, weight=False)
    >>> optimizer = optim.adamw(1e-3, mask=~nn.tagged(decay=False))
    """
    wanted = set(metadata.items())

    def mask(model: Any) -> Any:
        form = tree.structure(model)
        return form.unflatten([wanted <= set(said) for said in _metadata(form, ())])

    return tree.select(mask)


_Metadata = tuple[tuple[str, Hashable], ...]


def _metadata(form: tree.Structure, said: _Metadata) -> Iterator[_Metadata]:
    """For each leaf what was said of it."""
    if form is tree.LEAF:
        yield said
        return
    # Those of Modules and `Mixed` have entries.
    entries = getattr(form.aux, "entries", None)
    roles = [e.role for e in entries if not e.static] if entries else ()
    for i, child in enumerate(form.children):
        role = roles[i] if roles else None
        yield from _metadata(child, role.metadata if role else said)
