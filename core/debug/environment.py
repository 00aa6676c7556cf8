"""What a report of a fault should say of the machine and of the installation."""

from __future__ import annotations

import builtins
import importlib
import os
import platform
import sys

from treadle.api.entry import compiler
from treadle.backends.objects import default_store
from treadle.run.device import default

_PACKAGES = ("treadle", "numpy", "ml_dtypes", "llvmlite")


def print_environment_info(*, return_string: bool = False) -> str | None:
    """Prints what a report of a fault should have: versions, CPU, threads, the folder
    of the cache, and all settings in the environment.

    Args:
      return_string: give the text rather than print it.

    >>> import treadle as td
    >>> text = td.print_environment_info(return_string=True)
    >>> "numpy" in text
    True
    """
    device = default()
    rows = {name: _version(name) for name in _PACKAGES}
    rows["python"] = f"{platform.python_implementation()} {sys.version}"
    rows["platform"] = platform.platform()
    rows["device"] = device.name
    rows |= compiler().TARGETS[device.name].described()
    folder = default_store().folder
    rows["cache"] = "none" if folder is None else str(folder)
    settings = sorted(name for name in os.environ if name.startswith("TREADLE_"))
    rows |= {name: repr(os.environ[name]) for name in settings}
    width = max(map(len, rows))
    text = "\n".join([f"{k:<{width}}  {' '.join(v.split())}" for k, v in rows.items()])
    if return_string:
        return text
    builtins.print(text)
    return None


def _version(package: str) -> str:
    # It takes along a fifth of what importing the library costs.
    metadata = importlib.import_module("importlib.metadata")
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
