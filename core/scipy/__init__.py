"""`treadle.scipy`: what SciPy has, on arrays, with derivatives.

Linear algebra is in `treadle.numpy.linalg`; `linalg` here has SciPy's arguments.
"""

from treadle.scipy import cluster as cluster
from treadle.scipy import fft as fft
from treadle.scipy import integrate as integrate
from treadle.scipy import interpolate as interpolate
from treadle.scipy import linalg as linalg
from treadle.scipy import ndimage as ndimage
from treadle.scipy import optimize as optimize
from treadle.scipy import signal as signal
from treadle.scipy import sparse as sparse
from treadle.scipy import spatial as spatial
from treadle.scipy import special as special
from treadle.scipy import stats as stats
