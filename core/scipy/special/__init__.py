"""`treadle.scipy.special`: special functions, elementwise and differentiable.

    import treadle as td
    td.scipy.special.gammaln(x)

Names and arguments are those of `scipy.special`, as far as `jax.scipy.special` has
them. Integers are taken as float32; half floats are computed in float32.
"""

from treadle.scipy.special.bessel import bessel_jn as bessel_jn
from treadle.scipy.special.bessel import i0 as i0
from treadle.scipy.special.bessel import i0e as i0e
from treadle.scipy.special.bessel import i1 as i1
from treadle.scipy.special.bessel import i1e as i1e
from treadle.scipy.special.bessel import sph_harm_y as sph_harm_y
from treadle.scipy.special.complex_arguments import digamma as digamma
from treadle.scipy.special.complex_arguments import erf as erf
from treadle.scipy.special.complex_arguments import erfc as erfc
from treadle.scipy.special.complex_arguments import erfcx as erfcx
from treadle.scipy.special.complex_arguments import expit as expit
from treadle.scipy.special.complex_arguments import gamma as gamma
from treadle.scipy.special.complex_arguments import loggamma as loggamma
from treadle.scipy.special.elementary import boxcox as boxcox
from treadle.scipy.special.elementary import boxcox1p as boxcox1p
from treadle.scipy.special.elementary import entr as entr
from treadle.scipy.special.elementary import kl_div as kl_div
from treadle.scipy.special.elementary import logit as logit
from treadle.scipy.special.elementary import rel_entr as rel_entr
from treadle.scipy.special.elementary import xlog1py as xlog1py
from treadle.scipy.special.elementary import xlogy as xlogy
from treadle.scipy.special.error_functions import dawsn as dawsn
from treadle.scipy.special.error_functions import erfinv as erfinv
from treadle.scipy.special.error_functions import fresnel as fresnel
from treadle.scipy.special.error_functions import log_ndtr as log_ndtr
from treadle.scipy.special.error_functions import ndtr as ndtr
from treadle.scipy.special.error_functions import ndtri as ndtri
from treadle.scipy.special.error_functions import owens_t as owens_t
from treadle.scipy.special.error_functions import wofz as wofz
from treadle.scipy.special.gammas import bernoulli as bernoulli
from treadle.scipy.special.gammas import beta as beta
from treadle.scipy.special.gammas import betaln as betaln
from treadle.scipy.special.gammas import comb as comb
from treadle.scipy.special.gammas import factorial as factorial
from treadle.scipy.special.gammas import gammaln as gammaln
from treadle.scipy.special.gammas import gammasgn as gammasgn
from treadle.scipy.special.gammas import multigammaln as multigammaln
from treadle.scipy.special.gammas import poch as poch
from treadle.scipy.special.gammas import polygamma as polygamma
from treadle.scipy.special.gammas import zeta as zeta
from treadle.scipy.special.hypergeometric import hyp1f1 as hyp1f1
from treadle.scipy.special.hypergeometric import hyp2f1 as hyp2f1
from treadle.scipy.special.incomplete import betainc as betainc
from treadle.scipy.special.incomplete import gammainc as gammainc
from treadle.scipy.special.incomplete import gammaincc as gammaincc
from treadle.scipy.special.integrals import exp1 as exp1
from treadle.scipy.special.integrals import expi as expi
from treadle.scipy.special.integrals import expn as expn
from treadle.scipy.special.integrals import sici as sici
from treadle.scipy.special.integrals import spence as spence
from treadle.scipy.special.sums import log_softmax as log_softmax
from treadle.scipy.special.sums import logsumexp as logsumexp
from treadle.scipy.special.sums import softmax as softmax
