"""Files of weights from elsewhere: read into dicts of arrays, and into modules.

>>> from treadle import nn, rng, weights
>>> model = nn.MLP((2, 8, 1), key=rng.key(0))
>>> weights.save("model.safetensors", model)
>>> model = weights.into(model, weights.load("model.safetensors"))
"""

from treadle.names import suggest as _suggest
from treadle.weights.files import load as load
from treadle.weights.files import metadata as metadata
from treadle.weights.files import save as save
from treadle.weights.modules import into as into
from treadle.weights.modules import of as of
from treadle.weights.rules import AS_IS as AS_IS
from treadle.weights.rules import TORCH as TORCH
from treadle.weights.rules import Layout as Layout
from treadle.weights.rules import Merge as Merge
from treadle.weights.rules import Rule as Rule
from treadle.weights.torch_names import torch_rules as torch_rules

_suggest(__name__)
