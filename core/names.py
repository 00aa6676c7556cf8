"""What to say of a name that Treadle has elsewhere, or calls something else.

People come with other libraries' names in their hands: ``td.array``, ``nn.ReLU``,
``optim.Adam``. Where such a name is missing, the error says what to write instead.
"""

from __future__ import annotations

import difflib
import dis
import functools
import re
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from treadle import uncalled
from treadle.errors import at, user_source

_LISTS = (
    *("treadle", "treadle.numpy", "treadle.nn", "treadle.optim", "treadle.rng"),
    "treadle.metrics",
    "treadle.lax",
    "treadle.nn.init",
    "treadle.debug",
)
"""Modules that consist of public names; the others here define theirs."""
_BY_THEMSELVES = (
    *("treadle.data", "treadle.checkpoint", "treadle.models", "treadle.weights"),
)
"""Such modules, too, whose names nobody looks for elsewhere."""
_MODULES = (
    "treadle.tree",
    "treadle.np.fft",
    "treadle.np.linalg",
    "treadle.scipy.integrate",
    "treadle.scipy.ndimage",
    "treadle.scipy.optimize",
    "treadle.scipy.sparse.linalg",
    "treadle.optim.tree",
)
_PARTS = {
    "treadle.tree": ("treadle.structure", "treadle.matching", "treadle.selection")
}
"""Where else modules have public names from."""
_NEXT = {"treadle.tree": ("treadle.optim.tree",)}
"""Where else what is missing in a module is first looked for."""
_LAST = ("treadle.scipy.special", "treadle.scipy.stats")
"""Lists of names, too, many of which are short and mean something else elsewhere."""
_NUMPY = {"treadle.numpy": "np", "treadle.numpy.linalg": "np.linalg"}
_PREFIX = 4
_CLOSE = 0.8
_LINE = re.compile(r"([^=]+) =(?: ([\w.]+))?(?: \| (.+))?")
# Imported when they are first asked for: none pays for what it does not use.
_LATE = (
    *("nn", "optim", "rng", "metrics", "models", "weights", "data", "checkpoint"),
    "recipes",
)
# Only what is called something else: a name that is spelled alike is found by itself.
_SYNONYMS = {
    "adcheckpoint": "treadle.remat",
    "amp": "treadle.nn.Precision",
    "applyevery": "treadle.optim.multi_steps",
    "auroc": "treadle.metrics.ROCAUC",
    "autocast": "treadle.nn.Precision",
    "average": "treadle.metrics.Mean",
    "batchnorm1d": "treadle.nn.BatchNorm",
    "batchnorm2d": "treadle.nn.BatchNorm",
    "batchnorm3d": "treadle.nn.BatchNorm",
    "bceloss": "treadle.nn.binary_cross_entropy",
    "bcewithlogitsloss": "treadle.nn.binary_cross_entropy",
    "captureintermediates": "treadle.nn.capture",
    "cat": "treadle.numpy.concatenate",
    "chainedscheduler": "treadle.optim.product_schedule",
    "checkjvp": "treadle.check_grads",
    "checkpointdots": "treadle.dots_saveable",
    "checkpointmanager": "treadle.checkpoint.Manager",
    "checkvjp": "treadle.check_grads",
    "clipgradnorm": "treadle.optim.clip_by_global_norm",
    "clipgradvalue": "treadle.optim.clip",
    "compile": "treadle.jit",
    "concretizationtypeerror": "treadle.errors.TracerError",
    "conv": "treadle.nn.Conv2d",
    "convexkldivergence": "treadle.nn.generalized_kl_divergence",
    "convtranspose": "treadle.nn.ConvTranspose2d",
    "cosineannealinglr": "treadle.optim.cosine_decay_schedule",
    "cosineannealingwarmrestarts": "treadle.optim.cosine_restarts_schedule",
    "crossentropyloss": "treadle.nn.cross_entropy",
    "ctcloss": "treadle.nn.ctc",
    "customgradient": "treadle.custom_vjp",
    "cycliclr": "treadle.optim.cyclic_schedule",
    "dense": "treadle.nn.Linear",
    "densegeneral": "treadle.nn.LinearGeneral",
    "cuda": "treadle.devices",
    "dataloader": "treadle.data.Loader",
    "deviceget": "treadle.numpy.asarray",
    "diceloss": "treadle.nn.dice",
    "dotproductattention": "treadle.nn.attention",
    "dotswithnobatchdimssaveable": "treadle.dots_without_batch_saveable",
    "dropout1d": "treadle.nn.Dropout",
    "dropout2d": "treadle.nn.Dropout",
    "dropout3d": "treadle.nn.Dropout",
    "dynamiclossscale": "treadle.nn.LossScale",
    "dynamicscale": "treadle.nn.LossScale",
    "dtypelike": "treadle.dtypes.DTypeLike",
    "embed": "treadle.nn.Embedding",
    "exponentiallr": "treadle.optim.exponential_decay",
    "featurealphadropout": "treadle.nn.AlphaDropout",
    "filtergrad": "treadle.grad",
    "filterjit": "treadle.jit",
    "filtervalueandgrad": "treadle.value_and_grad",
    "filtervmap": "treadle.vmap",
    "flattenutil": "treadle.tree",
    "fromnumpy": "treadle.numpy.asarray",
    "frompretrained": "treadle.models.from_huggingface",
    "functional": "treadle.nn",
    "fwdandbwd": "treadle.vjp",
    "gradcheck": "treadle.check_grads",
    "gradscaler": "treadle.nn.LossScale",
    "gru": "treadle.nn.StackedRNN",
    "hardswish": "treadle.nn.hard_silu",
    "huberloss": "treadle.nn.huber",
    "inferencemode": "treadle.nn.inference",
    "initializers": "treadle.nn.init",
    "injecthyperparams": "treadle.optim.hyperparameters",
    "instancenorm1d": "treadle.nn.InstanceNorm",
    "instancenorm2d": "treadle.nn.InstanceNorm",
    "instancenorm3d": "treadle.nn.InstanceNorm",
    "keystr": "treadle.tree.key_name",
    "kldivloss": "treadle.nn.kl_divergence",
    "l1loss": "treadle.nn.absolute_error",
    "lambdalr": "treadle.optim.Schedule",
    "lgamma": "treadle.scipy.special.gammaln",
    "psi": "treadle.scipy.special.digamma",
    "linearlr": "treadle.optim.linear_schedule",
    "load": "treadle.checkpoint.restore",
    "loadcheckpoint": "treadle.checkpoint.restore",
    "loadfile": "treadle.weights.load",
    "loadstatedict": "treadle.weights.into",
    "lrscheduler": "treadle.optim.Schedule",
    "loralinear": "treadle.nn.LoRA",
    "lstm": "treadle.nn.StackedRNN",
    "makeattentionmask": "treadle.nn.padding_mask",
    "makecausalmask": "treadle.nn.causal_mask",
    "makejaxpr": "treadle.trace",
    "manualseed": "treadle.rng.key",
    "modulelist": "treadle.nn.Sequential",
    "mseloss": "treadle.nn.squared_error",
    "multimetric": "treadle.metrics.Collection",
    "multisteplr": "treadle.optim.piecewise_constant_schedule",
    "multitransform": "treadle.optim.partition",
    "nllloss": "treadle.nn.cross_entropy",
    "nograd": "treadle.stop_gradient",
    "onecyclelr": "treadle.optim.cosine_onecycle_schedule",
    "optimizedlstmcell": "treadle.nn.LSTMCell",
    "parameter": "treadle.nn.Param",
    "permute": "treadle.numpy.transpose",
    "perturb": "treadle.nn.capture",
    "pinballloss": "treadle.nn.quantile_error",
    "policy": "treadle.nn.Precision",
    "polynomiallr": "treadle.optim.polynomial_schedule",
    "prngkey": "treadle.rng.key",
    "promotedtype": "treadle.nn.operands",
    "pytreedef": "treadle.tree.Structure",
    "quantileloss": "treadle.nn.quantile_error",
    "rand": "treadle.rng.uniform",
    "randn": "treadle.rng.normal",
    "random": "treadle.rng",
    "randperm": "treadle.rng.permutation",
    "rankingsoftmaxloss": "treadle.nn.cross_entropy",
    "ravelpytree": "treadle.tree.ravel",
    "reducelronplateau": "treadle.optim.reduce_on_plateau",
    "registerpytreenode": "treadle.tree.register",
    "registerpytreenodeclass": "treadle.tree.register",
    "registerpytreewithkeys": "treadle.tree.register",
    "registerpytreewithkeysclass": "treadle.tree.register",
    "reflectionpad2d": "treadle.nn.Pad",
    "replicationpad2d": "treadle.nn.Pad",
    "replace": "treadle.nn.at",
    "restore": "treadle.checkpoint.restore",
    "rnncell": "treadle.nn.SimpleCell",
    "rotarypositionalembedding": "treadle.nn.RotaryEmbedding",
    "safeopen": "treadle.weights.load",
    "save": "treadle.checkpoint.save",
    "savecheckpoint": "treadle.checkpoint.save",
    "savefile": "treadle.weights.save",
    "savepretrained": "treadle.models.to_huggingface",
    "scaleddotproductattention": "treadle.nn.attention",
    "sequentiallr": "treadle.optim.join_schedules",
    "settozero": "treadle.optim.freeze",
    "shapedtypestruct": "treadle.ShapeDtype",
    "sigmoidfocalloss": "treadle.nn.binary_focal",
    "smoothl1loss": "treadle.nn.huber",
    "smoothlabels": "treadle.nn.cross_entropy",
    "snapshot": "treadle.optim.monitor",
    "softmaxcrossentropy": "treadle.nn.cross_entropy",
    "softmaxcrossentropywithintegerlabels": "treadle.nn.cross_entropy",
    "sow": "treadle.nn.record",
    "sparsecrossentropy": "treadle.nn.cross_entropy",
    "spatialdropout2d": "treadle.nn.Dropout",
    "spacetodepth": "treadle.nn.PixelUnshuffle",
    "special": "treadle.scipy.special",
    "statedict": "treadle.weights.of",
    "staticlossscale": "treadle.nn.LossScale",
    "steplr": "treadle.optim.piecewise_constant_schedule",
    "stochasticdepth": "treadle.nn.DropPath",
    "swish": "treadle.nn.silu",
    "syncbatchnorm": "treadle.nn.BatchNorm",
    "tabulate": "treadle.nn.summary",
    "tensor": "treadle.numpy.array",
    "tensordataset": "treadle.data.Loader",
    "tracerarrayconversionerror": "treadle.errors.TracerError",
    "tracerboolconversionerror": "treadle.errors.TracerError",
    "tracerintegerconversionerror": "treadle.errors.TracerError",
    "transformerdecoderlayer": "treadle.nn.TransformerDecoderBlock",
    "transformerencoderlayer": "treadle.nn.TransformerEncoderBlock",
    "treeall": "treadle.tree.all",
    "treeat": "treadle.nn.at",
    "treebroadcast": "treadle.tree.broadcast",
    "treeequal": "treadle.tree.equal",
    "treeflatten": "treadle.tree.flatten",
    "treeflattenwithpath": "treadle.tree.flatten_with_path",
    "treeleaves": "treadle.tree.leaves",
    "treeleaveswithpath": "treadle.tree.leaves_with_path",
    "treemap": "treadle.tree.map",
    "treemapwithpath": "treadle.tree.map_with_path",
    "treereduce": "treadle.tree.reduce",
    "treestructure": "treadle.tree.structure",
    "treetranspose": "treadle.tree.transpose",
    "treeunflatten": "treadle.tree.unflatten",
    "treeutil": "treadle.tree",
    "truncnormal": "treadle.nn.init.truncated_normal",
    "unexpectedtracererror": "treadle.errors.TracerError",
    "unitwisenorm": "treadle.optim.unit_norm",
    "welford": "treadle.metrics.Statistics",
    "zeropad2d": "treadle.nn.Pad",
}
_PLACES = {
    "core": "use `treadle.extend` for operations of your own; `treadle.typeof` and "
    "`treadle.is_traced` say what a value is",
    "experimental": "what is here has no name between: `treadle.io_callback`, "
    "`treadle.debug.checkify`, `treadle.scipy.integrate.odeint`",
    "export": "use `treadle.jit(f).lower(...)`: compiled programs are kept on the disk",
    "interpreters": "use `treadle.extend.primitive`: its rules are arguments",
    "jet": "not planned: `treadle.jvp` of `treadle.jvp` gives higher derivatives",
    "linearutil": "use `functools.partial` and closures: functions need no wrapper",
    "maps": "use `treadle.vmap` with `axis_name`",
    "monitoring": "use `treadle.debug.log_compiles`, and `treadle.jit(f).report()`",
    "ode": "use `treadle.scipy.integrate.odeint`",
    "pallas": "use `treadle.kernel`, or `treadle.extend.primitive`",
    "profiler": "use `treadle.profile`: a table, a picture and a Perfetto file",
    "sharding": "later: several devices and processes",
    "sparse": "not planned: `treadle.segment_sum` and `x.at[i].add` sum over edges; "
    "`treadle.scipy.sparse.linalg` solves with functions",
    "stages": "use `treadle.jit(f).trace(...)`, whose results have `.lower()` and "
    "`.compile()`",
    "util": "use Python's own: `zip(x, y, strict=True)`",
}
"""Modules of JAX that have no counterpart of one name, asked of ours for it."""
_PLACES_OF_OPTAX = {
    "assignment": "use SciPy's, outside of compiled programs",
    "contrib": "what is here has no name between: `optim.muon`, `optim.prodigy`",
    "losses": "losses are in `treadle.nn`: `nn.cross_entropy`, `nn.squared_error`",
    "schedules": "what is here has no name between: `optim.cosine_decay_schedule`",
    "transforms": "what is here has no name between: `optim.chain`, `optim.partition`",
    "treeutils": "use `treadle.optim.tree`: `optim.tree.add`, without `tree_` again",
}
_PLACES_OF_TORCH = {
    "utils": "use `treadle.optim.clip_by_global_norm` for `clip_grad_norm_`, "
    "`treadle.tree.ravel` for `parameters_to_vector`, `treadle.data.Loader` for "
    "`DataLoader`",
    "randomsplit": "split the examples by indices: `order = rng.permutation(key, n)`, "
    "then `data.Loader(td.tree.map(lambda x: x[order[:k]], examples), ...)`",
    "subset": "take the examples: `data.Loader(td.tree.map(lambda x: x[indices], "
    "examples), ...)`",
    "concatdataset": "join the examples: "
    "`td.tree.map(lambda *x: np.concatenate(x), first, second)`",
    "iterabledataset": "use `treadle.data.Stream`",
    "sampler": "a `treadle.data.Loader` has its order of `seed` and `shuffle`",
    "distributedsampler": "use `treadle.data.Loader(..., shard=(which, of_how_many))`",
    "defaultcollate": "use `treadle.data.stack`",
    "swautils": "use `treadle.optim.average_parameters`",
    "getlinearschedulewithwarmup": "use `treadle.optim.join_schedules` of two "
    "`treadle.optim.linear_schedule`",
    "getcosineschedulewithwarmup": "use `treadle.optim.warmup_cosine_decay_schedule`",
}
"""Modules and names of PyTorch's world that have no counterpart of one name."""
_ELSEWHERE = {
    ("treadle", "freeze"): "treadle.nn.freeze",
    ("treadle.nn", "select"): "treadle.tree.select",
}
"""What has another meaning where the name is known."""
_METHODS = {
    "apply": "Call it: `module(x)`; in training, `nn.stateful(module, key=key)(x)`.",
    "backward": "Derivatives are functions: `td.grad(loss)(module)`.",
    "cuda": "`treadle.devices()` lists the devices, `treadle.device_put` moves arrays.",
    "forward": "Call it: `module(x)`; in training, `nn.stateful(module, key=key)(x)`.",
    "eval": "`nn.inference(module)` is the module as it evaluates.",
    "init": "A module is made with its parameters: `Module(..., key=key)`.",
    "loadstatedict": "`weights.into(module, arrays)` gives a module with arrays by "
    "name (PyTorch's: with `weights.torch_rules(module)`); "
    "`checkpoint.restore(path, module)` one with what was saved here.",
    "modules": "`nn.iterate(module)` goes through them, with their paths.",
    "namedmodules": "`nn.iterate(module)` goes through them, with their paths.",
    "namedparameters": "`nn.parameters(module)` lists them with their names.",
    "parameters": "A module is the pytree of its parameters: `td.tree.leaves(module)`, "
    "`nn.parameters(module)`.",
    "statedict": "`weights.of(module)` is a dict of its arrays by name. To go on "
    "training later: `checkpoint.save(path, module)`.",
    "registerforwardhook": "`nn.capture(module)(x)` gives what its layers give.",
    "registerbuffer": "Assign it: `self.name = nn.Buffer(array)`.",
    "registerparameter": "Assign it: `self.name = array`, or `nn.Param(array, ...)`.",
    "requiresgrad": "`nn.freeze(module)` is the module with parameters that are not "
    "trained, `nn.unfreeze(module)` the way back.",
    "to": "`nn.cast(module, dtype)` gives it another dtype.",
    "train": "`nn.training(module)` is the module as it trains.",
    "zerograd": "Gradients are results of `td.grad`, and nothing keeps them.",
}
"""Methods of other libraries' modules, and what takes their place."""


