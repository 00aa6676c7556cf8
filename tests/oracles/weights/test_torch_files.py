"""Files that PyTorch wrote, read without it."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import safetensors.torch
import torch

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng, weights

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64"
DTYPES += " complex64 complex128 uint16 uint32 uint64"


def same(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        value = value.detach()
        assert found[name].dtype.name == str(value.dtype).removeprefix("torch.")
        assert found[name].shape == tuple(value.shape), name
        if value.dtype == torch.bfloat16:
            value = value.float()
            found = found | {name: found[name].astype(np.float32)}
        np.testing.assert_array_equal(found[name], value.numpy(), err_msg=name)


def tensors():
    base = torch.arange(60.0).reshape(3, 4, 5)
    return OrderedDict(
        base=base,
        transposed=base.transpose(0, 2),
        strided=base[1:, ::2, 1::3],
        offset=base[2, 3],
        expanded=base[0, :, :1].expand(4, 7),
        scalar=torch.tensor(3.5),
        none=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(torch.ones(2)),
        shared=torch.nn.Parameter(base[0]),
        **{d: torch.arange(4).to(getattr(torch, d)) for d in DTYPES.split()},
    )


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def save(request, tmp_path):
    def save(value):
        torch.save(
            value, tmp_path / "x.pt", _use_new_zipfile_serialization=request.param
        )
        return tmp_path / "x.pt"

    return save


def test_every_kind_of_tensor(save):
    found = weights.load(save(tensors()))
    same(found, tensors())
    assert not found["base"].flags.writeable
    assert np.shares_memory(found["base"], found["strided"])


def test_untyped_storages(tmp_path):
    unsigned = {
        "uint16": torch.arange(4).to(torch.uint16)[1:],
        "uint64": torch.arange(4).to(torch.uint64),
    }
    torch.save(unsigned, tmp_path / "x.pt")
    same(weights.load(tmp_path / "x.pt"), unsigned)


def test_a_module_and_its_training_state(save):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    path = save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epoch": 3,
            "shape": torch.Size([2, 3]),
            "dtype": torch.float16,
            "device": torch.device("cpu"),
            "note": ("text", None, [1.5]),
        }
    )
    found = weights.load(path)
    same(
        {k.removeprefix("model."): v for k, v in found.items() if k[:6] == "model."},
        model.state_dict(),
    )
    moments = optimizer.state_dict()["state"][0]["exp_avg"]
    np.testing.assert_array_equal(found["optimizer.state.0.exp_avg"], moments)


def test_a_model_of_pytorch_runs_here(save):
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.BatchNorm2d(3)
    )
    with torch.no_grad():
        theirs(torch.randn(4, 2, 5, 5))
    ours = nn.Sequential(nn.Conv2d(2, 3, 3, key=rng.key(0)), nn.BatchNorm(3))
    rules = [
        weights.Rule("{i}.running_mean", "layers.{i}.mean.value"),
        weights.Rule("{i}.running_var", "layers.{i}.var.value"),
        weights.Rule("{i}.num_batches_tracked", None),
        weights.Rule("{i}.{leaf}", "layers.{i}.{leaf}", weights.TORCH),
    ]
    ours = weights.into(ours, weights.load(save(theirs.state_dict())), rules)
    x = torch.randn(2, 2, 6, 7)
    expected = theirs.eval()(x).detach().numpy()
    found = nn.inference(ours)(tnp.asarray(np.moveaxis(x.numpy(), 1, -1)))
    np.testing.assert_allclose(np.moveaxis(found, -1, 1), expected, 1e-5, 1e-5)


def test_what_we_write_pytorch_loads(tmp_path):
    ours = nn.MLP((3, 8, 2), key=rng.key(0))
    names = [weights.Rule("{i}.{leaf}", "layers.{i}.{leaf}", weights.TORCH)]
    weights.save(tmp_path / "x.safetensors", weights.of(ours, names))
    theirs = torch.nn.ModuleList([torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)])
    theirs.load_state_dict(safetensors.torch.load_file(tmp_path / "x.safetensors"))
    x = torch.randn(5, 3)
    expected = theirs[1](torch.relu(theirs[0](x))).detach().numpy()
    np.testing.assert_allclose(td.jit(ours)(x.numpy()), expected, 1e-5, 1e-5)


def test_bfloat16_goes_both_ways(tmp_path):
    values = {"x": torch.randn(3, 4).bfloat16()}
    safetensors.torch.save_file(values, tmp_path / "x.safetensors")
    same(weights.load(tmp_path / "x.safetensors"), values)
    weights.save(tmp_path / "y.safetensors", weights.load(tmp_path / "x.safetensors"))
    back = safetensors.torch.load_file(tmp_path / "y.safetensors")
    assert torch.equal(back["x"], values["x"])


def test_a_whole_module_is_refused_by_its_class(save):
    with pytest.raises(ValueError, match=r"refers to `torch.nn.modules.linear.Linear`"):
        weights.load(save(torch.nn.Linear(2, 3)))


def test_damaged_files(save):
    path = save({"x": torch.ones(1000)})
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"x\.pt"):
        weights.load(path)


def test_files_with_wrong_bytes_give_values_or_a_clear_error(save):
    """Nothing but a ValueError leaves `load`, whatever the bytes are."""
    path = save({"model": tensors(), "epoch": 3})
    whole, draw = path.read_bytes(), np.random.default_rng(0)
    failed = 0
    for _ in range(300):
        wrong = bytearray(whole)
        for place in draw.integers(0, len(wrong) // draw.integers(1, 9), 3):
            wrong[place] = draw.integers(256)
        path.write_bytes(wrong)
        try:
            weights.load(path)
        except ValueError as error:
            failed += 1
            assert str(path) in str(error)
    assert 100 < failed < 300
