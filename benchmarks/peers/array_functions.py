"""The vocabulary of programs in libraries with NumPy's names: JAX and Treadle.

Images are (batch, height, width, channels), heads (batch, length, heads, depth).
"""

from typing import Any


class ArrayFunctions:
    """What programs call; a library adds `np`, `lax`, and what it has of its own."""

    np: Any
    lax: Any

    def cast(self, x: Any, dtype: str) -> Any:
        """Floating-point arrays in another dtype."""
        is_float = self.np.issubdtype(x.dtype, self.np.floating)
        return x.astype(dtype) if is_float else x

    def concat(self, xs: list[Any], axis: int = -1) -> Any:
        return self.np.concatenate(xs, axis)

    def exp(self, x: Any) -> Any:
        return self.np.exp(x)

    def tanh(self, x: Any) -> Any:
        return self.np.tanh(x)

    def relu6(self, x: Any) -> Any:
        return self.np.clip(x, 0, 6)

    def silu(self, x: Any) -> Any:
        return x * self.sigmoid(x)

    def sigmoid(self, x: Any) -> Any:
        return self.lax.logistic(x)

    def linear(self, p: Any, x: Any) -> Any:
        bias, y = p.find("bias"), x @ p.array("weight")
        return y if bias is None else y + bias

    def conv(self, p: Any, x: Any, stride: int = 1, groups: int = 1) -> Any:
        """A convolution that keeps the size, but for the stride."""
        weight, bias = p.array("weight"), p.find("bias")
        half = weight.shape[0] // 2
        y = self.lax.conv_general_dilated(
            x,
            weight,
            (stride, stride),
            ((half, half), (half, half)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return y if bias is None else y + bias

    def patches(self, p: Any, x: Any) -> Any:
        """A convolution whose windows lie side by side."""
        n, height, width, channels = x.shape
        weight = p.array("weight")
        size, features = weight.shape[0], weight.shape[-1]
        tiles = x.reshape(n, height // size, size, width // size, size, channels)
        rows = tiles.swapaxes(2, 3).reshape(n, height // size, width // size, -1)
        return rows @ weight.reshape(-1, features) + p.array("bias")

    def upsample(self, x: Any) -> Any:
        """Each pixel four times."""
        n, height, width, channels = x.shape
        wide = self.np.broadcast_to(
            x[:, :, None, :, None], (n, height, 2, width, 2, channels)
        )
        return wide.reshape(n, 2 * height, 2 * width, channels)

    def _normalised(self, x: Any, axes: Any, eps: float) -> Any:
        wide = x.astype("float32")
        centred = wide - wide.mean(axes, keepdims=True)
        variance = self.np.square(centred).mean(axes, keepdims=True)
        return centred * self.lax.rsqrt(variance + eps)

    def _scaled(self, p: Any, y: Any, like: Any) -> Any:
        bias, y = p.find("bias"), y.astype(like.dtype) * p.array("weight")
        return y if bias is None else y + bias

    def layer_norm(self, p: Any, x: Any) -> Any:
        return self._scaled(p, self._normalised(x, -1, 1e-5), x)

    def rms_norm(self, p: Any, x: Any) -> Any:
        wide = x.astype("float32")
        square = self.np.square(wide).mean(-1, keepdims=True)
        return self._scaled(p, wide * self.lax.rsqrt(square + 1e-6), x)

    def batch_norm(self, p: Any, x: Any) -> Any:
        """By the statistics of the batch."""
        return self._scaled(p, self._normalised(x, (0, 1, 2), 1e-5), x)

    def trained_batch_norm(self, p: Any, x: Any) -> Any:
        """By given statistics."""
        scale = p.array("weight") * self.lax.rsqrt(p.array("variance") + 1e-5)
        return x * scale + (p.array("bias") - p.array("mean") * scale)

    def group_norm(self, p: Any, x: Any, groups: int) -> Any:
        n, height, width, channels = x.shape
        parts = x.reshape(n, height, width, groups, channels // groups)
        y = self._normalised(parts, (1, 2, 4), 1e-5)
        return self._scaled(p, y.reshape(x.shape), x)

    def embed(self, p: Any, ids: Any) -> Any:
        return p.array("weight")[ids]

    def embedding_bag(self, p: Any, ids: Any) -> Any:
        """The sum of the rows of each bag."""
        return self.embed(p, ids).sum(-2)

    def gru(self, p: Any, x: Any) -> Any:
        """All hidden states (batch, length, hidden); gates in the order r, z, n."""
        inputs = x @ p.array("weight_ih") + p.array("bias")
        weight = p.array("weight_hh")

        def advance(h: Any, given: Any) -> tuple[Any, Any]:
            r, z, n = self.np.split(given, 3, -1)
            hr, hz, hn = self.np.split(h @ weight, 3, -1)
            z = self.sigmoid(z + hz)
            n = self.tanh(n + self.sigmoid(r + hr) * hn)
            h = n + z * (h - n)
            return h, h

        start = self.np.zeros((x.shape[0], weight.shape[0]), x.dtype)
        return self.lax.scan(advance, start, inputs.swapaxes(0, 1))[1].swapaxes(0, 1)

    def lstm(self, p: Any, x: Any) -> Any:
        """All hidden states (batch, length, hidden); gates in the order i, f, g, o."""
        inputs = x @ p.array("weight_ih") + p.array("bias")
        weight = p.array("weight_hh")

        def advance(carry: Any, given: Any) -> tuple[Any, Any]:
            h, c = carry
            i, f, g, o = self.np.split(given + h @ weight, 4, -1)
            c = self.sigmoid(f) * c + self.sigmoid(i) * self.tanh(g)
            h = self.sigmoid(o) * self.tanh(c)
            return (h, c), h

        zeros = self.np.zeros((x.shape[0], weight.shape[0]), x.dtype)
        found = self.lax.scan(advance, (zeros, zeros), inputs.swapaxes(0, 1))[1]
        return found.swapaxes(0, 1)

    def repeat(self, step: Any, carry: Any, count: int) -> Any:
        """The carry after so many steps; `step(carry, i)`."""
        numbers = self.np.arange(count)
        return self.lax.scan(lambda c, i: (step(c, i), None), carry, numbers)[0]

    def argmax(self, x: Any) -> Any:
        return self.np.argmax(x, -1)

    def zeros(self, *shape: int) -> Any:
        return self.np.zeros(shape, "float32")

    def integers(self, count: int) -> Any:
        """Zeros, as tokens."""
        return self.np.zeros(count, "int32")

    def row(self, table: Any, i: Any) -> Any:
        return table[i]

    def write(self, cache: Any, x: Any, i: Any) -> Any:
        """The cache (batch, length, ...) with an element at place i."""
        places = (0, i) + (0,) * (cache.ndim - 2)
        return self.lax.dynamic_update_slice(cache, x[:, None], places)

    def squared_error(self, x: Any, y: Any) -> Any:
        return self.np.square(x - y).astype("float32").mean()

    def binary_cross_entropy(self, logits: Any, y: Any) -> Any:
        """The mean over all elements, of targets between 0 and 1."""
        return (self.np.logaddexp(logits, 0) - logits * y).mean()
