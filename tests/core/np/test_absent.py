"""Methods of other libraries' arrays: what to write instead, and that it is there."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.np.absent import REMEDIES

X = tnp.arange(6.0).reshape(2, 3)
NAMES: dict[str, Any] = {
    **{"td": td, "tnp": tnp, "nn": nn, "numpy": np, "x": X, "f": tnp.sum},
    **{"shape": (4, 2, 3), "axis": 0, "axes": (1, 0), "mask": X > 1, "value": 0.0},
    **{
        "index": 0,
        "indices": np.zeros((2, 3), int),
        "n": 2,
        "low": 1,
        "high": 2,
        "k": 2,
    },
    **{
        "start": 0,
        "length": 1,
        "dtype": td.float32,
        "device": "cpu",
        "params": X,
        "loss": tnp.sum,
    },
}


@pytest.mark.parametrize("name", REMEDIES)
def test_an_absent_method_names_what_works(name: str) -> None:
    assert not hasattr(X, name)
    assert name not in dir(X)
    with pytest.raises(AttributeError, match=f"arrays have no `{name}`") as caught:
        getattr(X, name)
    message = str(caught.value)
    assert f"at {__file__}:" in message
    assert (caught.value.name, caught.value.obj) == (name, X)
    code = re.findall(r"`([^`]+)`", REMEDIES[name])
    assert code
    other = X.T if "@" in code[0] else 1.0 if ".at" in REMEDIES[name] else X
    names = NAMES | {"y": other}
    if "linalg.norm" not in code[0] and "linalg" in code[0]:
        names["x"] = tnp.eye(3)
    for example in code:
        exec(example, dict(names))


def test_traced_arrays_say_it_too() -> None:
    with pytest.raises(AttributeError, match=r"no `unsqueeze`(.|\n)*tnp.expand_dims"):
        td.jit(lambda x: x.unsqueeze(0))(X)
    assert "sum" in dir(X)
