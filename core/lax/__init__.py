"""`treadle.lax`: the level below `treadle.numpy`, for those who write libraries.

Names and arguments are those of `jax.lax`. Nothing is promoted or broadcast without
being asked to: operands have one dtype and one shape, or are scalars. What is one thing
with Treadle's own (loops, branches, collectives) is here too, so that programs that are
written against `jax.lax` find it.
"""

from treadle.api.associative import associative_scan as associative_scan
from treadle.api.branch import cond as cond
from treadle.api.branch import switch as switch
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
from treadle.api.implicit import custom_linear_solve as custom_linear_solve
from treadle.api.implicit import custom_root as custom_root
from treadle.api.jacobian import stop_gradient as stop_gradient
from treadle.api.loops import map as map
from treadle.api.loops import scan as scan
from treadle.api.while_loops import fori_loop as fori_loop
from treadle.api.while_loops import while_loop as while_loop
from treadle.lax import linalg as linalg
from treadle.lax.attention import attention as attention
from treadle.lax.barrier import optimization_barrier as optimization_barrier
from treadle.lax.bits import bitcast_convert_type as bitcast_convert_type
from treadle.lax.bits import reduce_precision as reduce_precision
from treadle.lax.conv import conv as conv
from treadle.lax.conv import conv_general_dilated as conv_general_dilated
from treadle.lax.conv import (
    conv_general_dilated_patches as conv_general_dilated_patches,
)
from treadle.lax.conv import conv_transpose as conv_transpose
from treadle.lax.conv import conv_with_general_padding as conv_with_general_padding
from treadle.lax.dot import batch_matmul as batch_matmul
from treadle.lax.dot import dot as dot
from treadle.lax.dot import dot_general as dot_general
from treadle.lax.dynamic import dynamic_index_in_dim as dynamic_index_in_dim
from treadle.lax.dynamic import dynamic_slice as dynamic_slice
from treadle.lax.dynamic import dynamic_slice_in_dim as dynamic_slice_in_dim
from treadle.lax.dynamic import (
    dynamic_update_index_in_dim as dynamic_update_index_in_dim,
)
from treadle.lax.dynamic import dynamic_update_slice as dynamic_update_slice
from treadle.lax.dynamic import (
    dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
)
from treadle.lax.elementwise import RoundingMethod as RoundingMethod
from treadle.lax.elementwise import abs as abs
from treadle.lax.elementwise import acos as acos
from treadle.lax.elementwise import acosh as acosh
from treadle.lax.elementwise import add as add
from treadle.lax.elementwise import asin as asin
from treadle.lax.elementwise import asinh as asinh
from treadle.lax.elementwise import atan as atan
from treadle.lax.elementwise import atan2 as atan2
from treadle.lax.elementwise import atanh as atanh
from treadle.lax.elementwise import bitwise_and as bitwise_and
from treadle.lax.elementwise import bitwise_not as bitwise_not
from treadle.lax.elementwise import bitwise_or as bitwise_or
from treadle.lax.elementwise import bitwise_xor as bitwise_xor
from treadle.lax.elementwise import cbrt as cbrt
from treadle.lax.elementwise import ceil as ceil
from treadle.lax.elementwise import clamp as clamp
from treadle.lax.elementwise import clz as clz
from treadle.lax.elementwise import complex as complex
from treadle.lax.elementwise import conj as conj
from treadle.lax.elementwise import convert_element_type as convert_element_type
from treadle.lax.elementwise import cos as cos
from treadle.lax.elementwise import cosh as cosh
from treadle.lax.elementwise import digamma as digamma
from treadle.lax.elementwise import div as div
from treadle.lax.elementwise import eq as eq
from treadle.lax.elementwise import erf as erf
from treadle.lax.elementwise import erf_inv as erf_inv
from treadle.lax.elementwise import erfc as erfc
from treadle.lax.elementwise import exp as exp
from treadle.lax.elementwise import exp2 as exp2
from treadle.lax.elementwise import expm1 as expm1
from treadle.lax.elementwise import floor as floor
from treadle.lax.elementwise import ge as ge
from treadle.lax.elementwise import gt as gt
from treadle.lax.elementwise import imag as imag
from treadle.lax.elementwise import integer_pow as integer_pow
from treadle.lax.elementwise import is_finite as is_finite
from treadle.lax.elementwise import le as le
from treadle.lax.elementwise import lgamma as lgamma
from treadle.lax.elementwise import log as log
from treadle.lax.elementwise import log1p as log1p
from treadle.lax.elementwise import logistic as logistic
from treadle.lax.elementwise import lt as lt
from treadle.lax.elementwise import max as max
from treadle.lax.elementwise import min as min
from treadle.lax.elementwise import mul as mul
from treadle.lax.elementwise import ne as ne
from treadle.lax.elementwise import neg as neg
from treadle.lax.elementwise import nextafter as nextafter
from treadle.lax.elementwise import polygamma as polygamma
from treadle.lax.elementwise import population_count as population_count
from treadle.lax.elementwise import pow as pow
from treadle.lax.elementwise import real as real
from treadle.lax.elementwise import reciprocal as reciprocal
from treadle.lax.elementwise import rem as rem
from treadle.lax.elementwise import round as round
from treadle.lax.elementwise import rsqrt as rsqrt
from treadle.lax.elementwise import select as select
from treadle.lax.elementwise import select_n as select_n
from treadle.lax.elementwise import shift_left as shift_left
from treadle.lax.elementwise import shift_right_arithmetic as shift_right_arithmetic
from treadle.lax.elementwise import shift_right_logical as shift_right_logical
from treadle.lax.elementwise import sign as sign
from treadle.lax.elementwise import sin as sin
from treadle.lax.elementwise import sinh as sinh
from treadle.lax.elementwise import sqrt as sqrt
from treadle.lax.elementwise import square as square
from treadle.lax.elementwise import sub as sub
from treadle.lax.elementwise import tan as tan
from treadle.lax.elementwise import tanh as tanh
from treadle.lax.gather import GatherDimensionNumbers as GatherDimensionNumbers
from treadle.lax.gather import GatherScatterMode as GatherScatterMode
from treadle.lax.gather import ScatterDimensionNumbers as ScatterDimensionNumbers
from treadle.lax.gather import gather as gather
from treadle.lax.gather import scatter as scatter
from treadle.lax.gather import scatter_add as scatter_add
from treadle.lax.gather import scatter_apply as scatter_apply
from treadle.lax.gather import scatter_max as scatter_max
from treadle.lax.gather import scatter_min as scatter_min
from treadle.lax.gather import scatter_mul as scatter_mul
from treadle.lax.gather import scatter_sub as scatter_sub
from treadle.lax.padding import ConvDimensionNumbers as ConvDimensionNumbers
from treadle.lax.padding import conv_dimension_numbers as conv_dimension_numbers
from treadle.lax.padding import padtype_to_pads as padtype_to_pads
from treadle.lax.ragged import ragged_dot as ragged_dot
from treadle.lax.ragged_general import (
    RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
)
from treadle.lax.ragged_general import ragged_dot_general as ragged_dot_general
from treadle.lax.reduce import argmax as argmax
from treadle.lax.reduce import argmin as argmin
from treadle.lax.reduce import cumlogsumexp as cumlogsumexp
from treadle.lax.reduce import cummax as cummax
from treadle.lax.reduce import cummin as cummin
from treadle.lax.reduce import cumprod as cumprod
from treadle.lax.reduce import cumsum as cumsum
from treadle.lax.reduce import reduce as reduce
from treadle.lax.reduce import reduce_and as reduce_and
from treadle.lax.reduce import reduce_max as reduce_max
from treadle.lax.reduce import reduce_min as reduce_min
from treadle.lax.reduce import reduce_or as reduce_or
from treadle.lax.reduce import reduce_prod as reduce_prod
from treadle.lax.reduce import reduce_sum as reduce_sum
from treadle.lax.reduce import reduce_xor as reduce_xor
from treadle.lax.reduce import sort as sort
from treadle.lax.reduce import sort_key_val as sort_key_val
from treadle.lax.reduce import top_k as top_k
from treadle.lax.structure import broadcast as broadcast
from treadle.lax.structure import broadcast_in_dim as broadcast_in_dim
from treadle.lax.structure import broadcasted_iota as broadcasted_iota
from treadle.lax.structure import collapse as collapse
from treadle.lax.structure import concatenate as concatenate
from treadle.lax.structure import expand_dims as expand_dims
from treadle.lax.structure import full as full
from treadle.lax.structure import full_like as full_like
from treadle.lax.structure import index_in_dim as index_in_dim
from treadle.lax.structure import iota as iota
from treadle.lax.structure import pad as pad
from treadle.lax.structure import reshape as reshape
from treadle.lax.structure import rev as rev
from treadle.lax.structure import slice as slice
from treadle.lax.structure import slice_in_dim as slice_in_dim
from treadle.lax.structure import split as split
from treadle.lax.structure import squeeze as squeeze
from treadle.lax.structure import tile as tile
from treadle.lax.structure import transpose as transpose
from treadle.lax.windows import reduce_window as reduce_window
from treadle.np.shapes import broadcast_shapes as broadcast_shapes
