"""Random orders of which any part can be had without the whole."""

from __future__ import annotations

import numpy as np

from treadle import rng

_IN_MEMORY = 1 << 20
_ROUNDS = 6


class Order:
    """The numbers below `count` in an order that a key determines.

    Few of them are shuffled at once. For many, each place is computed when it is asked
    for: by a Feistel network over the next power of four, applied again to what it
    leads beyond the end (cycle walking).

    M. Luby and C. Rackoff, *How to Construct Pseudorandom Permutations from
    Pseudorandom Functions*, 1988; J. Black and P. Rogaway, *Ciphers with Arbitrary
    Finite Domains*, 2002.

    >>> order = Order(rng.key(0), 5)
    >>> order[0:2].tolist(), order[2:5].tolist()
    ([0, 1], [4, 3, 2])
    """

    def __init__(self, key: rng.Key, count: int) -> None:
        self.count = count
        self._whole: np.ndarray | None = None
        if count <= _IN_MEMORY:
            self._whole = np.asarray(rng.permutation(key, count))
            return
        self._half = np.uint64(((count - 1).bit_length() + 1) // 2)
        words = np.asarray(rng.bits(key, (_ROUNDS, 2))).astype(np.uint64)
        self._round_keys = words[:, 0] << np.uint64(32) | words[:, 1]

    def __getitem__(self, which: slice) -> np.ndarray:
        """The numbers at some places."""
        if self._whole is not None:
            return self._whole[which]
        numbers = np.arange(*which.indices(self.count), dtype=np.uint64)
        numbers = self._mixed(numbers)
        while (beyond := numbers >= self.count).any():
            numbers[beyond] = self._mixed(numbers[beyond])
        return numbers.astype(np.int64)

    def _mixed(self, numbers: np.ndarray) -> np.ndarray:
        """A permutation of the numbers of twice `_half` bits."""
        low = (np.uint64(1) << self._half) - np.uint64(1)
        left, right = numbers >> self._half, numbers & low
        for key in self._round_keys:
            left, right = right, left ^ (_hash(right ^ key) & low)
        return left << self._half | right


def _hash(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer (Steele et al., 2014)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
