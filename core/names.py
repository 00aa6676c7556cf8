"""What to say of a name that Treadle has elsewhere, or calls something else.

People come with other libraries' names in their hands: ``td.array``, ``nn.ReLU``,
``optim.Adam``. Where such a name is missing, the error says what to write instead.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from treadle.errors import at, user_source

_LISTS = ("treadle", "treadle.numpy", "treadle.nn", "treadle.optim", "treadle.rng")
"""Modules that consist of public names; the others here define theirs."""
_MODULES = ("treadle.tree", "treadle.debug", "treadle.np.linalg", "treadle.nn.init")
_LAYERS = ("nn", "optim", "rng", "checkpoint")
# Only what is called something else: a name that is spelled alike is found by itself.
_SYNONYMS = {
    "batchnorm1d": "treadle.nn.BatchNorm",
    "batchnorm2d": "treadle.nn.BatchNorm",
    "batchnorm3d": "treadle.nn.BatchNorm",
    "bceloss": "treadle.nn.binary_cross_entropy",
    "bcewithlogitsloss": "treadle.nn.binary_cross_entropy",
    "crossentropyloss": "treadle.nn.cross_entropy",
    "filtergrad": "treadle.grad",
    "filterjit": "treadle.jit",
    "filtervalueandgrad": "treadle.value_and_grad",
    "filtervmap": "treadle.vmap",
    "functional": "treadle.nn",
    "gru": "treadle.nn.GRUCell",
    "huberloss": "treadle.nn.huber",
    "inferencemode": "treadle.nn.inference",
    "kldivloss": "treadle.nn.kl_divergence",
    "l1loss": "treadle.nn.absolute_error",
    "lax": "treadle",
    "lstm": "treadle.nn.LSTMCell",
    "makejaxpr": "treadle.trace",
    "modulelist": "treadle.nn.Sequential",
    "mseloss": "treadle.nn.squared_error",
    "nograd": "treadle.stop_gradient",
    "nllloss": "treadle.nn.cross_entropy",
    "permute": "treadle.numpy.transpose",
    "prngkey": "treadle.rng.key",
    "rand": "treadle.rng.uniform",
    "randn": "treadle.rng.normal",
    "random": "treadle.rng",
    "randperm": "treadle.rng.permutation",
    "shapedtypestruct": "treadle.ShapeDtype",
    "smoothl1loss": "treadle.nn.huber",
    "softmaxcrossentropy": "treadle.nn.cross_entropy",
    "softmaxcrossentropywithintegerlabels": "treadle.nn.cross_entropy",
    "sparsecrossentropy": "treadle.nn.cross_entropy",
    "swish": "treadle.nn.silu",
    "tensor": "treadle.numpy.array",
    "treeat": "treadle.nn.at",
    "treeflatten": "treadle.tree.flatten",
    "treeleaves": "treadle.tree.leaves",
    "treemap": "treadle.tree.map",
    "treestructure": "treadle.tree.structure",
    "treeunflatten": "treadle.tree.unflatten",
    "treeutil": "treadle.tree",
}


def suggest(module: str) -> None:
    """From now on the errors of a module's missing names say what to use."""

    def __getattr__(name: str) -> Any:
        found = "" if name.startswith("_") else instead(module, name)
        remedy = f": use `{found}`" if found else ""
        if found == f"{module}.{name}":
            remedy = f" before it is imported: `from {module} import {name}`"
        where = at(user_source()) if found else ""
        raise AttributeError(
            f"{module} has no `{name}`{remedy}{where}",
            name=name,
            obj=sys.modules[module],
        )

    vars(sys.modules[module])["__getattr__"] = __getattr__


def instead(module: str, name: str) -> str:
    """The full name of what is meant by a name that a module lacks, or nothing."""
    if module == "treadle" and name in _LAYERS:
        return f"treadle.{name}"
    alike = ""
    for place in (module, *_LISTS, *_MODULES):
        for known, value in vars(import_module(place)).items():
            if _plain(known) == _plain(name) and _is_public(known, value, place):
                found = f"{place}.{known}".replace(".np.", ".numpy.")
                if known == name:
                    return found
                alike = alike or found
    return alike or _SYNONYMS.get(_plain(name), "")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_public(name: str, value: Any, place: str) -> bool:
    if name.startswith("_") or isinstance(value, ModuleType):
        return False
    return place in _LISTS or getattr(value, "__module__", "") == place
