"""`treadle.numpy`: NumPy's functions on Treadle's arrays, traced or not.

    import treadle.numpy as tnp

Names, arguments and broadcasting are NumPy's; the array API standard is followed. What
differs: Python numbers are weak (they never widen an array's dtype), integers never
widen floats, defaults are float32 and int32, arrays are immutable, functions take
arrays rather than lists, and where a result's shape depends on values, a traced program
says with `size=` how many elements it wants.
"""

from treadle.names import suggest as _suggest
from treadle.np import *  # noqa: F403
from treadle.np import __array_api_version__ as __array_api_version__
from treadle.np import __array_namespace_info__ as __array_namespace_info__
from treadle.numpy import fft as fft
from treadle.numpy import linalg as linalg

_suggest("treadle.numpy")
