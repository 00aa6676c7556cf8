"""`treadle.scipy`: what SciPy has, on arrays, with derivatives."""

from treadle.scipy import special as special
from treadle.scipy import stats as stats
