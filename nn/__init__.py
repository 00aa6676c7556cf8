"""Modules that are pytrees, layers, and what is done with them.

>>> from treadle import nn, rng
>>> nn.MLP((2, 16, 1), key=rng.key(0)).layers[-1]
Linear(in_features=16, out_features=1, weight=f32[16,1], bias=f32[1])
"""

from treadle.names import suggest as _suggest
from treadle.nn import init as init
from treadle.nn.cast import cast as cast
from treadle.nn.check import PrecisionWarning as PrecisionWarning
from treadle.nn.check import operands as operands
from treadle.nn.freeze import freeze as freeze
from treadle.nn.freeze import metadata as metadata
from treadle.nn.freeze import tagged as tagged
from treadle.nn.freeze import unfreeze as unfreeze
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
from treadle.nn.functions.pool import adaptive_avg_pool as adaptive_avg_pool
from treadle.nn.functions.pool import adaptive_max_pool as adaptive_max_pool
from treadle.nn.functions.pool import avg_pool as avg_pool
from treadle.nn.functions.pool import global_avg_pool as global_avg_pool
from treadle.nn.functions.pool import global_max_pool as global_max_pool
from treadle.nn.functions.pool import lp_pool as lp_pool
from treadle.nn.functions.pool import max_pool as max_pool
from treadle.nn.functions.pool import min_pool as min_pool
from treadle.nn.layers.activation import PReLU as PReLU
from treadle.nn.layers.activation import RReLU as RReLU
from treadle.nn.layers.adapters import Adapter as Adapter
from treadle.nn.layers.adapters import LoRA as LoRA
from treadle.nn.layers.adapters import lora as lora
from treadle.nn.layers.adapters import merge_lora as merge_lora
from treadle.nn.layers.attention import attention as attention
from treadle.nn.layers.batch_norm import BatchNorm as BatchNorm
from treadle.nn.layers.batch_norm import InstanceNorm as InstanceNorm
from treadle.nn.layers.cells import GRUCell as GRUCell
from treadle.nn.layers.cells import LSTMCell as LSTMCell
from treadle.nn.layers.cells import SimpleCell as SimpleCell
from treadle.nn.layers.conv import Conv1d as Conv1d
from treadle.nn.layers.conv import Conv2d as Conv2d
from treadle.nn.layers.conv import Conv3d as Conv3d
from treadle.nn.layers.conv import ConvTranspose1d as ConvTranspose1d
from treadle.nn.layers.conv import ConvTranspose2d as ConvTranspose2d
from treadle.nn.layers.conv import ConvTranspose3d as ConvTranspose3d
from treadle.nn.layers.conv_lstm import ConvLSTMCell as ConvLSTMCell
from treadle.nn.layers.dropout import AlphaDropout as AlphaDropout
from treadle.nn.layers.dropout import Dropout as Dropout
from treadle.nn.layers.dropout import DropPath as DropPath
from treadle.nn.layers.dropout import GaussianDropout as GaussianDropout
from treadle.nn.layers.dropout import GaussianNoise as GaussianNoise
from treadle.nn.layers.einsum import Einsum as Einsum
from treadle.nn.layers.einsum import LinearGeneral as LinearGeneral
from treadle.nn.layers.embed import Embedding as Embedding
from treadle.nn.layers.embed import EmbeddingBag as EmbeddingBag
from treadle.nn.layers.experts import MixtureOfExperts as MixtureOfExperts
from treadle.nn.layers.experts import balance_loss as balance_loss
from treadle.nn.layers.feedforward import FeedForward as FeedForward
from treadle.nn.layers.feedforward import GatedMLP as GatedMLP
from treadle.nn.layers.kv_cache import ContextCache as ContextCache
from treadle.nn.layers.kv_cache import KVCache as KVCache
from treadle.nn.layers.kv_cache import with_cache as with_cache
from treadle.nn.layers.linear import Bilinear as Bilinear
from treadle.nn.layers.linear import Linear as Linear
from treadle.nn.layers.masks import causal_mask as causal_mask
from treadle.nn.layers.masks import combine_masks as combine_masks
from treadle.nn.layers.masks import padding_mask as padding_mask
from treadle.nn.layers.masks import window_mask as window_mask
from treadle.nn.layers.mixer import MLPMixerBlock as MLPMixerBlock
from treadle.nn.layers.mlp import MLP as MLP
from treadle.nn.layers.multihead import MultiHeadAttention as MultiHeadAttention
from treadle.nn.layers.norm import GroupNorm as GroupNorm
from treadle.nn.layers.norm import LayerNorm as LayerNorm
from treadle.nn.layers.norm import RMSNorm as RMSNorm
from treadle.nn.layers.pool import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from treadle.nn.layers.pool import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from treadle.nn.layers.pool import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from treadle.nn.layers.pool import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from treadle.nn.layers.pool import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from treadle.nn.layers.pool import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from treadle.nn.layers.pool import AvgPool1d as AvgPool1d
from treadle.nn.layers.pool import AvgPool2d as AvgPool2d
from treadle.nn.layers.pool import AvgPool3d as AvgPool3d
from treadle.nn.layers.pool import LPPool1d as LPPool1d
from treadle.nn.layers.pool import LPPool2d as LPPool2d
from treadle.nn.layers.pool import LPPool3d as LPPool3d
from treadle.nn.layers.pool import MaxPool1d as MaxPool1d
from treadle.nn.layers.pool import MaxPool2d as MaxPool2d
from treadle.nn.layers.pool import MaxPool3d as MaxPool3d
from treadle.nn.layers.position_bias import ALiBi as ALiBi
from treadle.nn.layers.position_bias import RelativePositionBias as RelativePositionBias
from treadle.nn.layers.position_bias import alibi_slopes as alibi_slopes
from treadle.nn.layers.positions import PositionalEmbedding as PositionalEmbedding
from treadle.nn.layers.positions import SinusoidalEmbedding as SinusoidalEmbedding
from treadle.nn.layers.positions import sinusoidal as sinusoidal
from treadle.nn.layers.rnn import RNN as RNN
from treadle.nn.layers.rnn import Bidirectional as Bidirectional
from treadle.nn.layers.rnn import StackedRNN as StackedRNN
from treadle.nn.layers.rotary import LinearScaling as LinearScaling
from treadle.nn.layers.rotary import Llama3Scaling as Llama3Scaling
from treadle.nn.layers.rotary import RotaryEmbedding as RotaryEmbedding
from treadle.nn.layers.rotary import YarnScaling as YarnScaling
from treadle.nn.layers.sequential import Identity as Identity
from treadle.nn.layers.sequential import Lambda as Lambda
from treadle.nn.layers.sequential import Residual as Residual
from treadle.nn.layers.sequential import Sequential as Sequential
from treadle.nn.layers.shape import Flatten as Flatten
from treadle.nn.layers.shape import Pad as Pad
from treadle.nn.layers.shape import PixelShuffle as PixelShuffle
from treadle.nn.layers.shape import PixelUnshuffle as PixelUnshuffle
from treadle.nn.layers.shape import Unflatten as Unflatten
from treadle.nn.layers.shape import Upsample as Upsample
from treadle.nn.layers.stack import Stack as Stack
from treadle.nn.layers.transformer import TransformerDecoder as TransformerDecoder
from treadle.nn.layers.transformer import (
    TransformerDecoderBlock as TransformerDecoderBlock,
)
from treadle.nn.layers.transformer import TransformerEncoder as TransformerEncoder
from treadle.nn.layers.transformer import (
    TransformerEncoderBlock as TransformerEncoderBlock,
)
from treadle.nn.layers.vision import LocalResponseNorm as LocalResponseNorm
from treadle.nn.layers.vision import PatchEmbedding as PatchEmbedding
from treadle.nn.layers.vision import SqueezeExcite as SqueezeExcite
from treadle.nn.layers.weight_norm import SpectralNorm as SpectralNorm
from treadle.nn.layers.weight_norm import WeightNorm as WeightNorm
from treadle.nn.loss_scale import LossScale as LossScale
from treadle.nn.loss_scale import all_finite as all_finite
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
from treadle.nn.losses.similarity import cosine_embedding as cosine_embedding
from treadle.nn.losses.similarity import cosine_similarity as cosine_similarity
from treadle.nn.losses.similarity import hinge_embedding as hinge_embedding
from treadle.nn.losses.similarity import ntxent as ntxent
from treadle.nn.module import Module as Module
from treadle.nn.overview import summary as summary
from treadle.nn.precision import Precision as Precision
from treadle.nn.role import Buffer as Buffer
from treadle.nn.role import Param as Param
from treadle.nn.show import count as count
from treadle.nn.show import parameters as parameters
from treadle.nn.state import State as State
from treadle.nn.state import draw_key as draw_key
from treadle.nn.state import inference as inference
from treadle.nn.state import stateful as stateful
from treadle.nn.state import training as training
from treadle.nn.surgery import at as at
from treadle.nn.surgery import combine as combine
from treadle.nn.surgery import iterate as iterate
from treadle.nn.surgery import partition as partition
from treadle.nn.watch import capture as capture
from treadle.nn.watch import record as record

_suggest(__name__)
_suggest("treadle.nn.init")
