"""Compiled complex numbers: values, special values, derivatives, loops, the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import treadle as td
import treadle.numpy as tnp
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import stages
from treadle.ops.complex import complex_
from treadle.plan.steps import HostStep
from treadle.run.explain import walk

INF, NAN = np.inf, np.nan
NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.0,
    3.0,
    INF,
    -INF,
    NAN,
    1e-30,
    -1e-3,
    1e30,
    88.9,
)
ONE = (
    *("abs", "sign", "exp", "exp2", "expm1", "log", "sqrt", "square", "sinh", "cosh"),
    *("tanh", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "arcsinh", "arccosh"),
    *("arctanh", "reciprocal", "angle", "log2", "log10", "negative", "conj"),
)
TWO = (
    *("add", "subtract", "multiply", "divide", "equal", "not_equal", "less"),
    *("less_equal", "greater", "greater_equal", "maximum", "minimum"),
)


def numbers(dtype: str) -> np.ndarray:
    z = np.empty(len(NUMBERS) ** 2, dtype)
    z.real = np.repeat(NUMBERS, len(NUMBERS))
    z.imag = np.tile(NUMBERS, len(NUMBERS))
    return z


def same(found: Any, wanted: Any) -> None:
    """Parts agree to rounding of the whole; special ones and signs of zeros exactly."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    if wanted.dtype == bool:
        np.testing.assert_array_equal(found, wanted)
        return
    single = wanted.dtype in (np.float32, np.complex64)
    eps = 4e-6 if single else 1e-14
    least = 1e-36 if single else 1e-300
    with np.errstate(all="ignore"):
        size = np.abs(wanted)
    names = ("real", "imag") if np.iscomplexobj(wanted) else ("real",)
    for name in names:
        a, b = getattr(found, name), getattr(wanted, name)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite])
        limit = eps * np.where(np.isfinite(size), size, np.abs(b)) + least
        assert (np.abs(a - b) <= limit)[finite].all()
        zero = (b == 0) & (a == 0)
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ONE)
def test_functions_have_the_special_values_of_numpy(name: str, dtype: str) -> None:
    function, z = getattr(tnp, name), numbers(dtype)
    with td.disable_jit():
        wanted = function(tnp.asarray(z))
    same(td.jit(function)(z), wanted)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", TWO)
def test_arithmetic_has_the_special_values_of_numpy(name: str) -> None:
    z = numbers("complex128")
    # Of what is out of range, fused products keep a part or the sign.
    sizes = np.abs(z)
    z = z[~(((sizes > 0) & (sizes < 1e-9)) | ((sizes > 1e9) & np.isfinite(sizes)))]
    z = z[(np.abs(z.real) != 1e-30) & (np.abs(z.imag) != 1e-30)]
    z = z[(np.abs(z.real) != 1e30) & (np.abs(z.imag) != 1e30)]
    x, y = np.repeat(z, len(z)), np.tile(z, len(z))
    same(td.jit(getattr(tnp, name))(x, y), getattr(np, name)(x, y))


