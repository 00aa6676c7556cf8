"""Treadle: train models as pytree modules on a functional core with its own compiler.

>>> import treadle as td
>>> td.grad(lambda x: x * x)(3.0)
Array(6., dtype=float32)
"""

import typing as _typing

from treadle import debug as debug
from treadle import dtypes as dtypes
from treadle import extend as extend
from treadle import image as image
from treadle import lax as lax
from treadle import numpy as numpy
from treadle import scipy as scipy
from treadle import tree as tree
from treadle.api import keywords as _keywords
from treadle.api.ambient import Ambient as Ambient
from treadle.api.ambient import ambients as ambients
from treadle.api.associative import associative_scan as associative_scan
from treadle.api.branch import cond as cond
from treadle.api.branch import switch as switch
from treadle.api.caches import clear_caches as clear_caches
from treadle.api.caches import live_arrays as live_arrays
from treadle.api.callbacks import effects_barrier as effects_barrier
from treadle.api.callbacks import io_callback as io_callback
from treadle.api.callbacks import pure_callback as pure_callback
from treadle.api.check_grads import check_grads as check_grads
from treadle.api.closure import closure_convert as closure_convert
from treadle.api.collection import Collection as Collection
from treadle.api.collectives import all_gather as all_gather
from treadle.api.collectives import all_to_all as all_to_all
from treadle.api.collectives import axis_index as axis_index
from treadle.api.collectives import axis_size as axis_size
from treadle.api.collectives import pbroadcast as pbroadcast
from treadle.api.collectives import pmax as pmax
from treadle.api.collectives import pmean as pmean
from treadle.api.collectives import pmin as pmin
from treadle.api.collectives import ppermute as ppermute
from treadle.api.collectives import pshuffle as pshuffle
from treadle.api.collectives import psum as psum
from treadle.api.collectives import psum_scatter as psum_scatter
from treadle.api.collectives import pswapaxes as pswapaxes
from treadle.api.custom import custom_jvp as custom_jvp
from treadle.api.custom import custom_vjp as custom_vjp
from treadle.api.custom_vmap import custom_vmap as custom_vmap
from treadle.api.custom_vmap import sequential_vmap as sequential_vmap
from treadle.api.devices import default_device as default_device
from treadle.api.devices import device_put as device_put
from treadle.api.devices import devices as devices
from treadle.api.fixed_point import fixed_point as fixed_point
from treadle.api.grad import grad as grad
from treadle.api.grad import value_and_grad as value_and_grad
from treadle.api.implicit import custom_linear_solve as custom_linear_solve
from treadle.api.implicit import custom_root as custom_root
from treadle.api.jacobian import hessian as hessian
from treadle.api.jacobian import jacfwd as jacfwd
from treadle.api.jacobian import jacobian as jacobian
from treadle.api.jacobian import jacrev as jacrev
from treadle.api.jacobian import linear_transpose as linear_transpose
from treadle.api.jacobian import stop_gradient as stop_gradient
from treadle.api.jit import jit as jit
from treadle.api.linear import jvp as jvp
from treadle.api.linear import linearize as linearize
from treadle.api.linear import vjp as vjp
from treadle.api.loops import map as map
from treadle.api.loops import scan as scan
from treadle.api.policies import checkpoint_name as checkpoint_name
from treadle.api.policies import dots_saveable as dots_saveable
from treadle.api.policies import (
    dots_without_batch_saveable as dots_without_batch_saveable,
)
from treadle.api.policies import everything_saveable as everything_saveable
from treadle.api.policies import nothing_saveable as nothing_saveable
from treadle.api.policies import save_any_names_but_these as save_any_names_but_these
from treadle.api.policies import (
    save_anything_except_these_names as save_anything_except_these_names,
)
from treadle.api.policies import save_from_both_policies as save_from_both_policies
from treadle.api.policies import save_only_these_names as save_only_these_names
from treadle.api.profiling import profile as profile
from treadle.api.remat import remat as remat
from treadle.api.saved import print_saved_residuals as print_saved_residuals
from treadle.api.scope import current_transform as current_transform
from treadle.api.scope import named_scope as named_scope
from treadle.api.staging import ShapeDtype as ShapeDtype
from treadle.api.staging import disable_jit as disable_jit
from treadle.api.staging import eval_shape as eval_shape
from treadle.api.staging import trace as trace
from treadle.api.vmap import vmap as vmap
from treadle.api.while_loops import fori_loop as fori_loop
from treadle.api.while_loops import while_loop as while_loop
from treadle.arraytype import ArrayType as ArrayType
from treadle.debug.environment import (
    print_environment_info as print_environment_info,
)
from treadle.extend.foreign import ffi_call as ffi_call
from treadle.extend.kernel import kernel as kernel
from treadle.names import suggest as _suggest
from treadle.np.scalar_types import bfloat16 as bfloat16
from treadle.np.scalar_types import bool_ as bool_
from treadle.np.scalar_types import complex64 as complex64
from treadle.np.scalar_types import complex128 as complex128
from treadle.np.scalar_types import float16 as float16
from treadle.np.scalar_types import float32 as float32
from treadle.np.scalar_types import float64 as float64
from treadle.np.scalar_types import int8 as int8
from treadle.np.scalar_types import int16 as int16
from treadle.np.scalar_types import int32 as int32
from treadle.np.scalar_types import int64 as int64
from treadle.np.scalar_types import uint8 as uint8
from treadle.np.scalar_types import uint16 as uint16
from treadle.np.scalar_types import uint32 as uint32
from treadle.np.scalar_types import uint64 as uint64
from treadle.np.segments import segment_max as segment_max
from treadle.np.segments import segment_min as segment_min
from treadle.np.segments import segment_prod as segment_prod
from treadle.np.segments import segment_sum as segment_sum
from treadle.np.strictness import numpy_dtype_promotion as numpy_dtype_promotion
from treadle.np.strictness import numpy_rank_promotion as numpy_rank_promotion
from treadle.trace.value import is_array as is_array
from treadle.trace.value import is_traced as is_traced
from treadle.trace.value import typeof as typeof
from treadle.trace.ways import disable_branches as disable_branches

# To programs a tracer is an array too, with the methods that a concrete one has.
if _typing.TYPE_CHECKING:
    from treadle import checkpoint as checkpoint
    from treadle import data as data
    from treadle import metrics as metrics
    from treadle import models as models
    from treadle import nn as nn
    from treadle import optim as optim
    from treadle import recipes as recipes
    from treadle import rng as rng
    from treadle import weights as weights
    from treadle.run.array import Array as Array
else:
    from treadle.api.array import Array as Array

__version__: str  # of the installed package, found when it is asked for

_keywords.show_remedies()
_suggest(__name__)
_suggest("treadle.debug")
_suggest("treadle.dtypes")
_suggest("treadle.errors")
_suggest("treadle.extend")
_suggest("treadle.image")
_suggest("treadle.lax")
_suggest("treadle.ops")
_suggest("treadle.scipy")
_suggest("treadle.scipy.special")
_suggest("treadle.scipy.stats")
_suggest("treadle.tree")
