"""Methods that arrays of other libraries have, and what takes their place.

Each stands on `Value` as a descriptor that raises an AttributeError with the remedy:
`hasattr` says no, and other attributes cost nothing, as they would by `__getattr__`.
"""

from __future__ import annotations

from typing import Any

from treadle.errors import at, user_source

_IN_PLACE = (
    "Arrays don't change: `x = x {sign} y`; of a part, `x.at[index].{method}(y)`."
)
REMEDIES = {
    "add_": _IN_PLACE.format(sign="+", method="add"),
    "backward": "Derivatives are functions: `td.grad(loss)(params)`.",
    "bool": "`x.astype(bool)`.",
    "chunk": "`tnp.array_split(x, n, axis)`.",
    "clamp": "`x.clip(low, high)`.",
    "clone": "Arrays don't change: `x` itself will do.",
    "contiguous": "Strides are nobody's concern: `x` itself will do.",
    "cuda": "`td.devices()` lists the devices, `td.device_put` moves arrays.",
    "detach": "`td.stop_gradient(x)`.",
    "dim": "`x.ndim`.",
    "double": "`x.astype(td.float64)`.",
    "eq": "`x == y`.",
    "exp": "`tnp.exp(x)`.",
    "expand": "`tnp.broadcast_to(x, shape)`.",
    "expand_as": "`tnp.broadcast_to(x, y.shape)`.",
    "flip": "`tnp.flip(x, axis)`.",
    "float": "`x.astype(td.float32)`.",
    "gather": "`tnp.take_along_axis(x, indices, axis)`.",
    "ge": "`x >= y`.",
    "gt": "`x > y`.",
    "half": "`x.astype(td.float16)`.",
    "index_select": "`x.take(indices, axis)`.",
    "int": "`x.astype(td.int32)`.",
    "le": "`x <= y`.",
    "log": "`tnp.log(x)`.",
    "log_softmax": "`nn.log_softmax(x, axis)`.",
    "logsumexp": "`nn.logsumexp(x, axis)`.",
    "long": "`x.astype(td.int64)`.",
    "lt": "`x < y`.",
    "masked_fill": "`tnp.where(mask, value, x)`.",
    "matmul": "`x @ y`.",
    "mm": "`x @ y`.",
    "bmm": "`x @ y`.",
    "mul": "`x * y`.",
    "mul_": _IN_PLACE.format(sign="*", method="multiply"),
    "ne": "`x != y`.",
    "norm": "`tnp.linalg.norm(x)`.",
    "numel": "`x.size`, which is a number.",
    "numpy": "`numpy.asarray(x)`, which copies nothing.",
    "permute": "`x.transpose(axes)`.",
    "pow": "`x**y`.",
    "relu": "`nn.relu(x)`.",
    "requires_grad": "Any function of arrays can be differentiated: `td.grad(f)(x)`.",
    "requires_grad_": "Any function of arrays can be differentiated: `td.grad(f)(x)`.",
    "scatter_add": "`x.at[indices].add(y)`.",
    "sigmoid": "`nn.sigmoid(x)`.",
    "softmax": "`nn.softmax(x, axis)`.",
    "sqrt": "`tnp.sqrt(x)`.",
    "sub_": _IN_PLACE.format(sign="-", method="subtract"),
    "t": "`x.T`.",
    "tanh": "`tnp.tanh(x)`.",
    "to": "`x.astype(dtype)`; to another device `td.device_put(x, device)`.",
    "topk": "`td.lax.top_k(x, k)`.",
    "unsqueeze": "`tnp.expand_dims(x, axis)`, or `x[:, None]`.",
    "zero_": "Arrays don't change: `x = tnp.zeros_like(x)`.",
    "addressable_data": "`numpy.asarray(x)`: an array lies on one device.",
    "byteswap": "`numpy.asarray(x).byteswap()`.",
    "copy_to_host_async": "`numpy.asarray(x)`, which copies nothing.",
    "data": "`numpy.asarray(x)`, which copies nothing.",
    "delete": "Memory is free when nothing names it; `td.live_arrays()` lists it.",
    "devices": "`x.device`: an array lies on one.",
    "fill": "Arrays don't change: `x = tnp.full_like(x, value)`.",
    "flags": "Layout is nobody's concern: `x` itself will do.",
    "flat": "`x.ravel()`.",
    "is_ready": "`x.block_until_ready()` waits for it.",
    "on_device_size_in_bytes": "`x.nbytes`.",
    "put": "Arrays don't change: `x.at[indices].set(value)`.",
    "resize": "Arrays don't change: `tnp.resize(x, shape)`.",
    "sharding": "`x.device`: an array lies on one.",
    "strides": "Strides are nobody's concern: `x` itself will do.",
    "weak_type": "`td.typeof(x).weak`.",
}


class Absent:
    """A method that arrays don't have."""

    def __init__(self, name: str, remedy: str) -> None:
        self.name, self.remedy = name, remedy

    def __get__(self, array: Any, kind: type) -> Any:
        raise AttributeError(
            f"arrays have no `{self.name}`{at(user_source())}\n{self.remedy}",
            name=self.name,
            obj=kind if array is None else array,
        )


def names_of(array: Any) -> list[str]:
    """The attributes of an array without those that it has not: its `__dir__`."""
    return [name for name in object.__dir__(array) if name not in REMEDIES]
