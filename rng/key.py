"""Keys: where random numbers come from, passed around explicitly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from inspect import signature
from operator import index
from typing import Any, NoReturn

import numpy as np

import treadle.numpy as tnp
from treadle import Array, dtypes, is_array, is_traced, jit, tree, typeof
from treadle.dims import is_dim, is_symbolic
from treadle.dtypes import DTypeLike
from treadle.errors import TracerError, at, user_source
from treadle.np.bits import threefry2x32

_NOT_AN_ARRAY = (
    "a random key is not an array{0}\n"
    "Draw from it (`rng.normal(key, shape)`), split it (`rng.split(key)`), or look at "
    "its bits (`rng.key_data(key)`)."
)


class Key:
    """A random key, or an array of keys: a pytree of two 32-bit words each.

    The same key gives the same numbers. Use a key once: `split` it for more.

    >>> from treadle import rng
    >>> key = rng.key(0)
    >>> first, second = rng.split(key)
    >>> first
    Key([1797259609, 2579123966])
    """

    __slots__ = ("_data",)

    def __init__(self, data: Any) -> None:
        t = typeof(data)
        if t.dtype != dtypes.uint32 or t.shape[-1:] != (2,):
            raise TypeError(
                f"a key is made of uint32[..., 2], got {t}{at(user_source())}\n"
                "Make one from a number: `rng.key(0)`."
            )
        self._data = tnp.asarray(data)

    @property
    def data(self) -> Array:
        """The bits, as uint32[*shape, 2]."""
        return self._data

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an array of keys; () for one key."""
        return self._data.shape[:-1]

    @property
    def ndim(self) -> int:
        """The number of axes of an array of keys."""
        return len(self.shape)

    def reshape(self, *lengths: Any) -> Key:
        """The same keys in another shape."""
        shape = lengths[0] if len(lengths) == 1 else lengths
        shape = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        return Key(self._data.reshape(*shape, 2))

    def __len__(self) -> int:
        self._need_axis()
        return self.shape[0]

    def __iter__(self) -> Iterator[Key]:
        self._need_axis()
        return iter([self[i] for i in range(self.shape[0])])

    def __getitem__(self, item: Any) -> Key:
        self._need_axis()
        places = item if isinstance(item, tuple) else (item,)
        whole = (slice(None),)
        return Key(self._data[places if Ellipsis not in places else (*places, *whole)])

    def _need_axis(self) -> None:
        if not self.shape:
            raise TypeError(
                f"this is one key, not an array of keys{at(user_source())}\n"
                "Get several: `k1, k2 = rng.split(key)`."
            )

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(_NOT_AN_ARRAY.format(at(user_source())))

    def __repr__(self) -> str:
        data = self._data
        if isinstance(data, Array) and not is_traced(data):
            return f"Key({data.tolist()})"
        return f"Key({data!r})"


def _no_arithmetic(self: Key, *others: Any) -> NoReturn:
    raise TypeError(_NOT_AN_ARRAY.format(at(user_source())))


for _name in ("add", "radd", "sub", "mul", "rmul", "xor", "lt", "gt", "neg", "int"):
    setattr(Key, f"__{_name}__", _no_arithmetic)


def _rebuilt(aux: None, children: Sequence[Any]) -> Key:
    # A transformation may put anything in a leaf's place.
    made = object.__new__(Key)
    made._data = children[0]
    return made


tree.register(
    Key,
    lambda key: ((key._data,), None),
    _rebuilt,
    lambda aux, n: [tree.Attribute("data")],
)


