"""What is saved comes back, bit for bit and in its containers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import treadle as td
from tests.checkpoint.trees import Layer, Moments, assert_same, training_state
from treadle import Array
from treadle.checkpoint import (
    DamagedError,
    describe,
    restore,
    save,
    save_async,
    store,
)

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16"
DTYPES += " float32 float64 complex64 complex128 float8_e4m3fn float8_e5m2"


def test_training_state(tmp_path: Path) -> None:
    state = training_state(7)
    save(tmp_path / "a", state)
    restored = restore(tmp_path / "a", training_state(0))
    assert_same(restored, state)
    assert restored["model"][1].name == "second"


def test_template_of_shapes_only(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": np.ones((2, 3), np.float32), "n": 4})
    shape = SimpleNamespace(shape=(2, 3), dtype=np.float32)
    restored = restore(tmp_path / "a", {"w": shape, "n": 0})
    assert isinstance(restored["w"], Array)
    assert_same(restored, {"w": np.ones((2, 3), np.float32), "n": 4})


def test_without_template(tmp_path: Path) -> None:
    save(tmp_path / "a", training_state(3))
    restored = restore(tmp_path / "a")
    assert list(restored["model"][0]) == ["weight", "bias"]
    assert restored["optimizer"]["nu"][1] is None
    assert restored["step"] == 3
    assert restored["empty"].shape == (0, 5)
    assert isinstance(restored["key"], Array)


@pytest.mark.parametrize("dtype", DTYPES.split())
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4)], ids=str)
def test_dtypes_and_shapes(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(np.dtype(dtype))
    save(tmp_path / "a", {"x": array})
    restored = restore(tmp_path / "a", {"x": np.empty(shape, np.dtype(dtype))})
    assert_same(restored, {"x": array})
    assert_same(restore(tmp_path / "a"), {"x": array})


@pytest.mark.parametrize(
    "value",
    [
        *(True, 0, -7, 2**63 - 1, 2**64, -(2**200), 0.1, float("inf"), 1e-320, 3 - 4j),
        *("", "naïve ✓", None, (), [], {}, [[], {}, ()]),
    ],
    ids=repr,
)
def test_values(tmp_path: Path, value: Any) -> None:
    save(tmp_path / "a", {"x": value, "y": np.ones(1)})
    assert_same(restore(tmp_path / "a", {"x": value, "y": np.ones(1)})["x"], value)


def test_nan_keeps_its_bits(tmp_path: Path) -> None:
    array = np.array([0x7FC00001, 0xFFC00000, 0x80000000], np.uint32).view(np.float32)
    save(tmp_path / "a", [array])
    assert_same(restore(tmp_path / "a", [array]), [array])


@pytest.mark.parametrize("value", [5, np.ones(3), "text"], ids=repr)
def test_a_tree_may_be_one_leaf(tmp_path: Path, value: Any) -> None:
    save(tmp_path / "a", value)
    assert_same(restore(tmp_path / "a", value), value)


def test_layouts_in_memory_do_not_matter(tmp_path: Path) -> None:
    base = np.arange(24.0).reshape(4, 6)
    value = {
        "t": base.T,
        "s": base[::2, 1::2],
        "r": base[::-1],
        "b": base.astype(">f8"),
    }
    save(tmp_path / "a", value)
    expected = {
        k: np.ascontiguousarray(v, v.dtype.newbyteorder("=")) for k, v in value.items()
    }
    assert_same(restore(tmp_path / "a", value), expected)


def test_keys_that_would_collide_stay_apart(tmp_path: Path) -> None:
    value = {"a": {"b": 0, "": 1}, "a.b": 2, "a%2Eb": 3, "a/b": 4, "": {"x": 5}, "é": 6}
    save(tmp_path / "a", value)
    assert restore(tmp_path / "a") == value
    assert restore(tmp_path / "a", value) == value


def test_integer_keys(tmp_path: Path) -> None:
    value = {10: np.ones(1), 2: np.zeros(2)}
    save(tmp_path / "a", value)
    assert_same(restore(tmp_path / "a", value), value)
    assert list(restore(tmp_path / "a")) == ["2", "10"]


@pytest.mark.parametrize(("chunk", "most"), [(40, 1), (100, 1000), (999, 150)])
def test_many_chunks(tmp_path: Path, chunk: int, most: int) -> None:
    value = {str(i): np.arange(3 * 5 * i).reshape(3, 1, 5, i) for i in range(1, 9, 2)}
    how = {"chunk_bytes": chunk, "max_bytes_in_flight": most}
    save(tmp_path / "a", value, **how)
    found = restore(tmp_path / "a", value, max_bytes_in_flight=most)
    assert_same(found, value)


def test_weak_arrays_stay_weak(tmp_path: Path) -> None:
    from treadle.arraytype import of_scalar

    value = {"x": Array(np.array(2.0, np.float32), of_scalar(1.0))}
    save(tmp_path / "a", value)
    assert restore(tmp_path / "a", value)["x"].type.weak
    assert restore(tmp_path / "a")["x"].type.weak


def test_a_number_that_became_an_array_fits(tmp_path: Path) -> None:
    save(tmp_path / "a", {"step": np.array(5, np.int32), "rate": 0.5})
    restored = restore(tmp_path / "a", {"step": 0, "rate": np.float32(0)})
    assert restored["step"].dtype == np.int32
    assert type(restored["rate"]) is float


def test_async_copies_before_it_returns(tmp_path: Path) -> None:
    array = np.zeros(1 << 20)
    saving = save_async(tmp_path / "a", {"x": array})
    array += 1
    saving.wait()
    assert saving.done()
    assert not restore(tmp_path / "a", {"x": array})["x"].any()


def test_overwrite(tmp_path: Path) -> None:
    save(tmp_path / "a", {"x": 1})
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save(tmp_path / "a", {"x": 2})
    save(tmp_path / "a", {"x": 2}, overwrite=True)
    assert restore(tmp_path / "a") == {"x": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_overwrite_replaces_checkpoints_only(tmp_path: Path) -> None:
    (tmp_path / "home" / "thesis").mkdir(parents=True)
    with pytest.raises(FileExistsError, match="not a checkpoint"):
        save(tmp_path / "home", {"x": 1}, overwrite=True)


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saving = save_async("deep/er", {"x": 1})
    monkeypatch.chdir(tmp_path.parent)
    saving.wait()
    assert restore(tmp_path / "deep" / "er") == {"x": 1}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [object()]}, r"leaf a\.0: it is a object"),
        ({"a": np.array(["x"])}, r"leaf a: arrays of dtype <U1"),
        ({"a": {(1, 2): 3}}, r"\['a'\]: its key \(1, 2\) is a tuple"),
    ],
    ids=["object", "dtype", "key"],
)
def test_what_cannot_be_saved_is_named(
    tmp_path: Path, value: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        save(tmp_path / "a", value)
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> None:
        raise OSError("No space left on device")

    save(tmp_path / "a", {"x": 1})
    monkeypatch.setattr(store, "write", full)
    saving = save_async(tmp_path / "a", {"x": 2}, overwrite=True)
    with pytest.raises(OSError, match="No space"):
        saving.wait()
    assert "No space" in caplog.text
    assert restore(tmp_path / "a") == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_describe(tmp_path: Path) -> None:
    save(tmp_path / "a", training_state())
    found = describe(tmp_path / "a")
    assert found["model.0.weight"] == "float32[4,3]"
    assert found["step"] == "Python int"
    assert found["empty"] == "int8[0,5]"


NUMBERS = st.booleans() | st.integers() | st.floats() | st.complex_numbers()
ARRAYS = hnp.arrays(
    st.sampled_from(DTYPES.split()).map(np.dtype)
    | hnp.floating_dtypes(sizes=(32, 64), endianness="="),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=st.integers(0, 100),
)
TREES = st.recursive(
    NUMBERS | st.text(max_size=5) | ARRAYS | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.dictionaries(st.integers(-5, 50), inner, max_size=3)
        | st.builds(Moments, inner, inner)
        | st.builds(Layer, inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=20)
@given(TREES)
def test_random_trees(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    saved_and_restored(tmp_path_factory, value)


@pytest.mark.slow
@settings(max_examples=200)
@given(TREES)
def test_many_trees(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    saved_and_restored(tmp_path_factory, value)


def saved_and_restored(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("random")
    save(folder / "a", value)
    assert_same(restore(folder / "a", value), value)
    restore(folder / "a")


def test_a_link_to_a_checkpoint_is_followed(tmp_path: Path) -> None:
    save(tmp_path / "a", {"x": 1})
    (tmp_path / "link").symlink_to("a")
    save(tmp_path / "link", {"x": 2}, overwrite=True)
    assert restore(tmp_path / "a") == restore(tmp_path / "link") == {"x": 2}
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "ahead").symlink_to("b")
    save(tmp_path / "ahead", {"x": 3})
    assert restore(tmp_path / "b") == {"x": 3}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "ahead", "b", "link"]


def test_names_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    save(tmp_path / "a", {"a.b": 1, "a": {"b": 1.0, "": "x"}, "\n": 2})
    assert describe(tmp_path / "a") == {
        "'\\n'": "Python int",
        "a.''": "Python str",
        "a.b": "Python float",
        "'a.b'": "Python int",
    }


def test_a_checkpoint_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a", {"x": np.zeros(3)})
    read = store.read

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(store, "read", read)
        save(tmp_path / "a", {"x": np.ones(3)}, overwrite=True)
        return read(*args)

    monkeypatch.setattr(store, "read", slow)
    assert_same(restore(tmp_path / "a"), {"x": td.numpy.ones(3, np.float64)})


@pytest.mark.parametrize("overwrite", [False, True])
def test_another_process_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    rename = os.rename

    def late(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        save(target, {"x": 1})
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    if overwrite:
        save(tmp_path / "a", {"x": 2}, overwrite=True)
    else:
        with pytest.raises(FileExistsError, match="overwrite=True"):
            save(tmp_path / "a", {"x": 2})
    assert restore(tmp_path / "a") == {"x": 1 + overwrite}
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


RESTORES = """
import resource, sys
import numpy as np
from treadle import ShapeDtype
from treadle.checkpoint import restore

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

