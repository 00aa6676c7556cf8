"""Optimizers, gradient transforms and schedules.

An optimizer is a pair: ``init(params)`` gives its state, and
``update(grads, state, params)`` the updates and the next state; `apply_updates` adds
updates to parameters.
"""

from treadle.names import suggest as _suggest
from treadle.optim import tree as tree
from treadle.optim.accumulate import MultiStepsState as MultiStepsState
from treadle.optim.accumulate import has_updated as has_updated
from treadle.optim.accumulate import multi_steps as multi_steps
from treadle.optim.average import AverageState as AverageState
from treadle.optim.average import average_parameters as average_parameters
from treadle.optim.average import averaged as averaged
from treadle.optim.base import Transform as Transform
from treadle.optim.base import apply_updates as apply_updates
from treadle.optim.chain import chain as chain
from treadle.optim.chain import freeze as freeze
from treadle.optim.chain import groups as groups
from treadle.optim.chain import identity as identity
from treadle.optim.chain import masked as masked
from treadle.optim.chain import named_chain as named_chain
from treadle.optim.chain import partition as partition
from treadle.optim.clean import NoiseState as NoiseState
from treadle.optim.clean import ZeroNansState as ZeroNansState
from treadle.optim.clean import add_noise as add_noise
from treadle.optim.clean import centralize as centralize
from treadle.optim.clean import keep_params_nonnegative as keep_params_nonnegative
from treadle.optim.clean import normalize_by_update_norm as normalize_by_update_norm
from treadle.optim.clean import zero_nans as zero_nans
from treadle.optim.clip import adaptive_grad_clip as adaptive_grad_clip
from treadle.optim.clip import clip as clip
from treadle.optim.clip import clip_by_global_norm as clip_by_global_norm
from treadle.optim.clip import global_norm as global_norm
from treadle.optim.clip import safe_norm as safe_norm
from treadle.optim.clip import unit_norm as unit_norm
from treadle.optim.conditional import ConditionalState as ConditionalState
from treadle.optim.conditional import SkipState as SkipState
from treadle.optim.conditional import apply_if_finite as apply_if_finite
from treadle.optim.conditional import conditionally_mask as conditionally_mask
from treadle.optim.conditional import conditionally_transform as conditionally_transform
from treadle.optim.conditional import skip_large_updates as skip_large_updates
from treadle.optim.cycle import cosine_onecycle_schedule as cosine_onecycle_schedule
from treadle.optim.cycle import cosine_restarts_schedule as cosine_restarts_schedule
from treadle.optim.cycle import cyclic_schedule as cyclic_schedule
from treadle.optim.cycle import linear_onecycle_schedule as linear_onecycle_schedule
from treadle.optim.cycle import (
    piecewise_interpolate_schedule as piecewise_interpolate_schedule,
)
from treadle.optim.cycle import sgdr_schedule as sgdr_schedule
from treadle.optim.decay import add_decayed_weights as add_decayed_weights
from treadle.optim.decay import matrices as matrices
from treadle.optim.hyper import Hyperparameters as Hyperparameters
from treadle.optim.hyper import hyperparameters as hyperparameters
from treadle.optim.hyper import set_hyperparameters as set_hyperparameters
from treadle.optim.monitor import MonitorState as MonitorState
from treadle.optim.monitor import PlateauState as PlateauState
from treadle.optim.monitor import measurements as measurements
from treadle.optim.monitor import monitor as monitor
from treadle.optim.monitor import reduce_on_plateau as reduce_on_plateau
from treadle.optim.named import adam as adam
from treadle.optim.named import adamw as adamw
from treadle.optim.named import lion as lion
from treadle.optim.named import rmsprop as rmsprop
from treadle.optim.named import sgd as sgd
from treadle.optim.scale import AdamState as AdamState
from treadle.optim.scale import LionState as LionState
from treadle.optim.scale import RmsState as RmsState
from treadle.optim.scale import TraceState as TraceState
from treadle.optim.scale import scale as scale
from treadle.optim.scale import scale_by_adam as scale_by_adam
from treadle.optim.scale import scale_by_learning_rate as scale_by_learning_rate
from treadle.optim.scale import scale_by_lion as scale_by_lion
from treadle.optim.scale import scale_by_rms as scale_by_rms
from treadle.optim.scale import trace as trace
from treadle.optim.schedule import Schedule as Schedule
from treadle.optim.schedule import constant_schedule as constant_schedule
from treadle.optim.schedule import cosine_decay_schedule as cosine_decay_schedule
from treadle.optim.schedule import exponential_decay as exponential_decay
from treadle.optim.schedule import join_schedules as join_schedules
from treadle.optim.schedule import linear_schedule as linear_schedule
from treadle.optim.schedule import (
    piecewise_constant_schedule as piecewise_constant_schedule,
)
from treadle.optim.schedule import polynomial_schedule as polynomial_schedule
from treadle.optim.schedule import warmup_constant_schedule as warmup_constant_schedule
from treadle.optim.schedule import (
    warmup_cosine_decay_schedule as warmup_cosine_decay_schedule,
)
from treadle.optim.second_order import fisher_diag as fisher_diag
from treadle.optim.second_order import hessian_diag as hessian_diag
from treadle.optim.second_order import hvp as hvp
from treadle.optim.target import incremental_update as incremental_update
from treadle.optim.target import periodic_update as periodic_update
from treadle.optim.warmup import inverse_sqrt_schedule as inverse_sqrt_schedule
from treadle.optim.warmup import product_schedule as product_schedule
from treadle.optim.warmup import (
    warmup_exponential_decay_schedule as warmup_exponential_decay_schedule,
)
from treadle.optim.warmup import (
    warmup_stable_decay_schedule as warmup_stable_decay_schedule,
)

_suggest(__name__)
_suggest("treadle.optim.tree")