def key(seed: int | Array) -> Key:
    """The key that belongs to a number.

    Args:
      seed: an integer, up to 64 bits; it may be traced.

    >>> from treadle import rng
    >>> rng.key(7)
    Key([0, 7])
    """
    if is_array(seed) or is_symbolic(seed):
        return Key(_words_of_array(seed))
    try:
        number = index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"key: a seed is an integer, got {seed!r:.60}{at(user_source())}"
            + (f"\nWrite `key({seed:.0f})`." if _is_whole(seed) else "")
        ) from None
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"key: seed {number} has more than 64 bits{at(user_source())}")
    # Numbers of 32 bits, negative ones too, are the low word.
    high = 0 if -(2**31) <= number < 2**32 else number >> 32
    words = [high & 0xFFFFFFFF, number & 0xFFFFFFFF]
    return Key(np.array(words, np.uint32))


def _is_whole(seed: Any) -> bool:
    return isinstance(seed, float) and seed.is_integer()


def _words_of_array(seed: Any) -> Any:
    t = typeof(seed)
    if t.shape or not dtypes.is_integer(t.dtype):
        raise TypeError(
            f"key: a seed is an integer scalar, got {t}{at(user_source())}\n"
            "For an array of keys: `td.vmap(rng.key)(seeds)`, or `rng.split(key, n)`."
        )
    seed = tnp.asarray(seed)
    low = seed.astype(tnp.uint32)
    if t.dtype.itemsize < 8:
        return tnp.stack([tnp.zeros_like(low), low])
    return tnp.stack([(seed >> 32).astype(tnp.uint32), low])


def key_data(key: Key) -> Array:
    """The bits of keys, as uint32[*shape, 2]."""
    if not isinstance(key, Key):
        raise TypeError(_no_key("key_data", key))
    return key.data


def wrap_key_data(data: Any) -> Key:
    """Keys of given bits, uint32[..., 2]: the inverse of `key_data`."""
    return Key(data)


def check_key(name: str, key: Any) -> Key:
    """The key itself.

    Raises:
      TypeError: if it is no key.
      ValueError: if it is an array of keys.
    """
    if not isinstance(key, Key):
        raise TypeError(_no_key(name, key))
    if key.shape:
        raise ValueError(
            f"{name} takes one key, got an array of keys of shape {key.shape}"
            f"{at(user_source())}\n"
            "Take one (`keys[0]`), or vectorise: `td.vmap(lambda key: ...)(keys)`."
        )
    return key


def clone(key: Key) -> Key:
    """The same key, for who wants the same numbers once more: `td.debug.key_reuse`
    takes it for another one.

    >>> from treadle import rng
    >>> rng.clone(rng.key(7))
    Key([0, 7])
    """
    if not isinstance(key, Key):
        raise TypeError(_no_key("clone", key))
    return Key(key.data ^ np.uint32(0))


_APART = (
    "\nThese may be the words of one: keys are trees. To map a function over a tree of "
    "them, pass\n`is_leaf=lambda x: isinstance(x, rng.Key)`; of `key_data(key)`, "
    "`wrap_key_data` makes a key again."
)


def _no_key(name: str, key: Any) -> str:
    shown = typeof(key) if is_array(key) else f"{type(key).__name__} {key!r:.60}"
    return (
        f"{name} takes a random key, got {shown}{at(user_source())}\n"
        "Make one: `key = rng.key(0)`; then give each use its own: "
        "`k1, k2 = rng.split(key)`."
        + ("" if not is_array(key) or typeof(key).dtype != np.uint32 else _APART)
    )


def _words(key: Key) -> tuple[Any, Any]:
    return key.data[0], key.data[1]


