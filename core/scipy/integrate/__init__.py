"""`treadle.scipy.integrate`: differential equations, and integrals of samples."""

from treadle.np.running import trapezoid as trapezoid
from treadle.scipy.integrate.ode import odeint as odeint
from treadle.scipy.integrate.samples import (
    cumulative_trapezoid as cumulative_trapezoid,
)

__all__ = ["cumulative_trapezoid", "odeint", "trapezoid"]
