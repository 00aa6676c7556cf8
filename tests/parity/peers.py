"""The libraries whose names are looked for here."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A module of a peer, and the modules of ours that are searched for its names."""

    theirs: str
    ours: tuple[str, ...]


class Peer(NamedTuple):
    """A library. name: how it calls itself; package: what is imported to know its
    version; places: its modules. Its page is ``docs/parity-<key>.md``, and what is said
    of its names in ``judged_names/<key>.txt``. note: what its page says of all."""

    key: str
    name: str
    package: str
    places: tuple[Place, ...]
    note: str = ""


_JAX = (
    Place("jax", ("treadle", "treadle.debug", "treadle.numpy")),
    Place("jax.lax", ("treadle.lax",)),
    Place("jax.lax.linalg", ("treadle.lax.linalg",)),
    Place("jax.numpy", ("treadle.numpy",)),
    Place("jax.numpy.linalg", ("treadle.numpy.linalg",)),
    Place("jax.numpy.fft", ("treadle.numpy.fft",)),
    Place("jax.random", ("treadle.rng",)),
    Place("jax.nn", ("treadle.nn", "treadle.numpy", "treadle.scipy.special")),
    Place("jax.nn.initializers", ("treadle.nn.init",)),
    Place("jax.scipy.special", ("treadle.scipy.special",)),
    Place("jax.scipy.stats", ("treadle.scipy.stats",)),
    Place("jax.scipy.linalg", ("treadle.scipy.linalg", "treadle.numpy.linalg")),
    Place("jax.scipy.signal", ("treadle.scipy.signal",)),
    Place("jax.scipy.fft", ("treadle.scipy.fft",)),
    Place("jax.scipy.optimize", ("treadle.scipy.optimize",)),
    Place("jax.scipy.sparse.linalg", ("treadle.scipy.sparse.linalg",)),
    Place("jax.scipy.integrate", ("treadle.scipy.integrate", "treadle.numpy")),
    Place("jax.scipy.interpolate", ("treadle.scipy.interpolate",)),
    Place("jax.scipy.ndimage", ("treadle.scipy.ndimage",)),
    Place("jax.scipy.cluster.vq", ("treadle.scipy.cluster.vq",)),
    Place("jax.scipy.spatial.transform", ("treadle.scipy.spatial.transform",)),
    Place("jax.tree", ("treadle.tree",)),
    Place("jax.tree_util", ("treadle.tree",)),
    Place("jax.flatten_util", ("treadle.tree",)),
    Place("jax.image", ("treadle.image",)),
    Place("jax.ops", ("treadle",)),
    Place("jax.debug", ("treadle.debug",)),
    Place("jax.profiler", ()),
    Place("jax.custom_derivatives", ("treadle",)),
    Place("jax.custom_batching", ("treadle",)),
    Place("jax.checkpoint_policies", ("treadle",)),
    Place("jax.ad_checkpoint", ("treadle",)),
    Place("jax.dtypes", ("treadle.dtypes", "treadle.numpy")),
)
_NN = ("treadle.nn", "treadle.nn.init", "treadle", "treadle.tree")
_OPTIM = ("treadle.optim", "treadle.nn", "treadle.tree")

_CHECKPOINT = ("treadle.checkpoint",)
_ORBAX_MODULES = (
    "",
    *(
        f".{name}"
        for name in (
            "args",
            "checkpoint_managers",
            "checkpoint_utils",
            "checkpointers",
            "handlers",
            "options",
            "type_handlers",
            "transform_utils",
            "metadata",
            "step",
            "tree",
            "utils",
            "arrays",
            "future",
            "serialization",
            "multihost",
            "logging",
            "aggregate_handlers",
            "msgpack_utils",
            "test_utils",
        )
    ),
    *(
        f".experimental.v1{name}"
        for name in (
            "",
            ".arrays",
            ".errors",
            ".handlers",
            ".multihost",
            ".options",
            ".path",
            ".training",
            ".tree",
        )
    ),
)