def normal(*shape: int, seed: int = 0, dtype: str = "complex128") -> np.ndarray:
    r = np.random.default_rng(seed)
    return (r.normal(size=shape) + 1j * r.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_powers(dtype: str) -> None:
    x = normal(60, dtype=dtype)
    whole = np.arange(-5, 7).astype(dtype)
    tolerance = 2e-5 if dtype == "complex64" else 1e-13
    for a, b in ((x, normal(60, seed=1, dtype=dtype)), (x[:, None], whole)):
        found = np.asarray(td.jit(tnp.power)(a, b))
        np.testing.assert_allclose(found, np.power(a, b), rtol=tolerance)
    zero = np.zeros(1, dtype)
    for n in (0, 2, 0.5):
        same(td.jit(tnp.power)(zero, dtype_of(dtype, n)), zero ** dtype_of(dtype, n))


def dtype_of(dtype: str, number: float) -> np.ndarray:
    return np.full(1, number, dtype)


def roll(np_: Any, scan: Any, z: Any) -> Any:
    def step(z: Any, _: Any) -> Any:
        around = np_.roll(z, 1, 0) + np_.roll(z, -1, 1) - 2 * z
        z = z + 0.1j * around * np_.exp(-(np_.abs(z) ** 2))
        return z, np_.sum(z * np_.conj(z)).real

    return scan(step, z, None, length=5)


def choose(np_: Any, cond: Any, z: Any) -> Any:
    def other(z: Any) -> Any:
        return np_.stack([z.imag, z.real]).sum() * z

    return cond(np_.sum(z).real > 0, lambda z: z @ z.T, other, z)


def until(np_: Any, loop: Any, z: Any) -> Any:
    def test(s: Any) -> Any:
        return np_.sum(np_.abs(s)) > 1

    return loop(test, lambda s: s * (0.4 + 0.3j), z)


def places(np_: Any, z: Any) -> Any:
    i = np_.array([0, 2, 2, 1])
    return z[i], z.at[i].add(z[:4] * 2j), np_.where(z.real > 0, z, 1j), z[::-1, ::2]


def shapes(np_: Any, z: Any) -> Any:
    joined = np_.concatenate([z, z.conj() * 2], 1)
    padded = np_.pad(joined, ((1, 2), (0, 1)), constant_values=1 - 1j)
    return padded.T.reshape(-1), np_.cumsum(z, 0), np_.mean(z, 1), np_.stack([z, -z])


def products(np_: Any, z: Any) -> Any:
    gate = np_.stack([np_.stack([z[0, 0], z[1, 1] + 0]), np_.stack([z[0, 1], z[1, 0]])])
    states = np_.einsum("ab,xby->xay", gate, z.reshape(2, 2, -1))
    row, real = z[0] / 3, z.real
    return (
        z @ z.T,
        states,
        z @ z.conj().T @ real,
        np_.vdot(row, row),
        np_.outer(row, row),
    )


def ordered(np_: Any, z: Any) -> Any:
    order, inverse = np_.sort(z, 0), np_.linalg.inv(z @ z.conj().T + np_.eye(4))
    whole = np_.prod(z, 1) + 1, np_.prod(z[:3]), np_.max(z * 2j)
    return order * 2, inverse @ z, whole, np_.cumprod(z, 1)


def with_special_values(dtype: str) -> np.ndarray:
    parts = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]
    z = np.array([complex(a, b) for a in parts for b in parts] * 3, dtype)
    return np.random.default_rng(0).permutation(z).reshape(3, -1)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sorts_are_native(dtype: str, axis: int) -> None:
    for z in (with_special_values(dtype), normal(40, 30, dtype=dtype).round()):
        sort = td.jit(lambda z: tnp.sort(z, axis))
        found, wanted = np.asarray(sort(z)), np.sort(z, axis, kind="stable")
        np.testing.assert_array_equal(found.real, wanted.real)
        np.testing.assert_array_equal(found.imag, wanted.imag)
        assert "host" not in sort.explain(z)
        places = td.jit(lambda z: tnp.argsort(z, axis))(z)
        np.testing.assert_array_equal(places, np.argsort(z, axis, kind="stable"))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_extremes_are_native(name: str) -> None:
    special = with_special_values("complex64")
    # Of a row with no not-a-number, and of one that has them.
    few = special[:, ~np.isnan(special).any(0)]
    for z in (few, special, normal(30, 7, dtype="complex64").round()):
        for axis in (0, 1):
            f = td.jit(lambda z, axis=axis: getattr(tnp, name)(z, axis))
            np.testing.assert_array_equal(f(z), getattr(np, name)(z, axis))
            assert "host" not in f.explain(z)


def test_complex_numbers_are_sorted_beside_real_ones() -> None:
    z, x = normal(30).round(), np.arange(30) % 4
    for keys in ((x, z), (z, x)):
        for count in (1, 2):
            options = {"dimension": 0, "num_keys": count}
            found = td.jit(lambda *a, o=options: td.lax.sort(a, **o))(*keys)
            for a, b in zip(found, lax.sort(keys, **options), strict=True):
                np.testing.assert_array_equal(a, b)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "scan": (lambda z: roll(tnp, td.scan, z), lambda z: roll(jnp, lax.scan, z)),
    "cond": (lambda z: choose(tnp, td.cond, z), lambda z: choose(jnp, lax.cond, z)),
    "while": (
        lambda z: until(tnp, td.while_loop, z),
        lambda z: until(jnp, lax.while_loop, z),
    ),
    **{
        f.__name__: (lambda z, f=f: f(tnp, z), lambda z, f=f: f(jnp, z))
        for f in (places, shapes, products, ordered)
    },
}


