"""Pickles that are not of tensors run nothing."""

from __future__ import annotations

import builtins
import io
import os
import pickle
import zipfile
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest

from treadle import weights
from treadle.weights import pickles


class Attack:
    """Calls a function when it is unpickled."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def archive(path, data):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", data)
    return path


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (os.system, ("touch attacked",)),
        (builtins.eval, ("open('attacked', 'w')",)),
        (builtins.exec, ("open('attacked', 'w')",)),
        (builtins.getattr, (os, "system")),
        (partial, (open, "attacked", "w")),
    ],
)
def test_attacks_are_refused_by_name(function, args, protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if function is builtins.getattr:
        args = (OrderedDict, "fromkeys")
    data = pickle.dumps({"weight": Attack(function, *args)}, protocol)
    name = function.__qualname__
    with pytest.raises(ValueError, match=rf"`\w+\.{name}`.*\nOnly|Nothing was run"):
        weights.load(archive(tmp_path / "x.pt", data))
    with pytest.raises(ValueError, match=name):
        pickles.read(data, "x")
    assert os.listdir() == ["x.pt"]


@pytest.mark.parametrize(
    "data",
    [
        b"(S'touch attacked'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch attacked'\no.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor\n(cos\nsystem\ntR.",
        b"\x80\x02ctorch\nFloatStorage\n(tR.",
        b"\x80\x02}(X\x01\x00\x00\x00aK\x01u}b\x8c\x01a\x81.",
    ],
)
def test_other_opcodes_that_call_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"x (refers to|is not a pickle)"):
        pickles.read(data, "x")
    assert not os.listdir()


PLAIN = {
    "numbers": [1, -1, 255, 70000, 2**40, -(2**70), 1.5, True, False, None],
    "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "text": ["", "a", "ä" * 300, b"bytes", b"b" * 300],
    "nested": [{"a": [{}, []]}, OrderedDict([("x", 1), ("y", (2,))])],
    3: list(range(1500)),
}


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_values_are_what_pickle_makes(protocol):
    plain = {k: v for k, v in PLAIN.items() if protocol > 2 or k != "text"}
    again = plain["nested"]
    data = pickle.dumps(plain | {"again": again}, protocol)
    found = pickles.read(data, "x")
    assert found == pickle.loads(data)
    file = io.BytesIO(data + b"more")
    assert pickles.read(file, "x") == found
    assert file.read() == b"more"


def test_a_container_in_itself_is_refused():
    loop = []
    loop.append({"loop": loop})
    with pytest.raises(ValueError, match="holds a list that holds itself"):
        pickles.read(pickle.dumps(loop), "x")


def test_a_few_bytes_do_not_make_endless_trees(monkeypatch):
    monkeypatch.setattr(pickles, "_MOST_CONTAINERS", 1000)
    tree = []
    for _ in range(60):
        tree = [tree, tree]
    with pytest.raises(ValueError, match="holds more than 1,000 containers"):
        pickles.read(pickle.dumps(tree), "x")


def test_cut_pickles():
    data = pickle.dumps(PLAIN)
    for length in (0, 1, 10, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match="x is not a pickle of tensors"):
            pickles.read(data[:length], "x")


def test_a_pickle_of_numpy_is_not_one_of_pytorch(tmp_path):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"x": np.ones(3)}))
    with pytest.raises(ValueError, match=r"numpy.*Nothing was run"):
        weights.load(tmp_path / "x.pkl")
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"x": 3}))
    with pytest.raises(ValueError, match="not of PyTorch"):
        weights.load(tmp_path / "x.pkl")
    with pytest.raises(ValueError, match=r"holds no arrays, but {'x': 3}"):
        weights.load(archive(tmp_path / "y.pt", pickle.dumps({"x": 3})))
