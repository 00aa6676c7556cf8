"""Modules that are pytrees, layers, and what is done with them.

>>> from treadle import nn, rng
>>> nn.MLP((2, 16, 1), key=rng.key(0)).layers[-1]
Linear(in_features=16, out_features=1, weight=f32[16,1], bias=f32[1])
"""

from treadle.names import suggest as _suggest
from treadle.nn import init as init
from treadle.nn.check import PrecisionWarning as PrecisionWarning
from treadle.nn.functions.activation import celu as celu
from treadle.nn.functions.activation import elu as elu
from treadle.nn.functions.activation import geglu as geglu
from treadle.nn.functions.activation import gelu as gelu
from treadle.nn.functions.activation import glu as glu
from treadle.nn.functions.activation import gumbel_softmax as gumbel_softmax
from treadle.nn.functions.activation import leaky_relu as leaky_relu
from treadle.nn.functions.activation import log1mexp as log1mexp
from treadle.nn.functions.activation import log_sigmoid as log_sigmoid
from treadle.nn.functions.activation import log_softmax as log_softmax
from treadle.nn.functions.activation import logmeanexp as logmeanexp
from treadle.nn.functions.activation import logsumexp as logsumexp
from treadle.nn.functions.activation import mish as mish
from treadle.nn.functions.activation import one_hot as one_hot
from treadle.nn.functions.activation import quick_gelu as quick_gelu
from treadle.nn.functions.activation import reglu as reglu
from treadle.nn.functions.activation import relu as relu
from treadle.nn.functions.activation import relu6 as relu6
from treadle.nn.functions.activation import selu as selu
from treadle.nn.functions.activation import sigmoid as sigmoid
from treadle.nn.functions.activation import silu as silu
from treadle.nn.functions.activation import softmax as softmax
from treadle.nn.functions.activation import softmin as softmin
from treadle.nn.functions.activation import softplus as softplus
from treadle.nn.functions.activation import softsign as softsign
from treadle.nn.functions.activation import swiglu as swiglu
from treadle.nn.functions.activation import tanh as tanh
from treadle.nn.functions.normalize import normalize as normalize
from treadle.nn.functions.normalize import standardize as standardize
from treadle.nn.functions.piecewise import hard_shrink as hard_shrink
from treadle.nn.functions.piecewise import hard_sigmoid as hard_sigmoid
from treadle.nn.functions.piecewise import hard_silu as hard_silu
from treadle.nn.functions.piecewise import hard_tanh as hard_tanh
from treadle.nn.functions.piecewise import soft_shrink as soft_shrink
from treadle.nn.functions.piecewise import sparse_plus as sparse_plus
from treadle.nn.functions.piecewise import sparse_sigmoid as sparse_sigmoid
from treadle.nn.functions.piecewise import squareplus as squareplus
from treadle.nn.functions.piecewise import tanh_shrink as tanh_shrink
from treadle.nn.functions.piecewise import threshold as threshold
from treadle.nn.layers.activation import PReLU as PReLU
from treadle.nn.layers.activation import RReLU as RReLU
from treadle.nn.layers.attention import MultiHeadAttention as MultiHeadAttention
from treadle.nn.layers.attention import attention as attention
from treadle.nn.layers.batch_norm import BatchNorm as BatchNorm
from treadle.nn.layers.batch_norm import InstanceNorm as InstanceNorm
from treadle.nn.layers.conv import Conv2d as Conv2d
from treadle.nn.layers.dropout import AlphaDropout as AlphaDropout
from treadle.nn.layers.dropout import Dropout as Dropout
from treadle.nn.layers.dropout import DropPath as DropPath
from treadle.nn.layers.dropout import GaussianDropout as GaussianDropout
from treadle.nn.layers.dropout import GaussianNoise as GaussianNoise
from treadle.nn.layers.embed import Embedding as Embedding
from treadle.nn.layers.linear import Linear as Linear
from treadle.nn.layers.mlp import MLP as MLP
from treadle.nn.layers.norm import GroupNorm as GroupNorm
from treadle.nn.layers.norm import LayerNorm as LayerNorm
from treadle.nn.layers.norm import RMSNorm as RMSNorm
from treadle.nn.layers.pool import AvgPool2d as AvgPool2d
from treadle.nn.layers.pool import MaxPool2d as MaxPool2d
from treadle.nn.layers.pool import avg_pool as avg_pool
from treadle.nn.layers.pool import global_avg_pool as global_avg_pool
from treadle.nn.layers.pool import max_pool as max_pool
from treadle.nn.layers.rnn import GRUCell as GRUCell
from treadle.nn.layers.rnn import LSTMCell as LSTMCell
from treadle.nn.layers.sequential import Sequential as Sequential
from treadle.nn.layers.weight_norm import SpectralNorm as SpectralNorm
from treadle.nn.layers.weight_norm import WeightNorm as WeightNorm
from treadle.nn.losses.classification import (
    binary_cross_entropy as binary_cross_entropy,
)
from treadle.nn.losses.classification import binary_focal as binary_focal
from treadle.nn.losses.classification import cross_entropy as cross_entropy
from treadle.nn.losses.classification import focal as focal
from treadle.nn.losses.classification import (
    generalized_kl_divergence as generalized_kl_divergence,
)
from treadle.nn.losses.classification import kl_divergence as kl_divergence
from treadle.nn.losses.classification import poly_cross_entropy as poly_cross_entropy
from treadle.nn.losses.ctc import ctc as ctc
from treadle.nn.losses.margin import hinge as hinge
from treadle.nn.losses.margin import margin_ranking as margin_ranking
from treadle.nn.losses.margin import multi_margin as multi_margin
from treadle.nn.losses.margin import multiclass_hinge as multiclass_hinge
from treadle.nn.losses.margin import squared_hinge as squared_hinge
from treadle.nn.losses.margin import triplet_margin as triplet_margin
from treadle.nn.losses.regression import absolute_error as absolute_error
from treadle.nn.losses.regression import gaussian_nll as gaussian_nll
from treadle.nn.losses.regression import huber as huber
from treadle.nn.losses.regression import log_cosh as log_cosh
from treadle.nn.losses.regression import poisson_nll as poisson_nll
from treadle.nn.losses.regression import quantile_error as quantile_error
from treadle.nn.losses.regression import squared_error as squared_error
from treadle.nn.losses.segmentation import dice as dice
from treadle.nn.losses.similarity import cosine_distance as cosine_distance
from treadle.nn.losses.similarity import cosine_similarity as cosine_similarity
from treadle.nn.losses.similarity import ntxent as ntxent
from treadle.nn.module import Module as Module
from treadle.nn.show import count as count
from treadle.nn.show import parameters as parameters
from treadle.nn.show import summary as summary
from treadle.nn.state import State as State
from treadle.nn.state import draw_key as draw_key
from treadle.nn.state import inference as inference
from treadle.nn.state import stateful as stateful
from treadle.nn.state import training as training
from treadle.nn.surgery import at as at
from treadle.nn.surgery import combine as combine
from treadle.nn.surgery import partition as partition

_suggest(__name__)
_suggest("treadle.nn.init")