def close(found: Any, wanted: Any, tolerance: float = 2e-4) -> None:
    for a, b in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("checked_by_reference")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_jax(name: str) -> None:
    ours, theirs = PROGRAMS[name]
    z = normal(4, 4, dtype="complex64")
    if name == "cond":
        close(td.jit(ours)(-z), theirs(jnp.asarray(-z)))
    close(td.jit(ours)(z), jax.jit(theirs)(jnp.asarray(z)))
    batch = np.stack([z, z * 0.5j, z + 1])
    close(td.jit(td.vmap(ours))(batch), jax.jit(jax.vmap(theirs))(batch))


@pytest.mark.parametrize("name", ["scan", "cond", "places", "shapes", "products"])
def test_gradients_agree_with_jax(name: str) -> None:
    def loss(f: Any, np_: Any, leaves: Any) -> Any:
        return lambda z: sum(np_.sum(np_.abs(x) ** 2) for x in leaves(f(z)))

    ours, theirs = PROGRAMS[name]
    first = td.grad(loss(ours, tnp, td.tree.leaves))
    wanted = jax.jit(jax.grad(loss(theirs, jnp, jax.tree.leaves)))
    z = normal(4, 4, dtype="complex64") * np.complex64(0.5)
    close(td.jit(first)(z), wanted(z), 1e-3)
    if name != "scan":
        second = td.grad(lambda z: tnp.sum(tnp.abs(first(z)) ** 2))
        expected = jax.jit(jax.grad(lambda z: jnp.sum(jnp.abs(wanted(z)) ** 2)))
        close(td.jit(second)(z), expected(z), 5e-3)


def test_holomorphic_derivatives_to_second_order() -> None:
    def f(np_: Any) -> Any:
        return lambda z: np_.sin(z * z) / (z + 2) + np_.log(z) * np_.sqrt(z) ** 3

    z = np.complex64(0.7 + 0.4j)
    twice = td.grad(td.grad(f(tnp), holomorphic=True), holomorphic=True)
    wanted = jax.jit(jax.grad(jax.grad(f(jnp), holomorphic=True), holomorphic=True))
    close(td.jit(twice)(z), wanted(z), 1e-4)


@pytest.mark.parametrize("name", ["scan", "while", "shapes"])
def test_sizes_may_vary(name: str) -> None:
    ours, theirs = PROGRAMS[name]
    function = td.jit(ours, dynamic=True) if name != "scan" else td.jit(ours)
    for n in (4, 6, 9):
        z = normal(n, n, seed=n, dtype="complex64")
        close(function(z), theirs(z))


def test_the_absolute_value_neither_overflows_nor_vanishes() -> None:
    z = np.complex64([3e38 + 1e38j, 3e-42 + 4e-42j, 1e-45j, 0])
    found = np.asarray(td.jit(tnp.abs)(z))
    np.testing.assert_allclose(found, np.abs(z), rtol=3e-7, atol=2e-45)


def test_the_logarithm_is_accurate_near_the_unit_circle() -> None:
    angles = np.linspace(0, 6, 50)
    z = (np.exp(1j * angles) * (1 + 1e-5)).astype("complex64")
    wanted = np.log(z.astype("complex128")).real
    found = np.asarray(td.jit(tnp.log)(z)).real
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_nothing_runs_on_the_host() -> None:
    def hosts(f: Callable[..., Any]) -> set[str]:
        graph = td.trace(f)(normal(4, 4, dtype="complex64"))
        steps = [s for _, s in walk(stages(graph, CPUTarget()).plan.steps)]
        return {s.call.op.name for s in steps if isinstance(s, HostStep)}

    names = ("scan", "cond", "while", "places", "shapes", "products", "ordered")
    for name in names:
        assert not hosts(PROGRAMS[name][0]), name
    assert not hosts(lambda z: z.at[z.real.argmax(0)].multiply(z))
    assert not hosts(td.grad(lambda z: tnp.abs(tnp.cumprod(z)).sum()))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_products(axis: int, reverse: bool) -> None:
    z = normal(3, 1, 4, dtype="complex64")

    def product(z: Any) -> Any:
        return td.lax.cumprod(z, axis, reverse)

    turned = np.flip(z, axis) if reverse else z
    wanted = np.cumprod(turned, axis)
    wanted = np.flip(wanted, axis) if reverse else wanted
    np.testing.assert_allclose(td.jit(product)(z), wanted, rtol=1e-5)
    batch = td.jit(td.vmap(product))(np.stack([z, z * 2]))
    np.testing.assert_allclose(batch[0], wanted, rtol=1e-5)

    def distance(z: Any) -> Any:
        return (tnp.abs(product(z) - 1) ** 2).sum()

    wanted = td.grad(distance)(tnp.asarray(z))  # without a compiler
    np.testing.assert_allclose(td.jit(td.grad(distance))(z), wanted, rtol=1e-4)


