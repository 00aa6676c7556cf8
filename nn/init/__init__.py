"""Initialisers: ``init(key, shape, dtype)`` gives the first value of a parameter.

Weights have their input axis before their output axis, and what they slide over before
both: (..., in, out). `fan_in` is the number of inputs of one output.

Those without options are initialisers themselves (`glorot_uniform`), the others give
one (``xavier_uniform(gain=2.0)``). Names of JAX's draw normal numbers without their
tails, as JAX does (`glorot_normal`, `he_normal`), names of PyTorch's with them
(`xavier_normal`, `kaiming_normal`).
"""

from treadle.nn.init.basic import Initializer as Initializer
from treadle.nn.init.basic import bias_uniform as bias_uniform
from treadle.nn.init.basic import constant as constant
from treadle.nn.init.basic import normal as normal
from treadle.nn.init.basic import ones as ones
from treadle.nn.init.basic import sparse as sparse
from treadle.nn.init.basic import standard_normal as standard_normal
from treadle.nn.init.basic import truncated_normal as truncated_normal
from treadle.nn.init.basic import uniform as uniform
from treadle.nn.init.basic import zeros as zeros
from treadle.nn.init.matrices import delta_orthogonal as delta_orthogonal
from treadle.nn.init.matrices import dirac as dirac
from treadle.nn.init.matrices import eye as eye
from treadle.nn.init.matrices import orthogonal as orthogonal
from treadle.nn.init.scaling import calculate_gain as calculate_gain
from treadle.nn.init.scaling import fan_in_uniform as fan_in_uniform
from treadle.nn.init.scaling import fans as fans
from treadle.nn.init.scaling import glorot_normal as glorot_normal
from treadle.nn.init.scaling import glorot_uniform as glorot_uniform
from treadle.nn.init.scaling import he_normal as he_normal
from treadle.nn.init.scaling import he_uniform as he_uniform
from treadle.nn.init.scaling import kaiming_normal as kaiming_normal
from treadle.nn.init.scaling import kaiming_uniform as kaiming_uniform
from treadle.nn.init.scaling import lecun_normal as lecun_normal
from treadle.nn.init.scaling import lecun_uniform as lecun_uniform
from treadle.nn.init.scaling import variance_scaling as variance_scaling
from treadle.nn.init.scaling import xavier_normal as xavier_normal
from treadle.nn.init.scaling import xavier_uniform as xavier_uniform
