"""`treadle.numpy.special`: special functions of mathematics, elementwise."""

from treadle.names import suggest as _suggest
from treadle.np.special import *  # noqa: F403

_suggest("treadle.numpy.special")