def test_a_running_product_begins_with_the_first_element() -> None:
    z = np.complex64([np.inf + 1j, 2])
    assert td.jit(tnp.cumprod)(z)[0] == z[0]
    nothing, one = np.zeros((2, 0), "complex64"), np.complex64([3j])
    assert td.jit(lambda z: tnp.cumprod(z, 1))(nothing).shape == (2, 0)
    np.testing.assert_array_equal(td.jit(tnp.cumprod)(one), one)


SCATTERED = {
    "rows": lambda z, u, i: z.at[i].multiply(u),
    "dropped": lambda z, u, i: z.at[z.real.argmin(1) + 2].multiply(u, mode="drop"),
    "elements": lambda z, u, i: z.at[i, i[::-1]].multiply(u[:, 0]),
    "a slice": lambda z, u, i: z.at[1:3, ::2].multiply(u[:2, :2]),
    "one": lambda z, u, i: z.at[:, 1].multiply(u[0, 0]),
    "batches": lambda z, u, i: td.vmap(lambda z, u, i: z.at[i].multiply(u))(
        z[:4], u, i[:, None] % 3 + np.arange(3) % 2
    ),
}


@pytest.mark.parametrize("name", SCATTERED)
def test_scattered_products(name: str) -> None:
    z, u = normal(4, 3, dtype="complex64"), normal(4, 3, dtype="complex64")
    i = np.array([1, 0, 1, 2])
    function = SCATTERED[name]

    def distance(z: Any, u: Any) -> Any:
        return (tnp.abs(function(z, u, i) - 1) ** 2).sum()

    given = tnp.asarray(z), tnp.asarray(u)
    found = td.jit(function)(z, u, i), *td.jit(td.grad(distance, (0, 1)))(z, u)
    wanted = function(*given, tnp.asarray(i)), *td.grad(distance, (0, 1))(*given)
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-4)
    if name == "rows":
        np.multiply.at(z, i, u)
        np.testing.assert_allclose(found[0], z, rtol=1e-5)


def test_a_product_of_numbers_that_were_real_has_no_imaginary_part() -> None:
    x = np.arange(30, dtype="float32").reshape(5, 6)
    found = td.jit(lambda x: x.astype("complex64") @ x.T.astype("complex64"))(x)
    np.testing.assert_array_equal(np.asarray(found), (x @ x.T).astype("complex64"))


def test_a_part_may_be_one_number_for_all_elements() -> None:
    x = np.arange(6, dtype="float32")
    found = td.jit(lambda x: tnp.stack([complex_(x, np.float32(2)), 1j * x]))(x)
    np.testing.assert_array_equal(np.asarray(found), np.stack([x + 2j, 1j * x]))


def test_both_parts_are_made_in_one_kernel() -> None:
    z = normal(8, 8, dtype="complex64")
    plan = stages(td.trace(lambda z: z * z + z)(z), CPUTarget()).plan
    assert len(plan.steps) == 1


@pytest.mark.parametrize("n", [1, 7, 8, 9, 33, 100])
def test_parts_are_stored_side_by_side(n: int) -> None:
    z = normal(5, n, dtype="complex64")
    graph = td.trace(lambda z: tnp.conj(z) + z.real)(z)
    (step,) = stages(graph, CPUTarget()).plan.steps
    stores = [o for o in step.launch.nest.operands if o.beside]
    assert len(stores) == 1
    np.testing.assert_array_equal(
        td.jit(lambda z: tnp.conj(z) + z.real)(z), np.conj(z) + z.real
    )
