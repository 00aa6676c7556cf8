"""Arrays from numbers, lists, ranges; the dtypes that they get."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import Case, check

CASES = [
    Case("zeros", lambda np: np.zeros((2, 3)), ()),
    Case("ones", lambda np: np.ones(4, "int32"), ()),
    Case("full", lambda np: np.full((2, 3), 7), ()),
    Case("full-float", lambda np: np.full((2,), 1.5), ()),
    Case("full-broadcast", lambda np: np.full((2, 3), np.arange(3)), ()),
    Case("logspace", lambda np: np.logspace(-1, 2, 5), (), 16),
    Case("indices", lambda np: np.indices((2, 3)), ()),
    Case("diag_indices", lambda np: np.diag_indices(3), ()),
    Case("astype", lambda np: np.astype(np.arange(3), "float32"), ()),
    Case("arange", lambda np: np.arange(5), ()),
    Case("arange-range", lambda np: np.arange(2, 11, 3), ()),
    Case("arange-down", lambda np: np.arange(5, -3, -2), ()),
    Case("arange-float", lambda np: np.arange(0, 2, 0.25), ()),
    Case("arange-dtype", lambda np: np.arange(4, dtype="bfloat16"), ()),
    Case("arange-empty", lambda np: np.arange(5, 2), ()),
    Case("linspace", lambda np: np.linspace(-1, 2, 7), ()),
    Case("linspace-open", lambda np: np.linspace(0, 1, 5, endpoint=False), ()),
    Case("linspace-one", lambda np: np.linspace(3, 4, 1), ()),
    Case("eye", lambda np: np.eye(3), ()),
    Case("eye-off", lambda np: np.eye(3, 5, 1, dtype="int32"), ()),
    Case("identity", lambda np: np.identity(3), ()),
    Case("tri", lambda np: np.tri(3, 4, -1), ()),
    Case("tril_indices", lambda np: np.tril_indices(4, -1), ()),
    Case("triu_indices", lambda np: np.triu_indices(4), ()),
    Case("list", lambda np: np.array([[1, 2], [3, 4]]), ()),
    Case("list-mixed", lambda np: np.array([1, 2.5]), ()),
    Case("list-bool", lambda np: np.array([True, False]), ()),
    Case("list-dtype", lambda np: np.array([1, 2], "float32"), ()),
    Case("empty-list", lambda np: np.array([]), ()),
    Case("array-ndmin", lambda np: np.array([1, 2], ndmin=3), ()),
    Case("array-ndmin-less", lambda np: np.array([[1], [2]], ndmin=1), ()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_agrees(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
def test_like_a_type(name: str, dtype: str) -> None:
    made = getattr(tnp, name)
    like = td.ShapeDtype((2, 3), dtype)
    wanted = getattr(jnp, name)(jax.ShapeDtypeStruct((2, 3), dtype))
    for out in (made(like), td.jit(lambda: made(like))()):
        assert out.dtype == wanted.dtype
        np.testing.assert_array_equal(out, wanted)
    for module in (tnp, td.lax):
        assert module.full_like(like, 5).tolist() == [[5] * 3] * 2
    assert made(like, "int16", (4,)).type == td.ShapeDtype((4,), "int16")
    assert (tnp.shape(like), tnp.ndim(like), tnp.size(like, 1)) == ((2, 3), 2, 3)
    assert tnp.result_type(like, "float32") == jnp.result_type(wanted, "float32")
    assert tnp.iscomplexobj(like) is (dtype == "complex64") is not tnp.isrealobj(like)
    with pytest.raises(TypeError, match=f"{name} takes arrays, got a list"):
        made([1])
    with pytest.raises(
        TypeError, match=r"sin takes arrays, got a ShapeDtype(.|\n)*values"
    ):
        tnp.sin(like)


@pytest.mark.parametrize("make", [tnp.zeros_like, tnp.ones_like, tnp.empty_like])
def test_like(make: Any) -> None:
    x = tnp.array([[1, 2, 3]], "int8")
    assert make(x).shape == (1, 3) and make(x).dtype == tnp.int8
    assert make(x, dtype="float32", shape=(2,)).shape == (2,)
    assert tnp.full_like(x, 5).tolist() == [[5, 5, 5]]


@pytest.mark.parametrize(
    "value, dtype",
    [
        (1, "int32"),
        (1.0, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        (2**40, "int64"),
        ([1, 2.0], "float32"),
        (np.float64(1), "float32"),
        (np.array(1.0), "float64"),
        (np.arange(3), "int64"),
        (np.zeros(2, ml_dtypes.bfloat16), "bfloat16"),
        ([np.float64(1), 2], "float32"),
        ([np.zeros(2), np.ones(2)], "float64"),
        ([tnp.ones(2), tnp.zeros(2)], "float32"),
    ],
)
def test_the_dtype_that_you_give_is_the_dtype_that_you_get(
    value: Any, dtype: str
) -> None:
    assert tnp.array(value).dtype.name == dtype


def test_arrays_do_not_share_memory_with_what_they_are_made_of() -> None:
    source = np.zeros(3, np.float32)
    made = [tnp.array(source), tnp.asarray(source)]
    source[0] = 1
    assert all(x[0].item() == 0 for x in made)


def test_a_list_of_traced_values_is_stacked() -> None:
    found = td.jit(lambda a, b: tnp.array([[a, 1.0], [b, a * b]]))(2.0, 3.0)
    assert found.tolist() == [[2, 1], [3, 6]]


def test_a_scalar_argument_makes_weak_ranges() -> None:
    found = td.jit(lambda a: tnp.linspace(a, 2 * a, 3))(1.0)
    assert found.tolist() == [1, 1.5, 2]


def test_dlpack_both_ways_without_a_copy() -> None:
    theirs = jnp.arange(6.0).reshape(2, 3)
    x = tnp.from_dlpack(theirs)
    assert x.dtype == np.float32 and x.tolist() == theirs.tolist()
    assert x.address() == theirs.unsafe_buffer_pointer()
    back = np.from_dlpack(x)
    assert back.ctypes.data == x.address()
    turned = td.jit(lambda x: x + 1)(tnp.from_dlpack(np.asfortranarray(np.eye(2, 3))))
    assert turned.tolist() == [[2, 1, 1], [1, 2, 1]]


@pytest.mark.parametrize(
    "use, error, message",
    [
        (lambda: tnp.array([[1], [2, 3]]), ValueError, "inhomogeneous"),
        (lambda: tnp.array(["a"]), TypeError, "numbers, booleans and arrays"),
        (lambda: tnp.array("a"), TypeError, "takes arrays, got a str"),
        (lambda: tnp.zeros(3, "float7"), TypeError, "'float7' is not a dtype"),
        (lambda: tnp.zeros(-1), ValueError, "negative length"),
        (lambda: tnp.arange(0, 3, 0), ValueError, "step is 0"),
        (lambda: td.jit(tnp.arange)(3), TypeError, "arange: start must be a number"),
        (lambda: td.jit(tnp.zeros)(3), TypeError, "static argument"),
        (lambda: tnp.from_dlpack([1]), TypeError, "speaks DLPack, got list"),
    ],
)
def test_errors(use: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        use()


RANGES = [
    (np.linspace, (-1e153, 1e153, 5), "float64"),
    (np.linspace, (1e153, 3e153, 7), "float64"),
    (np.linspace, (-1e38, 1e38, 5), "float32"),
    (np.linspace, (-3, 3, 5), "int32"),
    (np.linspace, (0, 2**31 - 1, 3), "int32"),
    (np.linspace, (0, 1, 7), "float16"),
    (np.linspace, (0.1, 0.9, 50), "float64"),
    (np.logspace, (0, 300, 4), "float64"),
    (np.logspace, (-3, 3, 50), "float64"),
    (np.arange, (5, -2, -3), "int32"),
    (np.arange, (0, 1000, 1), "float16"),
]


@pytest.mark.parametrize(("function", "args", "dtype"), RANGES)
def test_ranges_have_the_digits_of_their_dtype(
    function: Any, args: tuple, dtype: str
) -> None:
    wanted = function(*args, dtype=dtype)
    ours = getattr(tnp, function.__name__)
    eps = 0 if np.dtype(dtype).kind == "i" else 16 * np.finfo(dtype).eps
    for f in (ours, td.jit(lambda: ours(*args, dtype=dtype))):
        found = np.asarray(f(*args, dtype=dtype) if f is ours else f())
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=eps)


def test_the_length_of_a_range_of_long_integers_is_exact() -> None:
    """NumPy divides them as floats."""
    args = 0, 2**62, 2**62 - 1
    assert tnp.arange(*args).tolist() == list(range(*args))


def test_linspace_does_not_overflow_on_the_way() -> None:
    """NumPy's does: stop - start is beyond the largest number."""
    found = tnp.linspace(np.array(-1.5e308), np.array(1.5e308), 5)
    np.testing.assert_array_equal(found, [-1.5e308, -7.5e307, 0, 7.5e307, 1.5e308])