def public(namespace: dict[str, Any]) -> list[str]:
    """The names of a module that are for its users, which the files of a package, its
    attributes, too, are not."""
    return [
        name
        for name, value in namespace.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]


def suggest(module: str) -> None:
    """From now on the errors of a module's missing names say what to use."""

    def __getattr__(name: str) -> Any:
        if (module, name) == ("treadle", "__version__"):
            return _version()
        if module == "treadle" and name in _LATE:
            return import_module(f"treadle.{name}")
        remedy = "" if name.startswith("_") else _remedy(module, name)
        where = at(user_source()) if remedy else ""
        message = f"{module} has no `{name}`{remedy}{where}"
        if remedy and _is_import(sys._getframe(1), f"{module}.{name}"):
            raise ImportError(message, name=name, path=module)
        raise AttributeError(message, name=name, obj=sys.modules[module])

    vars(sys.modules[module])["__getattr__"] = __getattr__
    if module == "treadle":
        known = vars(sys.modules[module])
        known["__dir__"] = lambda: sorted({*known, *_LATE})
    uncalled.mark(module)


def _is_import(frame: FrameType, path: str) -> bool:
    """Whether a frame is at ``from module import name``. Python would drop the message
    of an AttributeError there, and needs one if the name is a module that it has."""
    at_import = frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]
    return at_import and path not in sys.modules


