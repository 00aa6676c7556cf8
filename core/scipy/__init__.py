"""`treadle.scipy`: what SciPy has, on arrays, with derivatives."""

from treadle.scipy import integrate as integrate
from treadle.scipy import ndimage as ndimage
from treadle.scipy import optimize as optimize
from treadle.scipy import sparse as sparse
from treadle.scipy import special as special
from treadle.scipy import stats as stats
