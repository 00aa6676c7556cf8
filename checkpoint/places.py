"""Where checkpoints lie: folders of the file system, or of an object store by URL.

An object store has no folders and no renaming: a folder there is the beginning of the
names of objects.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any

import tensorstore as ts

Place = str | os.PathLike[str]

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<authority>[^/]*)/?(?P<rest>.*)")
_BROKEN_URL = re.compile(r"(s3|gs|memory|file):/(?!/)")
_RETRIES = {"max_retries": 6, "initial_delay": "200ms", "max_delay": "16s"}
# A store that is reached for the first time is soon known to be out of reach.
_FEW = {"max_retries": 2, "initial_delay": "100ms", "max_delay": "1s"}
_STORES = ("s3_request_retries", "gcs_request_retries", "http_request_retries")
OUT_OF_REACH = ("UNAVAILABLE", "PERMISSION_DENIED", "UNAUTHENTICATED", "DEADLINE")
"""How errors begin that are those of an object store, not of what is in it."""
_REMEDY = {
    "s3": "Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from "
    "~/.aws (AWS_PROFILE) or from the machine's role; the region from AWS_REGION; "
    "AWS_ENDPOINT_URL names a server other than Amazon's.",
    "gs": "Credentials come from GOOGLE_APPLICATION_CREDENTIALS, from `gcloud auth "
    "application-default login` or from the machine's service account.",
}


def is_remote(path: str) -> bool:
    """Whether a path is the URL of a place in an object store."""
    return _URL.match(path) is not None


def absolute(path: Place) -> str:
    """A path that means the same wherever the process goes; URLs stay as they are.

    Raises:
      ValueError: if it is a URL that no longer is one, or of no such store.

    >>> absolute("/runs/../run/"), absolute("s3://bucket/run/")
    ('/run', 's3://bucket/run')
    """
    text = os.fspath(path)
    if _BROKEN_URL.match(text):
        raise ValueError(
            f"{text!r} was a URL before it was made a pathlib.Path, which takes one of "
            "the slashes: pass the URL as a string"
        )
    text = text.removeprefix("file://")
    if not is_remote(text):
        return os.path.abspath(text)
    kvstore(text)
    return text.rstrip("/")


def kvstore(folder: str) -> dict[str, Any]:
    """What TensorStore calls a folder.

    Raises:
      ValueError: if it has no store for such URLs.
    """
    parts = _URL.fullmatch(folder)
    if parts is None:
        return {"driver": "file", "path": os.path.join(folder, "")}
    try:
        spec = ts.KvStore.Spec(f"{parts['scheme']}://{parts['authority']}/").to_json()
    except ValueError as error:
        reason = f"{folder} is no place for checkpoints: {_short(error)}"
        raise ValueError(
            f"{reason}. Places are folders, s3:// and gs:// URLs"
        ) from None
    rest = parts["rest"].strip("/")
    spec["path"] = spec.get("path", "") + (f"{rest}/" if rest else "")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3", os.environ.get("AWS_ENDPOINT_URL"))
    if spec["driver"] == "s3" and endpoint:
        region = os.environ.get("AWS_REGION", os.environ.get("AWS_DEFAULT_REGION"))
        spec |= {"endpoint": endpoint, "aws_region": region or "us-east-1"}
    return spec


_shared = ts.Context(dict.fromkeys(_STORES, _RETRIES))


def context() -> ts.Context:
    """With caches of its own, as what was read before may have been replaced; what a
    process has at ``memory://`` is the same in all."""
    return ts.Context(ts.Context.Spec({"cache_pool": {}}), _shared)


def _short(error: object) -> str:
    return str(error).partition(" [source locations=")[0].partition(" [tensor")[0]


def unreachable(folder: str, error: object) -> OSError:
    """The error for an object store that does not answer, or refuses."""
    scheme = folder.partition("://")[0]
    hint = f". {_REMEDY[scheme]}" if scheme in _REMEDY else ""
    return OSError(f"{folder} cannot be reached: {_short(error).rstrip('.')}{hint}")


@lru_cache(maxsize=64)
def _check_reachable(store: str) -> None:
    try:
        few = ts.Context(dict.fromkeys(_STORES, _FEW))
        ts.KvStore.open(kvstore(store), context=few).result().read("?").result()
    except ValueError as error:
        raise unreachable(store, error) from None


def opened(folder: str) -> ts.KvStore:
    """A folder of an object store.

    Raises:
      OSError: if it cannot be reached.
      ValueError: if there is no such kind of store.
    """
    spec = kvstore(folder)
    parts = _URL.fullmatch(folder)
    if parts is not None and spec["driver"] != "memory":
        _check_reachable(f"{parts['scheme']}://{parts['authority']}")
    return ts.KvStore.open(spec, context=_shared).result()


def read(path: str) -> bytes:
    """The content of a file.

    Raises:
      FileNotFoundError: if there is none.
      OSError: if it cannot be read.
    """
    if not is_remote(path):
        with open(path, "rb") as file:
            return file.read()
    folder, _, name = path.rpartition("/")
    try:
        found = opened(folder).read(name).result()
    except ValueError as error:
        raise unreachable(path, error) from error
    if found.state != "value":
        raise FileNotFoundError(f"no object {path}")
    return bytes(found.value)


def write(path: str, content: bytes) -> None:
    """Writes a small file, and returns when it is on the disk."""
    if is_remote(path):
        folder, _, name = path.rpartition("/")
        try:
            opened(folder).write(name, content).result()
        except ValueError as error:
            raise unreachable(path, error) from error
        return
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def below(folder: str) -> list[str]:
    """The names of all objects below a folder of an object store.

    Raises:
      OSError: if it cannot be reached.
    """
    try:
        return sorted(name.decode() for name in opened(folder).list().result())
    except ValueError as error:
        raise unreachable(folder, error) from error


def names(folder: str) -> list[str]:
    """What is in a folder, in order.

    Raises:
      FileNotFoundError: if there is no such folder.
      OSError: if it cannot be read.
    """
    if not is_remote(folder):
        return sorted(os.listdir(folder))
    found = sorted({name.partition("/")[0] for name in below(folder)})
    if not found:
        raise FileNotFoundError(f"nothing at {folder}")
    return found


def is_folder(path: str) -> bool:
    """Whether there is a folder; in an object store, one with something in it."""
    return bool(below(path)) if is_remote(path) else os.path.isdir(path)


def has(path: str) -> bool:
    """Whether there is a file."""
    if not is_remote(path):
        return os.path.lexists(path)
    try:
        read(path)
    except FileNotFoundError:
        return False
    return True


def make_folder(path: str) -> None:
    """Makes a folder and those above; object stores need none."""
    if not is_remote(path):
        os.makedirs(path, exist_ok=True)
