"""Functions that branch on values in Python's words, for random programs."""

from __future__ import annotations

from typing import Any


def scaled(np: Any, v: Any) -> Any:
    if np.sum(v) > 0.3:
        w = v * 0.5
        return w - 1
    return v + np.abs(v)


def chosen(np: Any, v: Any) -> Any:
    return np.sin(v) if np.max(v) > 0.7 and np.min(v) < 0.2 else v * v * 0.1


def halved(np: Any, v: Any) -> Any:
    while np.sum(np.abs(v)) > 1.5:
        v = v * 0.5
    return v


def stepped(np: Any, v: Any) -> Any:
    total = v
    for i in range(4):
        if np.max(total) > 2.5:
            break
        total = total + v * 0.1 * i
    else:
        total = total - 1
    return total


def sorted_out(np: Any, v: Any) -> Any:
    if np.max(v) > 1:
        kind = np.tanh(v)
    elif np.max(v) > 0.1:
        kind = v * 0.3
    else:
        kind = -v
    if np.sum(kind) < 0.2:
        kind = kind + 0.25
    return kind
