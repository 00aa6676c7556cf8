"""Random numbers as pure functions of explicit keys.

    from treadle import rng

    key = rng.key(0)
    k1, k2 = rng.split(key)
    x = rng.normal(k1, (3, 4))

The bits are those of the Threefry-2x32 counter cipher, element by element: they depend
on the key and the element's number alone, not on threads, devices or shapes of batches.

Keys, bits, integers and uniform numbers are those of JAX 0.10 for the same key
(threefry2x32, partitionable), to the last bit. So are the other samples in float32 and
bfloat16, and in float16 all but `gumbel` and `logistic`. Those two, samples in float64,
`cauchy`, the samplers by rejection, and what is made of other samples by a formula
agree to rounding.
"""

from treadle.names import suggest as _suggest
from treadle.rng.continuous import cauchy as cauchy
from treadle.rng.continuous import exponential as exponential
from treadle.rng.continuous import gumbel as gumbel
from treadle.rng.continuous import laplace as laplace
from treadle.rng.continuous import logistic as logistic
from treadle.rng.counts import binomial as binomial
from treadle.rng.counts import geometric as geometric
from treadle.rng.counts import multinomial as multinomial
from treadle.rng.discrete import bernoulli as bernoulli
from treadle.rng.discrete import categorical as categorical
from treadle.rng.discrete import choice as choice
from treadle.rng.discrete import rademacher as rademacher
from treadle.rng.formulas import double_sided_maxwell as double_sided_maxwell
from treadle.rng.formulas import lognormal as lognormal
from treadle.rng.formulas import maxwell as maxwell
from treadle.rng.formulas import pareto as pareto
from treadle.rng.formulas import rayleigh as rayleigh
from treadle.rng.formulas import triangular as triangular
from treadle.rng.formulas import wald as wald
from treadle.rng.formulas import weibull_min as weibull_min
from treadle.rng.gammas import ball as ball
from treadle.rng.gammas import chisquare as chisquare
from treadle.rng.gammas import f as f
from treadle.rng.gammas import generalized_normal as generalized_normal
from treadle.rng.gammas import t as t
from treadle.rng.key import Key as Key
from treadle.rng.key import bits as bits
from treadle.rng.key import clone as clone
from treadle.rng.key import fold_in as fold_in
from treadle.rng.key import key as key
from treadle.rng.key import key_data as key_data
from treadle.rng.key import split as split
from treadle.rng.key import wrap_key_data as wrap_key_data
from treadle.rng.normal import normal as normal
from treadle.rng.normal import truncated_normal as truncated_normal
from treadle.rng.permute import permutation as permutation
from treadle.rng.rejection import beta as beta
from treadle.rng.rejection import dirichlet as dirichlet
from treadle.rng.rejection import gamma as gamma
from treadle.rng.rejection import loggamma as loggamma
from treadle.rng.rejection import poisson as poisson
from treadle.rng.uniform import randint as randint
from treadle.rng.uniform import uniform as uniform
from treadle.rng.vectors import multivariate_normal as multivariate_normal
from treadle.rng.vectors import orthogonal as orthogonal

_suggest(__name__)