restore(sys.argv[1] + "/small")
before = most()
like = {"x": ShapeDtype((96, 1 << 18), "float16")}
found = restore(sys.argv[1] + "/large", like, cast=True, max_bytes_in_flight=4 << 20)
print(most() - before - found["x"].nbytes)
"""


def test_a_large_array_is_read_in_the_memory_that_is_allowed(tmp_path: Path) -> None:
    large = np.ones((96, 1 << 18), np.float32)
    save(tmp_path / "small", {"x": large[:4]}, chunk_bytes=1 << 20)
    save(tmp_path / "large", {"x": large}, chunk_bytes=1 << 20)
    command = [sys.executable, "-c", RESTORES, str(tmp_path)]
    beyond = int(subprocess.run(command, capture_output=True, check=True).stdout)
    # Whole, it would take its 96 MiB as it was saved.
    assert beyond < large.nbytes // 2


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_damage_in_any_piece_is_found(tmp_path: Path, dtype: type) -> None:
    value = {"x": np.arange(64 * 512, dtype=np.float32).reshape(4, 16, 512)}
    save(tmp_path / "a", value, chunk_bytes=1 << 12)
    like = {"x": np.zeros((4, 16, 512), dtype)}
    how: Any = {"max_bytes_in_flight": 1 << 14, "cast": True}
    found = restore(tmp_path / "a", like, **how)["x"]
    np.testing.assert_array_equal(found, value["x"].astype(dtype))
    spec = store._spec(str(tmp_path / "a"), "x")
    opened = ts.open(spec, open=True).result()
    opened[3, 9, 77].write(np.float32(-1)).result()
    with pytest.raises(DamagedError, match=r"'x'.*checksum does not match"):
        restore(tmp_path / "a", like, **how)
