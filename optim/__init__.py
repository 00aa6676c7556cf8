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
from treadle.optim.adaptive import adadelta as adadelta
from treadle.optim.adaptive import adagrad as adagrad
from treadle.optim.adaptive import adamax as adamax
from treadle.optim.adaptive import adamaxw as adamaxw
from treadle.optim.adaptive import amsgrad as amsgrad
from treadle.optim.adaptive import nadam as nadam
from treadle.optim.adaptive import nadamw as nadamw
from treadle.optim.adaptive import scale_by_adadelta as scale_by_adadelta
from treadle.optim.adaptive import scale_by_adamax as scale_by_adamax
from treadle.optim.adaptive import scale_by_amsgrad as scale_by_amsgrad
from treadle.optim.adaptive import scale_by_rss as scale_by_rss
from treadle.optim.average import AverageState as AverageState
from treadle.optim.average import average_parameters as average_parameters
from treadle.optim.average import averaged as averaged
from treadle.optim.base import Transform as Transform
from treadle.optim.base import apply_updates as apply_updates
from treadle.optim.base import stateless as stateless
from treadle.optim.chain import chain as chain
from treadle.optim.chain import flatten as flatten
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
from treadle.optim.clean import keep_params_max_norm as keep_params_max_norm
from treadle.optim.clean import keep_params_nonnegative as keep_params_nonnegative
from treadle.optim.clean import normalize_by_update_norm as normalize_by_update_norm
from treadle.optim.clean import zero_nans as zero_nans
from treadle.optim.clip import adaptive_grad_clip as adaptive_grad_clip
from treadle.optim.clip import clip as clip
from treadle.optim.clip import clip_by_global_norm as clip_by_global_norm
from treadle.optim.clip import global_norm as global_norm
from treadle.optim.clip import safe_norm as safe_norm
from treadle.optim.clip import safe_root_mean_squares as safe_root_mean_squares
from treadle.optim.clip import unit_norm as unit_norm
from treadle.optim.conditional import ConditionalState as ConditionalState
from treadle.optim.conditional import SkipState as SkipState
from treadle.optim.conditional import apply_if_finite as apply_if_finite
from treadle.optim.conditional import conditionally_mask as conditionally_mask
from treadle.optim.conditional import conditionally_transform as conditionally_transform
from treadle.optim.conditional import skip_large_updates as skip_large_updates
from treadle.optim.curvature import SophiaState as SophiaState
from treadle.optim.curvature import scale_by_sophia as scale_by_sophia
from treadle.optim.curvature import sophia as sophia
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
from treadle.optim.factored import FactoredState as FactoredState
from treadle.optim.factored import adafactor as adafactor
from treadle.optim.factored import scale_by_factored_rms as scale_by_factored_rms
from treadle.optim.hyper import Hyperparameters as Hyperparameters
from treadle.optim.hyper import hyperparameters as hyperparameters
from treadle.optim.hyper import set_hyperparameters as set_hyperparameters
from treadle.optim.layerwise import clip_by_block_rms as clip_by_block_rms
from treadle.optim.layerwise import lamb as lamb
from treadle.optim.layerwise import lars as lars
from treadle.optim.layerwise import scale_by_param_block_rms as scale_by_param_block_rms
from treadle.optim.layerwise import scale_by_trust_ratio as scale_by_trust_ratio
from treadle.optim.lbfgs import LbfgsState as LbfgsState
from treadle.optim.lbfgs import lbfgs as lbfgs
from treadle.optim.lbfgs import scale_by_lbfgs as scale_by_lbfgs
from treadle.optim.line_search import LineSearchState as LineSearchState
from treadle.optim.line_search import (
    scale_by_backtracking_linesearch as scale_by_backtracking_linesearch,
)
from treadle.optim.line_search import (
    scale_by_zoom_linesearch as scale_by_zoom_linesearch,
)
from treadle.optim.line_search import (
    value_and_grad_from_state as value_and_grad_from_state,
)
from treadle.optim.mixes import adan as adan
from treadle.optim.mixes import ademamix as ademamix
from treadle.optim.mixes import adopt as adopt
from treadle.optim.mixes import scale_by_adan as scale_by_adan
from treadle.optim.mixes import scale_by_ademamix as scale_by_ademamix
from treadle.optim.mixes import scale_by_adopt as scale_by_adopt
from treadle.optim.mixes import (
    scale_by_simplified_ademamix as scale_by_simplified_ademamix,
)
from treadle.optim.mixes import simplified_ademamix as simplified_ademamix
from treadle.optim.moments import MomentState as MomentState
from treadle.optim.monitor import MonitorState as MonitorState
from treadle.optim.monitor import PlateauState as PlateauState
from treadle.optim.monitor import measurements as measurements
from treadle.optim.monitor import monitor as monitor
from treadle.optim.monitor import reduce_on_plateau as reduce_on_plateau
from treadle.optim.muon import MatrixAxes as MatrixAxes
from treadle.optim.muon import MuonState as MuonState
from treadle.optim.muon import muon as muon
from treadle.optim.muon import scale_by_muon as scale_by_muon
from treadle.optim.named import adam as adam
from treadle.optim.named import adamw as adamw
from treadle.optim.named import lion as lion
from treadle.optim.named import rmsprop as rmsprop
from treadle.optim.named import sgd as sgd
from treadle.optim.rounding import KahanState as KahanState
from treadle.optim.rounding import StochasticRoundingState as StochasticRoundingState
from treadle.optim.rounding import kahan as kahan
from treadle.optim.rounding import stochastic_rounding as stochastic_rounding
from treadle.optim.scale import ema as ema
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
from treadle.optim.signs import rprop as rprop
from treadle.optim.signs import scale_by_rprop as scale_by_rprop
from treadle.optim.signs import scale_by_sign as scale_by_sign
from treadle.optim.signs import sign_sgd as sign_sgd
from treadle.optim.signs import signum as signum
from treadle.optim.slow import LookaheadState as LookaheadState
from treadle.optim.slow import ScheduleFreeState as ScheduleFreeState
from treadle.optim.slow import lookahead as lookahead
from treadle.optim.slow import schedule_free as schedule_free
from treadle.optim.slow import schedule_free_adamw as schedule_free_adamw
from treadle.optim.slow import schedule_free_sgd as schedule_free_sgd
from treadle.optim.soap import SoapState as SoapState
from treadle.optim.soap import scale_by_soap as scale_by_soap
from treadle.optim.soap import soap as soap
from treadle.optim.step_size import ProdigyState as ProdigyState
from treadle.optim.step_size import polyak_sgd as polyak_sgd
from treadle.optim.step_size import prodigy as prodigy
from treadle.optim.step_size import scale_by_polyak as scale_by_polyak
from treadle.optim.target import incremental_update as incremental_update
from treadle.optim.target import periodic_update as periodic_update
from treadle.optim.variance import adabelief as adabelief
from treadle.optim.variance import novograd as novograd
from treadle.optim.variance import radam as radam
from treadle.optim.variance import scale_by_belief as scale_by_belief
from treadle.optim.variance import scale_by_novograd as scale_by_novograd
from treadle.optim.variance import scale_by_radam as scale_by_radam
from treadle.optim.variance import scale_by_yogi as scale_by_yogi
from treadle.optim.variance import yogi as yogi
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