def test_norms_of_halves() -> None:
    x = tnp.array([300.0, 400.0], tnp.float16)
    for f in (tnp.linalg.norm, td.jit(tnp.linalg.norm)):
        found = f(x)
        assert found.dtype == tnp.float16 and float(found) == 500


def test_dlpack_for_a_receiver_that_knows_no_read_only_memory() -> None:
    """Protocols before 1.0 can't say so: it gets a copy. Others share the memory."""
    given = np.arange(3.0)
    given.flags.writeable = False
    x = tnp.from_dlpack(given)

    class Old:
        def __dlpack__(self, **options: Any) -> Any:
            return x.__dlpack__()

        def __dlpack_device__(self) -> Any:
            return x.__dlpack_device__()

    copied = np.from_dlpack(Old())
    np.testing.assert_array_equal(copied, given)
    assert not np.shares_memory(copied, given)
    assert np.shares_memory(np.from_dlpack(x), given)
    with pytest.raises(BufferError):
        x.__dlpack__(copy=False)


@pytest.mark.parametrize(
    "use",
    [
        tnp.array,
        tnp.sin,
        lambda x: tnp.add(tnp.ones(2), x),
        lambda x: tnp.ones(2) * x,
        lambda x: tnp.array([x, x]),
        lambda x: tnp.array([x, x], "float32"),
        td.jit(lambda x: x + 1),
        td.grad(lambda x: x.sum()),
        td.vmap(lambda x: x),
        lambda x: td.jit(lambda y: y + x)(tnp.ones(2)),
    ],
)
def test_masks_are_not_lost_silently(use: Any) -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    with pytest.raises(TypeError, match=r"mask would be lost[\s\S]*x\.filled"):
        use(masked)


def test_numbers_of_numpy_keep_their_digits() -> None:
    for x in (np.sqrt(0.5), np.array(0.1), np.array([0.1, 2.3])):
        found = tnp.asarray(x, tnp.float64)
        assert found.dtype == tnp.float64
        np.testing.assert_array_equal(found, x)
