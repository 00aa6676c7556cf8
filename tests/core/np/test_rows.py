"""Rows for functions that no other table has; and every public function has one."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp

TESTS = Path(__file__).parents[2]
ROOMS = "core/np core/lax core/scipy core/transforms core/control nn oracles rng"
NO_ORACLE = ("dynamic_sizes", "nn/sizes", "test_absent", "test_parity", "test_import")
MODULES = """
    numpy numpy.linalg numpy.fft lax nn rng image scipy.special scipy.stats scipy.signal
    scipy.fft scipy.ndimage scipy.linalg scipy.optimize scipy.sparse.linalg
    scipy.integrate scipy.interpolate scipy.cluster.vq scipy.spatial.transform
"""
X = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
CHAIN = ("ij,jk,kl->il", np.ones((2, 3)), np.ones((3, 4)), np.ones((4, 2)))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("ix_", ([0, 2], [1, 3, 3])),
        ("ix_", (np.array([True, False, True]), [1])),
        ("einsum_path", CHAIN),
        ("iterable", (1,)),
        ("iterable", (X,)),
        ("iterable", (X[0, 0],)),
        ("get_printoptions", ()),
    ],
)
def test_what_is_about_python_values_is_numpys(name: str, args: tuple) -> None:
    found, wanted = getattr(tnp, name)(*args), getattr(np, name)(*args)
    if name != "ix_":
        assert found == wanted
        return
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(f, w)
        assert f.shape == w.shape


@pytest.mark.parametrize("k", [-1, 0, 1])
@pytest.mark.parametrize("part", ["tril", "triu"])
def test_mask_indices(part: str, k: int) -> None:
    found = tnp.mask_indices(5, getattr(tnp, part), k)
    np.testing.assert_array_equal(found, np.mask_indices(5, getattr(np, part), k))


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("k", [0, 3, -1])
def test_argpartition(k: int, axis: int | None) -> None:
    for f in (tnp.argpartition, td.jit(tnp.argpartition, static=("kth", "axis"))):
        found = np.asarray(f(X, kth=k, axis=axis))
        flat, along = (X.reshape(-1), 0) if axis is None else (X, axis)
        parted = np.moveaxis(np.take_along_axis(flat, found, along), along, 0)
        wanted = np.moveaxis(np.partition(flat, k, along), along, 0)
        np.testing.assert_array_equal(parted[k], wanted[k])
        assert (parted[:k] <= parted[k]).all()
        every = np.sort(np.moveaxis(found, along, 0), 0)
        assert (np.arange(len(every)) == every.T).all()


def test_print_options_are_set() -> None:
    before = np.get_printoptions()
    try:
        tnp.set_printoptions(precision=2)
        assert np.get_printoptions()["precision"] == 2
        assert str(tnp.asarray(np.float32([0.12345]))) == str(np.float32([0.12345]))
    finally:
        np.set_printoptions(**before)


def test_aliases() -> None:
    assert tnp.amin is tnp.min and tnp.true_divide is tnp.divide
    for name in ("cdouble", "csingle", "character", "flexible"):
        assert getattr(tnp, name) == getattr(np, name)
    for name in ("float_", "int_", "uint", "complex_"):
        wanted = jax.dtypes.canonicalize_dtype(getattr(jnp, name))
        assert getattr(tnp, name) == wanted


@pytest.mark.parametrize("shapes", [((), (3,)), ((2,), (2, 2))], ids=str)
def test_outer_products_of_vectors_alone(shapes: Any) -> None:
    found = td.jit(tnp.linalg.outer)(X[0], X[:, 0])
    np.testing.assert_array_equal(found, np.linalg.outer(X[0], X[:, 0]))
    args = [np.ones(shape, np.float32) for shape in shapes]
    with pytest.raises(ValueError):
        np.linalg.outer(*args)
    for f in (tnp.linalg.outer, td.jit(tnp.linalg.outer)):
        with pytest.raises(ValueError, match=r"linalg\.outer takes vectors, got f32"):
            f(*args)


PLACES = [None, ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NHWC")]


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID"])
def test_padtype_to_pads(padding: str) -> None:
    args = ((5, 6, 7), (2, 3, 8), (1, 2, 3), padding)
    assert td.lax.padtype_to_pads(*args) == jax.lax.padtype_to_pads(*args)


@pytest.mark.parametrize("places", PLACES, ids=str)
def test_conv_dimension_numbers(places: Any) -> None:
    args = ((1, 2, 3, 4), (5, 6, 7, 8), places)
    found = td.lax.conv_dimension_numbers(*args)
    wanted = jax.lax.conv_dimension_numbers(*args)
    assert isinstance(found, td.lax.ConvDimensionNumbers)
    assert found._asdict() == dict(
        zip(("lhs_spec", "rhs_spec", "out_spec"), wanted, strict=True)
    )


# Every name has a row -----------------------------------------------------------------


def _named() -> set[str]:
    """What tests with an oracle name: as attributes, or as words of strings."""
    texts = [
        path.read_text()
        for room in (*ROOMS.split(), ".")
        for path in (TESTS / room).glob("*.py" if room == "." else "**/*.py")
        if not any(part in path.as_posix() for part in NO_ORACLE)
    ]
    texts += [p.read_text() for p in (TESTS / "core").glob("*.py")]
    return set(
        re.findall(r"(?<=[.\"' (,])\w+(?=[\"' (,.)\]:]|$)", "\n".join(texts), re.M)
    )


NAMED = _named()


@pytest.mark.parametrize("name", MODULES.split())
def test_every_public_function_has_a_row(name: str) -> None:
    module = import_module(f"treadle.{name}")
    names = getattr(module, "__all__", None) or dir(module)
    missing = [
        n
        for n in names
        if _ours(getattr(module, n)) and not n.startswith("_") and not _has_row(n)
    ]
    assert not missing, f"no test compares {missing} of treadle.{name} with an oracle"


def _ours(value: Any) -> bool:
    """Whether it computes: neither a module, a dtype, the type of a result, nor what a
    module has imported for its errors."""
    home = str(getattr(value, "__module__", "treadle"))
    result = isinstance(value, type) and issubclass(value, tuple)
    of_errors = home == "treadle.errors"
    return (
        callable(value) and home.startswith("treadle") and not result and not of_errors
    )


def _has_row(name: str) -> bool:
    """Families are written with their rank left out, as in ``f"{kind}{rank}d"``."""
    return name in NAMED or re.sub(r"[123]d$", "", name) in NAMED