def as_shape(name: str, shape: Any) -> tuple[int, ...]:
    """The shape, if it is a tuple of integers that are not negative.

    Raises:
      TypeError, ValueError: for anything else.
    """
    if isinstance(shape, tuple | list):
        try:
            lengths = tuple([n if is_dim(n) else index(n) for n in shape])
        except TracerError:
            raise
        except TypeError:
            pass
        else:
            if any(n < 0 for n in lengths):
                raise ValueError(
                    f"{name}: shape {lengths} has a negative length{at(user_source())}"
                )
            return lengths
    raise TypeError(
        f"{name}: shape must be a tuple of integers, got {shape!r:.60}"
        f"{at(user_source())}"
        + (f"\nWrite `({shape},)`." if isinstance(shape, int | np.integer) else "")
    )


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a key that runs as a compiled program where the key is known, and
    inside a trace is written down like any other. Keyword-only arguments are static."""
    parameters = signature(function).parameters.values()
    static = tuple([p.name for p in parameters if p.kind is p.KEYWORD_ONLY])
    program = jit(function, static=static)

    @wraps(function)
    def run(key: Key, *args: Any, **kwargs: Any) -> Any:
        known = isinstance(key.data, Array) and not is_traced(key.data)
        # A program is kept, which sizes that are not fixed must not be.
        lengths = kwargs.get("shape", ())
        known = known and not any(map(is_dim, lengths))
        return (program if known else function)(key, *args, **kwargs)

    return run


def split(key: Key, num: int | tuple[int, ...] = 2) -> Key:
    """New keys: an array of `num` of them, which unpacks. Don't use the old one again.

    >>> from treadle import rng
    >>> keys = rng.split(rng.key(0), 3)
    >>> keys.shape
    (3,)
    """
    check_key("split", key)
    shape = as_shape("split", num if isinstance(num, tuple | list) else (num,))
    return _split(key, shape=shape)


_WORDS = ("first", "second")


@compiled
def _split(key: Key, *, shape: tuple[int, ...]) -> Key:
    counter = _counter("split", shape)
    data = [threefry2x32(*_words(key), np.uint32(0), counter, w) for w in _WORDS]
    return Key(tnp.stack(data, -1).reshape(*shape, 2))


def fold_in(key: Key, data: int | Array) -> Key:
    """The key that belongs to a key and a number: of a step, a layer, a worker."""
    check_key("fold_in", key)
    if is_array(data) or is_symbolic(data):
        t = typeof(data)
        if t.shape or not dtypes.is_integer(t.dtype):
            raise TypeError(
                f"fold_in: data is an integer scalar, got {t}{at(user_source())}"
            )
        low: Any = tnp.asarray(data).astype(tnp.uint32)
    elif not isinstance(data, int | np.integer):
        raise TypeError(
            f"fold_in: data is an integer, got {data!r:.60}{at(user_source())}"
        )
    else:
        low = np.uint32(index(data) & 0xFFFFFFFF)  # type: ignore[arg-type]
    return _fold_in(key, low)


@compiled
def _fold_in(key: Key, data: Any) -> Key:
    mixed = [threefry2x32(*_words(key), np.uint32(0), data, w) for w in _WORDS]
    return Key(tnp.stack(mixed))


def _counter(name: str, shape: tuple[int, ...]) -> Any:
    """The numbers 0, 1, 2… of the elements of a shape, as one axis."""
    n = math.prod(shape)
    if n >= 2**32:
        raise ValueError(
            f"{name}: {shape} has 2**32 elements or more: draw parts from several keys "
            f"of `rng.split`{at(user_source())}"
        )
    return tnp.arange(n, dtype=tnp.uint32)


def bits(key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.uint32) -> Array:
    """Uniformly random bits, as unsigned integers."""
    check_key("bits", key)
    shape = as_shape("bits", shape)
    wanted = dtypes.canonical(dtype)
    if not dtypes.is_unsigned(wanted):
        raise TypeError(
            f"bits: dtype must be an unsigned integer, got {wanted}{at(user_source())}"
        )
    return random_bits(key, shape=shape, dtype=wanted)


@compiled
def random_bits(key: Key, *, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """`bits` without its checks."""
    k0, k1 = _words(key)
    zero, counter = np.uint32(0), _counter("bits", shape)
    if dtype.itemsize == 8:
        high, low = (
            threefry2x32(k0, k1, zero, counter, w).astype(dtype) for w in _WORDS
        )
        return ((high << 32) | low).reshape(shape)
    word = threefry2x32(k0, k1, zero, counter, "xor")
    return (word if dtype == dtypes.uint32 else word.astype(dtype)).reshape(shape)
