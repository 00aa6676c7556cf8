"""Treadle: train models as pytree modules on a functional core with its own compiler.

>>> import treadle as td
>>> td.grad(lambda x: x * x)(3.0)
Array(6., dtype=float32)
"""

from treadle import dtypes as dtypes
from treadle import np as numpy
from treadle import tree as tree
from treadle.api.grad import grad as grad
from treadle.api.grad import jvp as jvp
from treadle.api.grad import linearize as linearize
from treadle.api.grad import value_and_grad as value_and_grad
from treadle.api.grad import vjp as vjp
from treadle.api.jit import jit as jit
from treadle.api.scope import current_transform as current_transform
from treadle.api.vmap import vmap as vmap
from treadle.arraytype import ArrayType as ArrayType
from treadle.dtypes import bfloat16 as bfloat16
from treadle.dtypes import bool_ as bool_
from treadle.dtypes import complex64 as complex64
from treadle.dtypes import complex128 as complex128
from treadle.dtypes import float16 as float16
from treadle.dtypes import float32 as float32
from treadle.dtypes import float64 as float64
from treadle.dtypes import int8 as int8
from treadle.dtypes import int16 as int16
from treadle.dtypes import int32 as int32
from treadle.dtypes import int64 as int64
from treadle.dtypes import uint8 as uint8
from treadle.dtypes import uint16 as uint16
from treadle.dtypes import uint32 as uint32
from treadle.dtypes import uint64 as uint64
from treadle.ops.conv import conv_general as conv_general
from treadle.ops.identity import stop_gradient as stop_gradient
from treadle.ops.window import reduce_window_max as reduce_window_max
from treadle.ops.window import reduce_window_sum as reduce_window_sum
from treadle.run.array import Array as Array
from treadle.trace.value import is_array as is_array
from treadle.trace.value import typeof as typeof

__version__ = "0.1.0"
