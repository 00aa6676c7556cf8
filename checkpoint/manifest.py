"""What a checkpoint says about itself: its tree, its leaves, their checksums.

It stands beside the data in ``treadle.json``, which carries a checksum of its own.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from treadle.checkpoint import naming, places
from treadle.checkpoint.naming import Path, Skeleton

FILE = "treadle.json"
_FORMAT = 1
_ABOUT = ("metadata", "written_by")


class DamagedError(RuntimeError):
    """A checkpoint is not what was saved: parts are missing or altered."""


@dataclass(frozen=True)
class Leaf:
    """What is known of a leaf without reading it.

    `python` is the type of a leaf that was a Python scalar. `inline` is the value of a
    leaf that the array store cannot hold. An empty array needs neither.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    crc32: int | None = None
    weak: bool = False
    python: str = ""
    inline: Any = None

    @property
    def is_stored(self) -> bool:
        """Whether there are elements in the array store."""
        return self.inline is None and 0 not in self.shape

    def __str__(self) -> str:
        if self.python:
            return f"Python {self.python}"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's tree, and its leaves with their names in the array store.

    `driver` and `ocdbt` say in which of the formats that Orbax uses the data lie;
    `zeros_stored`, whether a missing chunk is lost, rather than zero. `metadata` is
    the user's.
    """

    tree: Skeleton
    leaves: tuple[Leaf, ...]
    names: tuple[str, ...]
    driver: str = "zarr3"
    ocdbt: bool = True
    zeros_stored: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)
    written_by: dict[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> list[Path]:
        """The path of each leaf."""
        return naming.leaf_paths(self.tree)


def describe(skeleton: Skeleton, leaves: list[Leaf], **about: Any) -> Manifest:
    """The manifest of a checkpoint of ours; about: its metadata, what wrote it."""
    names = tuple(naming.store_name(path) for path in naming.leaf_paths(skeleton))
    return Manifest(skeleton, tuple(leaves), names, **about)


def write(directory: str, manifest: Manifest) -> None:
    """Writes the manifest, and returns when it is on the disk."""
    leaves = [
        {k: v for k, v in asdict(leaf).items() if v != getattr(Leaf, k)}
        for leaf in manifest.leaves
    ]
    body = {"format": _FORMAT, "tree": manifest.tree, "leaves": leaves}
    body |= {name: getattr(manifest, name) for name in _ABOUT}
    write_checked(os.path.join(directory, FILE), body)


def write_checked(path: str, body: Any) -> None:
    """Writes a small file that carries its checksum."""
    write_json(path, {"crc32": zlib.crc32(_canonical(body)), "manifest": body})


def read_checked(path: str) -> Any:
    """Reads what `write_checked` wrote.

    Raises:
      FileNotFoundError: if there is no such file.
      DamagedError: if it is incomplete or altered.
    """
    content = read_json(path)
    try:
        body = content["manifest"]
        intact = content["crc32"] == zlib.crc32(_canonical(body))
    except (KeyError, RecursionError, TypeError) as error:
        raise DamagedError(f"{path} is damaged: {error!r}") from error
    if not intact:
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    return body


def _canonical(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()


def write_json(path: str, content: Any) -> None:
    """Writes a small file, and returns when it is on the disk."""
    places.write(path, json.dumps(content).encode())


def read_json(path: str) -> Any:
    """Reads what `write_json` or Orbax wrote.

    Raises:
      FileNotFoundError: if there is no such file.
      DamagedError: if it is not JSON, or no file that can be read.
    """
    try:
        return json.loads(places.read(path).decode())
    except FileNotFoundError:
        raise
    except OSError as error:
        if places.is_remote(path):
            raise  # It is not the checkpoint that is at fault.
        raise DamagedError(f"{path} cannot be read: {error.strerror}") from error
    except (RecursionError, ValueError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from error


def read(directory: str) -> Manifest:
    """The manifest of a checkpoint of ours.

    Raises:
      FileNotFoundError: if there is none.
      DamagedError: if it is incomplete or altered.
    """
    path = os.path.join(directory, FILE)
    body = read_checked(path)
    if not isinstance(body, dict) or not {"format", "tree", "leaves"} <= body.keys():
        raise DamagedError(f"{path} is damaged: it describes no tree")
    if body["format"] > _FORMAT:
        raise ValueError(
            f"{path} has format {body['format']}; this version of Treadle reads "
            f"formats up to {_FORMAT}: upgrade it"
        )
    leaves = [
        Leaf(**{**leaf, "shape": tuple(leaf.get("shape", ()))})
        for leaf in body["leaves"]
    ]
    about = {name: body[name] for name in _ABOUT if name in body}
    return describe(body["tree"], leaves, **about)
