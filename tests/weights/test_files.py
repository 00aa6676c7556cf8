"""Files of weights: against the safetensors package, NumPy, and damage."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

import treadle.numpy as tnp
from treadle import nn, rng, weights

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32"
DTYPES += " float64 complex64 bfloat16"


def some(dtype):
    """Arrays of a dtype: of two axes, of none, and without elements."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.arange(6).reshape(2, 3).astype(dtype)
    return {"matrix": values, "scalar": values[1, 2], "none": values[:0]}


def same(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert found[name].tobytes() == np.asarray(value).tobytes()


@pytest.mark.parametrize("dtype", DTYPES.split())
def test_safetensors_are_the_packages(dtype, tmp_path):
    arrays = {k: np.asarray(v) for k, v in some(dtype).items()}
    save_file(arrays, tmp_path / "theirs.safetensors", {"made": "there"})
    same(weights.load(tmp_path / "theirs.safetensors"), arrays)
    assert weights.metadata(tmp_path / "theirs.safetensors") == {"made": "there"}
    ours = tmp_path / "ours.safetensors"
    weights.save(ours, arrays, metadata={"made": "here"})
    same(load_file(ours), arrays)
    with safetensors.safe_open(ours, "np") as file:
        assert file.metadata() == {"made": "here"}


def test_a_model_keeps_its_values(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4, key=rng.key(0)), nn.BatchNorm(4), nn.relu)
    path = tmp_path / "model.safetensors"
    weights.save(path, model)
    file = load_file(path)
    assert set(file) == {
        *("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"),
        *("layers.1.mean.value", "layers.1.var.value"),
    }
    other = nn.Sequential(nn.Linear(3, 4, key=rng.key(1)), nn.BatchNorm(4), nn.relu)
    x = rng.normal(rng.key(2), (5, 3))
    loaded = weights.into(other, weights.load(path))
    found, expected = (nn.inference(m)(x) for m in (loaded, model))
    np.testing.assert_array_equal(found, expected)


def test_arrays_are_mapped_and_outlive_a_new_file_of_the_name(tmp_path):
    path = tmp_path / "x.safetensors"
    weights.save(path, {"x": np.arange(1000.0)})
    x = weights.load(path)["x"]
    assert not x.flags.writeable and not x.flags.owndata
    weights.save(path, {"x": x + 1})
    assert x[1] == 1 and weights.load(path)["x"][1] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["x.safetensors"]


def test_views_are_written_in_their_own_order(tmp_path):
    x = np.arange(6.0).reshape(2, 3)
    weights.save(tmp_path / "x.safetensors", {"x": x.T, "y": x[:, ::-1]})
    same(load_file(tmp_path / "x.safetensors"), {"x": x.T, "y": x[:, ::-1]})


def test_folders_of_several_files(tmp_path):
    arrays = {f"x{i}": np.full(100, i, np.float32) for i in range(5)}
    weights.save(tmp_path / "model", arrays, shard_bytes=1000)
    index = json.loads((tmp_path / "model/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2000
    assert len(set(index["weight_map"].values())) == 3
    for name, file in index["weight_map"].items():
        np.testing.assert_array_equal(
            load_file(tmp_path / "model" / file)[name], arrays[name]
        )
    same(weights.load(tmp_path / "model"), arrays)
    fewer = {"x0": arrays["x1"]}
    weights.save(tmp_path / "model", fewer)
    same(weights.load(tmp_path / "model"), fewer)


def test_npz(tmp_path):
    arrays = {"a.b": np.arange(3), "c": np.ones((2, 2), np.complex128)}
    np.savez(tmp_path / "theirs.npz", **arrays)
    same(weights.load(tmp_path / "theirs.npz"), arrays)
    weights.save(tmp_path / "ours.npz", arrays)
    same(dict(np.load(tmp_path / "ours.npz")), arrays)
    with pytest.raises(TypeError, match="bfloat16, which `half` has; safetensors can"):
        weights.save(tmp_path / "half.npz", {"half": tnp.ones(2, tnp.bfloat16)})
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    with pytest.raises(ValueError, match="`x` is not an array"):
        weights.load(tmp_path / "objects.npz")


def test_what_a_format_lacks(tmp_path):
    with pytest.raises(TypeError, match=r"`z` has\nSave complex128 as two arrays"):
        weights.save(tmp_path / "z.safetensors", {"z": np.ones(2, complex)})
    with pytest.raises(TypeError, match="metadata are strings by strings, got 'epoch'"):
        weights.save(tmp_path / "z.safetensors", {}, metadata={"epoch": 3})
    with pytest.raises(ValueError, match=r"ends in none of .safetensors, .npz"):
        weights.save(tmp_path / "model.pt", {})
    with pytest.raises(FileNotFoundError, match="has no weights: it is empty"):
        weights.load(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ValueError, match="is of no known format: it begins with b'hel"):
        weights.load(tmp_path / "text")


HEADER = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


def written(path, header, data=bytes(8)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{not json", "its header is not JSON"),
        ({"x": {"dtype": "F32", "shape": [2]}}, "the entry of `x` is"),
        ({"x": HEADER["x"] | {"shape": [3]}}, r"F32\[3\], takes 12 bytes and has 8"),
        ({"x": HEADER["x"] | {"shape": [-2]}}, "the entry of `x` is"),
        ({"x": HEADER["x"] | {"dtype": "F4"}}, "of dtype F4, which NumPy has not"),
        (HEADER | {"y": HEADER["x"]}, "`y` begins at 0, not at 8"),
        ({"x": HEADER["x"] | {"data_offsets": [8, 16]}}, "`x` begins at 8, not at 0"),
        (HEADER | {"__metadata__": 3}, "its __metadata__ is not a dict"),
    ],
)
def test_damaged_headers(header, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        weights.load(written(tmp_path / "x.safetensors", header))


@pytest.mark.parametrize("length", [0x80, 0x4B50])
def test_headers_whose_length_reads_as_another_format(length, tmp_path):
    """A pickle begins with the byte 80, an archive with PK, which is 4B50."""
    header = b'{"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}'
    whole = length.to_bytes(8, "little") + header.ljust(length) + b"\x05\x06"
    (tmp_path / "a.safetensors").write_bytes(whole)
    assert weights.load(tmp_path / "a.safetensors")["a"].tolist() == [5, 6]


def test_cut_files(tmp_path):
    path = written(tmp_path / "x.safetensors", HEADER)
    np.testing.assert_array_equal(weights.load(path)["x"], [0, 0])
    whole = path.read_bytes()
    for length in (0, 5, 20, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            weights.load(path)
    path.write_bytes(whole + b"0")
    with pytest.raises(ValueError, match="its arrays take 8 bytes, and it has 9"):
        weights.load(path)


def test_an_index_stays_in_its_folder(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../x.safetensors"}}))
    with pytest.raises(ValueError, match="in another folder"):
        weights.load(tmp_path)
    weights.save(tmp_path / "a.safetensors", {"y": np.ones(1)})
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
    with pytest.raises(ValueError, match=r"says that `x` is in a.safetensors; it is"):
        weights.load(tmp_path)
