"""`treadle.scipy.optimize`: where functions are smallest."""

from treadle.scipy.optimize.minimize import OptimizeResults as OptimizeResults
from treadle.scipy.optimize.minimize import minimize as minimize

__all__ = ["OptimizeResults", "minimize"]
