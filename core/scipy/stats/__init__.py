"""`treadle.scipy.stats`: distributions, and numbers that describe samples.

    import treadle as td
    td.scipy.stats.norm.logpdf(x, loc=1.0)

Names and arguments are those of `scipy.stats`, as far as `jax.scipy.stats` has them.
Samples are drawn by `treadle.rng`.
"""

from treadle.scipy.stats.continuous import beta as beta
from treadle.scipy.stats.continuous import cauchy as cauchy
from treadle.scipy.stats.continuous import chi2 as chi2
from treadle.scipy.stats.continuous import expon as expon
from treadle.scipy.stats.continuous import gamma as gamma
from treadle.scipy.stats.continuous import gennorm as gennorm
from treadle.scipy.stats.continuous import gumbel_l as gumbel_l
from treadle.scipy.stats.continuous import gumbel_r as gumbel_r
from treadle.scipy.stats.continuous import laplace as laplace
from treadle.scipy.stats.continuous import logistic as logistic
from treadle.scipy.stats.continuous import norm as norm
from treadle.scipy.stats.continuous import pareto as pareto
from treadle.scipy.stats.continuous import t as t
from treadle.scipy.stats.continuous import truncnorm as truncnorm
from treadle.scipy.stats.continuous import uniform as uniform
from treadle.scipy.stats.continuous import vonmises as vonmises
from treadle.scipy.stats.continuous import wrapcauchy as wrapcauchy
from treadle.scipy.stats.discrete import bernoulli as bernoulli
from treadle.scipy.stats.discrete import betabinom as betabinom
from treadle.scipy.stats.discrete import binom as binom
from treadle.scipy.stats.discrete import geom as geom
from treadle.scipy.stats.discrete import multinomial as multinomial
from treadle.scipy.stats.discrete import nbinom as nbinom
from treadle.scipy.stats.discrete import poisson as poisson
from treadle.scipy.stats.samples import ModeResult as ModeResult
from treadle.scipy.stats.samples import mode as mode
from treadle.scipy.stats.samples import rankdata as rankdata
from treadle.scipy.stats.samples import sem as sem
from treadle.scipy.stats.vectors import dirichlet as dirichlet
from treadle.scipy.stats.vectors import gaussian_kde as gaussian_kde
from treadle.scipy.stats.vectors import multivariate_normal as multivariate_normal
