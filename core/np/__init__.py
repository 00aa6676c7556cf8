"""`treadle.numpy`: NumPy's functions on Treadle's arrays, traced or not.

    import treadle.numpy as tnp

Names, arguments and broadcasting are NumPy's. What differs: Python numbers are weak
(they never widen an array's dtype), integers never widen floats, defaults are float32
and int32, arrays are immutable, functions take arrays rather than lists, and functions
whose result has a shape that depends on values work outside of tracing only.
"""

import sys as _sys

import numpy as _numpy
from ml_dtypes import finfo as finfo
from ml_dtypes import iinfo as iinfo
from numpy import e as e
from numpy import euler_gamma as euler_gamma
from numpy import inf as inf
from numpy import nan as nan
from numpy import newaxis as newaxis
from numpy import pi as pi

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
from treadle.names import suggest as _suggest
from treadle.np import linalg as linalg
from treadle.np import methods as methods
from treadle.np import special as special
from treadle.np.binary import add as add
from treadle.np.binary import arctan2 as arctan2
from treadle.np.binary import bitwise_and as bitwise_and
from treadle.np.binary import bitwise_or as bitwise_or
from treadle.np.binary import bitwise_xor as bitwise_xor
from treadle.np.binary import clip as clip
from treadle.np.binary import copysign as copysign
from treadle.np.binary import divide as divide
from treadle.np.binary import divmod as divmod
from treadle.np.binary import equal as equal
from treadle.np.binary import float_power as float_power
from treadle.np.binary import floor_divide as floor_divide
from treadle.np.binary import fmax as fmax
from treadle.np.binary import fmin as fmin
from treadle.np.binary import fmod as fmod
from treadle.np.binary import greater as greater
from treadle.np.binary import greater_equal as greater_equal
from treadle.np.binary import heaviside as heaviside
from treadle.np.binary import hypot as hypot
from treadle.np.binary import left_shift as left_shift
from treadle.np.binary import less as less
from treadle.np.binary import less_equal as less_equal
from treadle.np.binary import logaddexp as logaddexp
from treadle.np.binary import logaddexp2 as logaddexp2
from treadle.np.binary import logical_and as logical_and
from treadle.np.binary import logical_or as logical_or
from treadle.np.binary import logical_xor as logical_xor
from treadle.np.binary import maximum as maximum
from treadle.np.binary import minimum as minimum
from treadle.np.binary import mod as mod
from treadle.np.binary import multiply as multiply
from treadle.np.binary import nextafter as nextafter
from treadle.np.binary import not_equal as not_equal
from treadle.np.binary import pow as pow
from treadle.np.binary import power as power
from treadle.np.binary import remainder as remainder
from treadle.np.binary import right_shift as right_shift
from treadle.np.binary import subtract as subtract
from treadle.np.binary import true_divide as true_divide
from treadle.np.complex_parts import angle as angle
from treadle.np.complex_parts import conj as conj
from treadle.np.complex_parts import conjugate as conjugate
from treadle.np.complex_parts import imag as imag
from treadle.np.complex_parts import iscomplexobj as iscomplexobj
from treadle.np.complex_parts import real as real
from treadle.np.contract import convolve as convolve
from treadle.np.contract import correlate as correlate
from treadle.np.contract import cross as cross
from treadle.np.contract import dot as dot
from treadle.np.contract import inner as inner
from treadle.np.contract import kron as kron
from treadle.np.contract import matmul as matmul
from treadle.np.contract import matvec as matvec
from treadle.np.contract import outer as outer
from treadle.np.contract import tensordot as tensordot
from treadle.np.contract import vdot as vdot
from treadle.np.contract import vecdot as vecdot
from treadle.np.contract import vecmat as vecmat
from treadle.np.creation import arange as arange
from treadle.np.creation import array as array
from treadle.np.creation import asarray as asarray
from treadle.np.creation import astype as astype
from treadle.np.creation import copy as copy
from treadle.np.creation import empty as empty
from treadle.np.creation import empty_like as empty_like
from treadle.np.creation import from_dlpack as from_dlpack
from treadle.np.creation import full as full
from treadle.np.creation import full_like as full_like
from treadle.np.creation import linspace as linspace
from treadle.np.creation import logspace as logspace
from treadle.np.creation import ones as ones
from treadle.np.creation import ones_like as ones_like
from treadle.np.creation import zeros as zeros
from treadle.np.creation import zeros_like as zeros_like
from treadle.np.elementwise import abs as abs
from treadle.np.elementwise import absolute as absolute
from treadle.np.elementwise import acos as acos
from treadle.np.elementwise import acosh as acosh
from treadle.np.elementwise import arccos as arccos
from treadle.np.elementwise import arccosh as arccosh
from treadle.np.elementwise import arcsin as arcsin
from treadle.np.elementwise import arcsinh as arcsinh
from treadle.np.elementwise import arctan as arctan
from treadle.np.elementwise import arctanh as arctanh
from treadle.np.elementwise import asin as asin
from treadle.np.elementwise import asinh as asinh
from treadle.np.elementwise import atan as atan
from treadle.np.elementwise import atanh as atanh
from treadle.np.elementwise import bitwise_not as bitwise_not
from treadle.np.elementwise import cbrt as cbrt
from treadle.np.elementwise import ceil as ceil
from treadle.np.elementwise import cos as cos
from treadle.np.elementwise import cosh as cosh
from treadle.np.elementwise import deg2rad as deg2rad
from treadle.np.elementwise import degrees as degrees
from treadle.np.elementwise import exp as exp
from treadle.np.elementwise import exp2 as exp2
from treadle.np.elementwise import expm1 as expm1
from treadle.np.elementwise import floor as floor
from treadle.np.elementwise import invert as invert
from treadle.np.elementwise import isfinite as isfinite
from treadle.np.elementwise import isinf as isinf
from treadle.np.elementwise import isnan as isnan
from treadle.np.elementwise import isneginf as isneginf
from treadle.np.elementwise import isposinf as isposinf
from treadle.np.elementwise import log as log
from treadle.np.elementwise import log1p as log1p
from treadle.np.elementwise import log2 as log2
from treadle.np.elementwise import log10 as log10
from treadle.np.elementwise import logical_not as logical_not
from treadle.np.elementwise import nan_to_num as nan_to_num
from treadle.np.elementwise import negative as negative
from treadle.np.elementwise import positive as positive
from treadle.np.elementwise import rad2deg as rad2deg
from treadle.np.elementwise import radians as radians
from treadle.np.elementwise import reciprocal as reciprocal
from treadle.np.elementwise import rint as rint
from treadle.np.elementwise import round as round
from treadle.np.elementwise import sign as sign
from treadle.np.elementwise import signbit as signbit
from treadle.np.elementwise import sin as sin
from treadle.np.elementwise import sinc as sinc
from treadle.np.elementwise import sinh as sinh
from treadle.np.elementwise import sqrt as sqrt
from treadle.np.elementwise import square as square
from treadle.np.elementwise import tan as tan
from treadle.np.elementwise import tanh as tanh
from treadle.np.elementwise import trunc as trunc
from treadle.np.formula import einsum as einsum
from treadle.np.indexing import dynamic_slice_axis as dynamic_slice_axis
from treadle.np.indexing import dynamic_update_axis as dynamic_update_axis
from treadle.np.indexing import take as take
from treadle.np.indexing import take_along_axis as take_along_axis
from treadle.np.join import append as append
from treadle.np.join import array_split as array_split
from treadle.np.join import column_stack as column_stack
from treadle.np.join import concat as concat
from treadle.np.join import concatenate as concatenate
from treadle.np.join import dstack as dstack
from treadle.np.join import hsplit as hsplit
from treadle.np.join import hstack as hstack
from treadle.np.join import split as split
from treadle.np.join import stack as stack
from treadle.np.join import unstack as unstack
from treadle.np.join import vsplit as vsplit
from treadle.np.join import vstack as vstack
from treadle.np.logic import allclose as allclose
from treadle.np.logic import array_equal as array_equal
from treadle.np.logic import isclose as isclose
from treadle.np.matrices import diag as diag
from treadle.np.matrices import diag_indices as diag_indices
from treadle.np.matrices import diagonal as diagonal
from treadle.np.matrices import eye as eye
from treadle.np.matrices import identity as identity
from treadle.np.matrices import indices as indices
from treadle.np.matrices import meshgrid as meshgrid
from treadle.np.matrices import trace as trace
from treadle.np.matrices import tri as tri
from treadle.np.matrices import tril as tril
from treadle.np.matrices import tril_indices as tril_indices
from treadle.np.matrices import triu as triu
from treadle.np.matrices import triu_indices as triu_indices
from treadle.np.matrices import vander as vander
from treadle.np.operands import ArrayLike as ArrayLike
from treadle.np.operands import promote_types as promote_types
from treadle.np.operands import result_type as result_type
from treadle.np.order import argsort as argsort
from treadle.np.order import median as median
from treadle.np.order import percentile as percentile
from treadle.np.order import quantile as quantile
from treadle.np.order import sort as sort
from treadle.np.order import top_k as top_k
from treadle.np.rearrange import pad as pad
from treadle.np.rearrange import repeat as repeat
from treadle.np.rearrange import roll as roll
from treadle.np.rearrange import tile as tile
from treadle.np.reductions import all as all
from treadle.np.reductions import amax as amax
from treadle.np.reductions import amin as amin
from treadle.np.reductions import any as any
from treadle.np.reductions import argmax as argmax
from treadle.np.reductions import argmin as argmin
from treadle.np.reductions import count_nonzero as count_nonzero
from treadle.np.reductions import max as max
from treadle.np.reductions import min as min
from treadle.np.reductions import prod as prod
from treadle.np.reductions import ptp as ptp
from treadle.np.reductions import sum as sum
from treadle.np.search import argwhere as argwhere
from treadle.np.search import bincount as bincount
from treadle.np.search import cumprod as cumprod
from treadle.np.search import cumsum as cumsum
from treadle.np.search import diff as diff
from treadle.np.search import digitize as digitize
from treadle.np.search import flatnonzero as flatnonzero
from treadle.np.search import interp as interp
from treadle.np.search import isin as isin
from treadle.np.search import nonzero as nonzero
from treadle.np.search import ravel_multi_index as ravel_multi_index
from treadle.np.search import searchsorted as searchsorted
from treadle.np.search import select as select
from treadle.np.search import trapezoid as trapezoid
from treadle.np.search import unique as unique
from treadle.np.search import unravel_index as unravel_index
from treadle.np.search import where as where
from treadle.np.shapes import atleast_1d as atleast_1d
from treadle.np.shapes import atleast_2d as atleast_2d
from treadle.np.shapes import atleast_3d as atleast_3d
from treadle.np.shapes import broadcast_arrays as broadcast_arrays
from treadle.np.shapes import broadcast_shapes as broadcast_shapes
from treadle.np.shapes import broadcast_to as broadcast_to
from treadle.np.shapes import expand_dims as expand_dims
from treadle.np.shapes import flip as flip
from treadle.np.shapes import fliplr as fliplr
from treadle.np.shapes import flipud as flipud
from treadle.np.shapes import matrix_transpose as matrix_transpose
from treadle.np.shapes import moveaxis as moveaxis
from treadle.np.shapes import ndim as ndim
from treadle.np.shapes import permute_dims as permute_dims
from treadle.np.shapes import ravel as ravel
from treadle.np.shapes import reshape as reshape
from treadle.np.shapes import rot90 as rot90
from treadle.np.shapes import shape as shape
from treadle.np.shapes import size as size
from treadle.np.shapes import squeeze as squeeze
from treadle.np.shapes import swapaxes as swapaxes
from treadle.np.shapes import transpose as transpose
from treadle.np.statistics import average as average
from treadle.np.statistics import corrcoef as corrcoef
from treadle.np.statistics import cov as cov
from treadle.np.statistics import mean as mean
from treadle.np.statistics import nanargmax as nanargmax
from treadle.np.statistics import nanargmin as nanargmin
from treadle.np.statistics import nanmax as nanmax
from treadle.np.statistics import nanmean as nanmean
from treadle.np.statistics import nanmin as nanmin
from treadle.np.statistics import nanprod as nanprod
from treadle.np.statistics import nanstd as nanstd
from treadle.np.statistics import nansum as nansum
from treadle.np.statistics import nanvar as nanvar
from treadle.np.statistics import std as std
from treadle.np.statistics import var as var
from treadle.run.array import Array as Array

methods.ours.update(
    {
        getattr(_numpy, name): ours
        for name, ours in list(globals().items())
        if callable(ours) and callable(getattr(_numpy, name, None))
    }
)

# The folder can't be called `numpy`: it would hide NumPy from code that runs beside it.
_sys.modules.setdefault("treadle.numpy", _sys.modules[__name__])
_sys.modules.setdefault("treadle.numpy.linalg", linalg)
_sys.modules.setdefault("treadle.numpy.special", special)

_suggest("treadle.numpy")
_suggest("treadle.numpy.linalg")
_suggest("treadle.numpy.special")
