"""Kernels that only some programs need: each module is loaded when its name is first
asked for, as ``families.lapack``. All of them take as long to load as a small program
takes to compile.

Ask where sources are made, not where their text is: that may run on another thread,
and a child that is forked meanwhile would wait forever for the module.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_PLACES = {
    "attention": "attention.kernel",
    "attention_schedule": "attention.schedule",
    "bfloat": "bfloat.kernel",
    "bfloat_schedule": "bfloat.schedule",
    "conv": "conv.choice",
    "conv_depthwise": "conv.depthwise",
    "conv_emitted": "conv.emitted",
    "conv_pairs": "conv.pairs",
    "foreign": "foreign.arrays",
    "fourier": "fourier.kernel",
    "fourier_opened": "fourier.opened",
    "fourier_own": "fourier.own",
    "fourier_schedule": "fourier.schedule",
    "fourier_stockham": "fourier.stockham",
    "install": "install",
    "integers": "integers.kernel",
    "lapack": "lapack.kernel",
    "lapack_eager": "lapack.eager",
    "lapack_schedule": "lapack.schedule",
    "order": "order.kernel",
}


def load(name: str) -> ModuleType:
    """The module that is called so here."""
    found = globals()[name] = import_module(f"{__package__}.{_PLACES[name]}")
    return found


def __getattr__(name: str) -> ModuleType:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(name)
