"""`treadle.scipy.integrate`: differential equations, and integrals of samples."""

from treadle.scipy.integrate.ode import odeint as odeint