def _version() -> str:
    """Treadle's; found late, as what reads it takes longer to import than all else."""
    metadata = import_module("importlib.metadata")
    version: str = metadata.version("treadle")
    sys.modules["treadle"].__dict__["__version__"] = version
    return version


def method_instead(name: str) -> str:
    """What takes the place of a method that other libraries' modules have, as a
    sentence, or nothing."""
    return _METHODS.get(_plain(name), "")


@functools.cache
def elsewhere() -> dict[str, dict[str, tuple[str, str]]]:
    """What to use in place of other libraries' names, and why, by the module that is
    asked for them."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for line in Path(__file__).with_name("elsewhere.txt").read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            matched: Any = _LINE.fullmatch(line)
            theirs, ours, why = matched.groups("")
            section.update(dict.fromkeys(theirs.split(), (ours, why)))
    return found


def _said(module: str, name: str) -> str:
    """What the file says of a name that is asked of a module."""
    ours, why = elsewhere().get(module, {}).get(name, ("", ""))
    use = f": use `{ours}`" if ours else ""
    return f"{use}: {why}" if why else use


def _remedy(module: str, name: str) -> str:
    found = instead(module, name)
    if (module, _plain(name)) in _ELSEWHERE:
        return f": use `{found}`"
    if said := _said(module, name):
        return said
    if place := _place(module, name):
        return f": {place}"
    theirs = f"{_NUMPY.get(module, '')}.{name}"
    unlike = not found.startswith(("treadle.numpy", "treadle.rng"))
    if module in _NUMPY and unlike and callable(_numpy_function(theirs)):
        return (
            f": use NumPy's, which gives an array of NumPy's; under jit or vmap: "
            f"`td.pure_callback({theirs}, td.ShapeDtype(shape, dtype), x)`"
        )
    if found:
        return f": use `{found}`"
    if near := _near(module, name):
        return f": did you mean `{near}`?"
    return next(filter(None, (_said(place, name) for place in elsewhere())), "")


def _place(module: str, name: str) -> str:
    """What is to be said of a module of JAX or Optax, or of PyTorch's world."""
    plain, places = _plain(name), dict[str, str]()
    if module in ("treadle", "treadle.extend"):
        places = _PLACES
    elif module == "treadle.optim":
        places = _PLACES_OF_OPTAX
    theirs = module in ("treadle", "treadle.nn", "treadle.optim", "treadle.data")
    return places.get(plain) or (_PLACES_OF_TORCH.get(plain, "") if theirs else "")


