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
    "bfloat16": "`x.astype(td.bfloat16)`.",
    "cuda": "`td.devices()` lists the devices, `td.device_put` moves arrays.",
    "detach": "`td.stop_gradient(x)`.",
    "clamp_": "Arrays don't change: `x = x.clip(low, high)`.",
    "copy_": "Arrays don't change: `x = y`; of a part, `x.at[index].set(y)`.",
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
    "add": "`x + y`.",
    "cholesky": "`tnp.linalg.cholesky(x)`.",
    "det": "`tnp.linalg.det(x)`.",
    "div": "`x / y`.",
    "div_": _IN_PLACE.format(sign="/", method="divide"),
    "fill_": "Arrays don't change: `x = tnp.full_like(x, value)`.",
    "grad": "Derivatives are functions: `td.grad(loss)(params)`.",
    "index_add": "`x.at[indices].add(y)`.",
    "index_add_": "Arrays don't change: `x = x.at[indices].add(y)`.",
    "inverse": "`tnp.linalg.inv(x)`.",
    "is_cuda": "`x.device`.",
    "masked_fill_": "Arrays don't change: `x = tnp.where(mask, value, x)`.",
    "masked_select": "`x[mask]`.",
    "mul": "`x * y`.",
    "mul_": _IN_PLACE.format(sign="*", method="multiply"),
    "narrow": "`td.lax.dynamic_slice_in_dim(x, start, length, axis)`.",
    "ne": "`x != y`.",
    "neg": "`-x`.",
    "new_ones": "`tnp.ones(shape, x.dtype)`.",
    "new_tensor": "`tnp.array(value, x.dtype)`.",
    "new_zeros": "`tnp.zeros(shape, x.dtype)`.",
    "norm": "`tnp.linalg.norm(x)`.",
    "numel": "`x.size`, which is a number.",
    "numpy": "`numpy.asarray(x)`, which copies nothing.",
    "permute": "`x.transpose(axes)`.",
    "pow": "`x**y`.",
    "relu": "`nn.relu(x)`.",
    "repeat_interleave": "`x.repeat(n, axis)`.",
    "quantile": "`tnp.quantile(x, value, axis)`.",
    "requires_grad": "Any function of arrays can be differentiated: `td.grad(f)(x)`.",
    "requires_grad_": "Any function of arrays can be differentiated: `td.grad(f)(x)`.",
    "roll": "`tnp.roll(x, n, axis)`.",
    "rsqrt": "`td.lax.rsqrt(x)`.",
    "scatter_": "Arrays don't change: `tnp.put_along_axis(x, indices, y, axis, "
    "inplace=False)`.",
    "scatter_add": "`x.at[indices].add(y)`.",
    "sigmoid": "`nn.sigmoid(x)`.",
    "softmax": "`nn.softmax(x, axis)`.",
    "split": "`tnp.split(x, n, axis)`, where n counts the parts.",
    "sqrt": "`tnp.sqrt(x)`.",
    "sub": "`x - y`.",
    "sub_": _IN_PLACE.format(sign="-", method="subtract"),
    "t": "`x.T`.",
    "tanh": "`tnp.tanh(x)`.",
    "tile": "`tnp.tile(x, n)`.",
    "to": "`x.astype(dtype)`; to another device `td.device_put(x, device)`.",
    "tensor_split": "`tnp.array_split(x, n, axis)`.",
    "topk": "`td.lax.top_k(x, k)`.",
    "type_as": "`x.astype(y.dtype)`.",
    "unbind": "`list(x)`, for the first axis; `tnp.unstack(x, axis=axis)`.",
    "unsqueeze": "`tnp.expand_dims(x, axis)`, or `x[:, None]`.",
    "view_as": "`x.reshape(y.shape)`.",
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
    "is_deleted": "Only donated arrays end before their names; using one is an "
    "error: `x` itself will do.",
    "is_ready": "`x.block_until_ready()` waits for it.",
    "on_device_size_in_bytes": "`x.nbytes`.",
    "put": "Arrays don't change: `x.at[indices].set(value)`.",
    "resize": "Arrays don't change: `tnp.resize(x, shape)`.",
    "sharding": "`x.device`: an array lies on one.",
    "strides": "Strides are nobody's concern: `x` itself will do.",
    "weak_type": "`td.typeof(x).weak`.",
}

_OF_ONE = (
    "abs acos amax amin arccos arccosh arcsin arcsinh arctan arctanh argwhere asin "
    "atan atanh ceil corrcoef cos cosh count_nonzero cov deg2rad diag diagflat diff "
    "exp2 expm1 fliplr flipud floor isfinite isinf isnan log10 log1p log2 logical_not "
    "median nan_to_num nanmean nansum negative positive rad2deg reciprocal rot90 sign "
    "signbit sin sinc sinh square tan tril triu trunc unique"
)
_OF_TWO = (
    "allclose arctan2 atan2 divide equal floor_divide fmod greater greater_equal "
    "heaviside hypot inner isclose kron less less_equal logaddexp logical_and "
    "logical_or logical_xor maximum minimum multiply not_equal outer remainder subtract"
)
# What are methods elsewhere, and functions here.
REMEDIES |= {name: f"`tnp.{name}(x)`." for name in _OF_ONE.split()}
REMEDIES |= {name: f"`tnp.{name}(x, y)`." for name in _OF_TWO.split()}


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
