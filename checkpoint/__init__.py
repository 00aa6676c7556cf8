"""Checkpoints: pytrees on disk, complete or not there at all.

`save` and `restore` handle one; a `Manager` keeps the latest and the best of a run, and
saves in the background. They are in Orbax's format: plain Orbax restores what is saved
here, and what plain Orbax saved can be restored here.
"""

from treadle.checkpoint.items import Items, Json
from treadle.checkpoint.keep import Saved
from treadle.checkpoint.look import describe, metadata, types, verify, written_by
from treadle.checkpoint.manager import Manager
from treadle.checkpoint.manifest import DamagedError
from treadle.checkpoint.restore import restore
from treadle.checkpoint.save import Pending, save, save_async
from treadle.checkpoint.tools import compare, convert
from treadle.names import suggest as _suggest

__all__ = [
    "DamagedError",
    "Items",
    "Json",
    "Manager",
    "Pending",
    "Saved",
    "compare",
    "convert",
    "describe",
    "metadata",
    "restore",
    "save",
    "save_async",
    "types",
    "verify",
    "written_by",
]

_suggest(__name__)