_KERAS = (
    Place("keras.Model", ()),
    *(Place(f"keras.Model.{f}()", ()) for f in ("compile", "fit", "evaluate")),
    Place("keras.Model.predict()", ()),
    Place("keras.callbacks", ("treadle.recipes",)),
    Place("keras.callbacks.Callback", ()),
    Place("keras.callbacks.EarlyStopping()", ()),
    Place("keras.callbacks.ModelCheckpoint()", ()),
    Place("keras.callbacks.TensorBoard()", ()),
    Place("keras.losses", ("treadle.nn",)),
    Place("keras.metrics", ("treadle.metrics", "treadle.nn")),
    Place("keras.optimizers", ("treadle.optim",)),
    Place("keras.optimizers.Optimizer()", ()),
    Place("keras.optimizers.schedules", ("treadle.optim",)),
)
_LIGHTNING = (
    Place("lightning.pytorch", ()),
    Place("lightning.pytorch.Trainer()", ()),
    Place("lightning.pytorch.Trainer", ()),
    Place("lightning.pytorch.LightningModule", ()),
    Place("lightning.pytorch.LightningDataModule", ()),
    Place("lightning.pytorch.Callback", ()),
    Place("lightning.pytorch.callbacks", ("treadle.recipes",)),
    Place("lightning.pytorch.loggers", ()),
    Place("lightning.pytorch.profilers", ()),
    Place("lightning.pytorch.strategies", ()),
    Place("lightning.pytorch.cli.LightningCLI()", ()),
    Place("lightning.pytorch.cli.LightningCLI", ()),
)

PEERS = (
    Peer("jax", "JAX", "jax", _JAX),
    Peer(
        "equinox",
        "Equinox",
        "equinox",
        (
            Place("equinox", _NN),
            Place("equinox.nn", ("treadle.nn",)),
            Place("equinox.debug", ("treadle.debug", "treadle.nn")),
        ),
        "Here a layer takes any leading axes (no `vmap` around it), and channels are "
        "last.",
    ),
    Peer(
        "nnx",
        "Flax NNX",
        "flax",
        (
            Place("flax.nnx", (*_NN, "treadle.metrics", "treadle.debug")),
            Place("flax.nnx.initializers", ("treadle.nn.init",)),
        ),
        "Here a module is a pytree that stays as it is, and is made with `key=` in "
        "place of `rngs=`; sizes come first.",
    ),
    Peer(
        "torch",
        "PyTorch",
        "torch",
        (
            Place("torch.nn", ("treadle.nn",)),
            Place("torch.nn.functional", ("treadle.nn", "treadle.numpy")),
            Place("torch.nn.init", ("treadle.nn.init",)),
            Place("torch.nn.utils", _NN),
            Place("torch.nn.utils.rnn", ()),
            Place("torch.nn.utils.parametrizations", ()),
            Place("torch.nn.utils.parametrize", ()),
            Place("torch.nn.utils.prune", ()),
            Place("torch.nn.utils.stateless", ()),
            Place("torch.optim", ("treadle.optim",)),
            Place("torch.optim.lr_scheduler", ("treadle.optim",)),
            Place("torch.optim.swa_utils", ("treadle.optim",)),
            Place("torch.func", ("treadle",)),
        ),
        "Here channels are last, a layer's weight is (in, out), losses give one value "
        "for each example and no mean, and what draws random numbers takes `key=`.",
    ),
    Peer(
        "optax",
        "Optax",
        "optax",
        (
            Place("optax", _OPTIM),
            Place("optax.contrib", ("treadle.optim",)),
            Place("optax.losses", ("treadle.nn",)),
            Place("optax.tree", ("treadle.optim.tree", "treadle.tree")),
            Place("optax.schedules", ("treadle.optim",)),
            Place("optax.transforms", ("treadle.optim",)),
            Place("optax.second_order", ("treadle.optim",)),
            Place("optax.projections", ()),
            Place("optax.perturbations", ()),
            Place("optax.assignment", ()),
        ),
        "Here every number of an optimizer is part of its state, and frozen parameters "
        "have no updates.",
    ),
    Peer(
        "orbax",
        "Orbax",
        "orbax.checkpoint",
        (
            *(Place(f"orbax.checkpoint{m}", _CHECKPOINT) for m in _ORBAX_MODULES),
            Place("orbax.checkpoint.experimental.v1.partial", ()),
        ),
        "Here options are arguments of `save`, `restore` and `Manager`, and templates "
        "say what is restored. Orbax's own checkpointers work, too, once "
        "`treadle.checkpoint.orbax` is imported.",
    ),
    Peer(
        "keras",
        "Keras",
        "keras",
        _KERAS,
        "Here a model knows nothing of its training: `treadle.recipes.fit` takes it, "
        "the data, the loss and the optimizer, and gives another one. Its layers are "
        "on no page yet: [coming from Keras](from-keras.md) shows some.",
    ),
    Peer(
        "lightning",
        "Lightning",
        "lightning.pytorch",
        _LIGHTNING,
        "Here a training is `treadle.recipes.fit` in Python, or a recipe with "
        "[the command line](command-line.md). What a hook is for is mostly a line of "
        "one's own step: `recipes.Learner` has the loss.",
    ),
)

WITH_MODULES = ("jax.scipy.stats", "treadle.scipy.stats")
"""Modules whose modules are names of them, too: distributions."""