def _numpy_function(path: str) -> Any:
    found: Any = np
    for part in path.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def _near(module: str, name: str) -> str:
    """The public name of a module that begins like a missing one, or is near to it."""
    known = {
        _plain(key): f"{module}.{key}"
        for key, value in vars(sys.modules[module]).items()
        if _is_public(key, value, module)
    }
    plain = _plain(name)
    longer = [key for key in known if key.startswith(plain)]
    if len(plain) >= _PREFIX and len(longer) == 1:
        return known[longer[0]]
    close = difflib.get_close_matches(plain, known, n=1, cutoff=_CLOSE)
    return known[close[0]] if close else ""


def instead(module: str, name: str) -> str:
    """The full name of what is meant by a name that a module lacks, or nothing."""
    if (module, _plain(name)) in _ELSEWHERE:
        return _ELSEWHERE[module, _plain(name)]
    # First: `load` of a checkpoint is meant, where `treadle.numpy` has one, too.
    if synonym := _SYNONYMS.get(_plain(name)):
        return synonym
    alike = ""
    near = (module, *_NEXT.get(module, ()))
    for place in (*near, *_LISTS, *_MODULES, *_LAST):
        for known, value in vars(import_module(place)).items():
            if _plain(known) == _plain(name) and _is_public(known, value, place):
                found = f"{place}.{known}".replace(".np.", ".numpy.")
                if known == name:
                    return found
                alike = alike or found
    return alike


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_public(name: str, value: Any, place: str) -> bool:
    if name.startswith("_") or isinstance(value, ModuleType):
        return False
    listed = vars(sys.modules[place]).get("__all__")
    if listed is not None:
        return name in listed
    home = place.replace(".numpy", ".np")
    return place in (*_LISTS, *_LAST, *_BY_THEMSELVES) or (
        getattr(value, "__module__", "") in (home, *_PARTS.get(place, ()))
    )
