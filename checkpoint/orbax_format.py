"""Orbax's own description of a checkpoint, written and read without importing Orbax.

Orbax keeps it in ``_METADATA``. Ours says the same as our manifest, so that plain Orbax
restores our checkpoints; and without a manifest it is what we restore from.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from treadle.checkpoint import manifest as manifests
from treadle.checkpoint import naming, objects, places
from treadle.checkpoint.manifest import DamagedError, Manifest
from treadle.checkpoint.naming import Path, Skeleton, Step

FILE = "_METADATA"
STEP_FILE = "_CHECKPOINT_METADATA"
ITEM = "default"
METRICS = "metrics"
ABOUT = "treadle_step.json"
"""What a step says about itself, with a checksum; Orbax ignores it."""
ROOT = os.path.join("metadata", "_ROOT_METADATA")
_JSON = "metadata"
_CHECKED = "checked.json"
_STORED = ("np.ndarray", "scalar")
_AUTHOR = {"written_by": "treadle"}
_HANDLERS = "orbax.checkpoint._src.handlers."
_TREE_HANDLER = _HANDLERS + "standard_checkpoint_handler.StandardCheckpointHandler"
_JSON_HANDLER = _HANDLERS + "json_checkpoint_handler.JsonCheckpointHandler"


def write(directory: str, manifest: Manifest) -> None:
    """Describes a checkpoint of ours to Orbax."""
    entries = {}
    for path, end in naming.endings(manifest.tree):
        kind = _kind(end, manifest)
        keys = [
            {"key": naming.escape(step.text), "key_type": 1 if step.is_index else 2}
            for step in path
        ]
        entries[str(tuple(key["key"] for key in keys))] = {
            "key_metadata": keys,
            "value_metadata": {
                "value_type": kind,
                "skip_deserialize": kind not in _STORED,
            },
        }
    content = {
        "tree_metadata": entries,
        "use_ocdbt": manifest.ocdbt,
        "use_zarr3": manifest.driver == "zarr3",
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": {**manifest.metadata, **_AUTHOR},
    }
    manifests.write_json(os.path.join(directory, FILE), content)


def _kind(end: Skeleton, manifest: Manifest) -> str:
    """What Orbax calls the value at an end of the tree."""
    if isinstance(end, int):
        leaf = manifest.leaves[end]
        # What Orbax cannot hold is None to it: empty arrays, strings, huge integers.
        if not leaf.is_stored:
            return "None"
        return "np.ndarray" if leaf.python in ("", "complex") else "scalar"
    if isinstance(end, dict):
        return "Dict"
    return "List" if isinstance(end, list) else "None"


def write_step(
    directory: str,
    items: Mapping[str, bool],
    metrics: dict[str, float] | None,
    about: dict[str, Any],
) -> None:
    """Makes a folder that holds items a step of Orbax's CheckpointManager.

    Args:
      items: their names, and whether each is JSON.
      about: "metadata" of the user's, and what else is told.
    """
    handlers = {n: _JSON_HANDLER if j else _TREE_HANDLER for n, j in items.items()}
    if metrics is not None:
        handlers[METRICS] = _JSON_HANDLER
        _write_twice(os.path.join(directory, METRICS), METRICS, metrics)
    content = {
        "item_handlers": handlers,
        "metrics": {},
        "custom_metadata": about["metadata"],
    }
    about = {"items": sorted(items), **about}
    manifests.write_checked(os.path.join(directory, ABOUT), about)
    manifests.write_json(os.path.join(directory, STEP_FILE), content)


def _write_twice(folder: str, name: str, content: Any) -> None:
    """Orbax's files of JSON have no room for a checksum. So there are two."""
    places.make_folder(folder)
    manifests.write_json(os.path.join(folder, name), content)
    manifests.write_checked(os.path.join(folder, _CHECKED), content)


def write_json_item(folder: str, value: Any) -> None:
    """Writes an item of JSON."""
    _write_twice(folder, _JSON, value)


def is_json_item(folder: str) -> bool:
    """Whether an item is JSON."""
    return not is_item(folder) and any(
        places.has(os.path.join(folder, name)) for name in (_CHECKED, _JSON)
    )


def read_json_item(folder: str) -> Any:
    """The value of an item of JSON.

    Raises:
      DamagedError: if it is missing or altered.
    """
    with contextlib.suppress(FileNotFoundError):
        return manifests.read_checked(os.path.join(folder, _CHECKED))
    return manifests.read_json(os.path.join(folder, _JSON))


def verify_json_item(folder: str) -> None:
    """
    Raises:
      DamagedError: if an item of JSON is not what was saved, to us or to Orbax.
    """
    path = os.path.join(folder, _JSON)
    try:
        same = manifests.read_json(path) == read_json_item(folder)
    except FileNotFoundError as error:
        raise DamagedError(f"{path} is missing") from error
    if not same:
        raise DamagedError(f"{path} is not what was saved")


def about(directory: str) -> dict[str, Any]:
    """What a checkpoint, or a step, says about itself besides its tree: "metadata" of
    the user's and, in ours, "written_by" and "items".

    Raises:
      DamagedError: if that is damaged.
      FileNotFoundError: if there is no checkpoint.
    """
    with contextlib.suppress(FileNotFoundError):
        return dict(manifests.read_checked(os.path.join(directory, ABOUT)))
    with contextlib.suppress(FileNotFoundError):
        found = manifests.read(directory)
        return {"metadata": found.metadata, "written_by": found.written_by}
    for name in (STEP_FILE, FILE):
        with contextlib.suppress(FileNotFoundError):
            content = manifests.read_json(os.path.join(directory, name))
            return {"metadata": content.get("custom_metadata") or {}}
    raise FileNotFoundError(f"no checkpoint at {directory}")


def read_metrics(directory: str) -> dict[str, float]:
    """The metrics of a step: none if it was saved without, or they are damaged."""
    try:
        folder = os.path.join(objects.data_of(directory), METRICS)
    except FileNotFoundError:
        return {}
    for read, name in (
        (manifests.read_checked, _CHECKED),
        (manifests.read_json, METRICS),
    ):
        with contextlib.suppress(
            OSError, DamagedError, AttributeError, TypeError, ValueError
        ):
            found = read(os.path.join(folder, name))
            return {name: float(value) for name, value in found.items()}
    return {}


def is_checkpoint(path: str) -> bool:
    """Whether a folder bears the mark of a checkpoint, or of a step.

    Without a mark of its own, a folder of checkpoints and nothing else is a step: older
    versions of Orbax gave steps no mark.
    """
    if places.is_remote(path):
        return objects.committed(path) is not None
    try:
        names = set(os.listdir(path))
    except OSError:
        return False
    if names & {manifests.FILE, FILE, STEP_FILE, ABOUT} or objects.holds_data(names):
        return True
    items = items_in(path)
    return bool(items) and names <= {*items, METRICS, objects.MARKER}


def is_item(path: str) -> bool:
    """Whether a folder bears the mark of one checkpoint, with no items inside."""
    marks = (os.path.join(path, name) for name in (manifests.FILE, FILE))
    return any(places.has(mark) for mark in marks)


def items_in(step: str) -> list[str]:
    """The names of the pytrees inside a step."""
    return [name for name in places.names(step) if is_item(os.path.join(step, name))]


def all_items_in(step: str) -> list[str]:
    """The names of the items of a step, also of those that are lost."""
    found = {
        name
        for name in places.names(step)
        if name != METRICS
        and (
            is_item(os.path.join(step, name)) or is_json_item(os.path.join(step, name))
        )
    }
    with contextlib.suppress(FileNotFoundError):
        found |= set(about(step).get("items", ()))
    return sorted(found)


def find_item(directory: str, item: str | None = None) -> str:
    """The checkpoint inside a step; a checkpoint that is no step is itself one.

    Args:
      item: its name; by default ``default``, ``state``, or the only one.

    Raises:
      DamagedError: if it is lost.
      ValueError: if there is no such item, or there are several.
    """
    directory = objects.data_of(directory)
    if item is not None:
        inside = os.path.join(directory, item)
        if places.is_folder(directory) and not places.is_folder(inside):
            _check_not_lost(directory, item)
            raise ValueError(
                f"{directory} has no item {item!r}; there are "
                f"{_items_or_none(directory, every=True)}"
            )
        return inside
    if is_item(directory):
        return directory
    for name in (ITEM, "state"):
        if places.is_folder(os.path.join(directory, name)):
            return os.path.join(directory, name)
    items = _items_or_none(directory)
    if len(items) > 1:
        raise ValueError(
            f"{directory} has several items: {items}. Name one: restore(…, "
            f"item={items[0]!r})"
        )
    # What is left alone must not stand for what was asked.
    _check_not_lost(directory)
    return os.path.join(directory, *items)


def _check_not_lost(step: str, item: str | None = None) -> None:
    """
    Raises:
      DamagedError: if the item, or any, that a step says it has is gone.
    """
    with contextlib.suppress(FileNotFoundError):
        for name in about(step).get("items", ()):
            inside = os.path.join(step, name)
            if item in (None, name) and not places.is_folder(inside):
                raise DamagedError(f"{inside} is missing")


def _items_or_none(step: str, *, every: bool = False) -> list[str]:
    try:
        return all_items_in(step) if every else items_in(step)
    except OSError:
        return []


def read(directory: str) -> tuple[Manifest, list[str]]:
    """What Orbax says of a checkpoint, and which kind of value it calls each leaf.

    The shapes and dtypes of the leaves are not among it: they stand with the data.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      DamagedError: if the description is damaged, or the checkpoint is one of ours,
        whose manifest is lost.
    """
    path = os.path.join(directory, FILE)
    try:
        content = manifests.read_json(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no checkpoint at {directory}: there is neither {manifests.FILE} nor "
            f"{FILE} in it"
        ) from None
    if not isinstance(content, dict):
        raise DamagedError(f"{path} is damaged: it describes no tree")
    if _AUTHOR.items() <= (content.get("custom_metadata") or {}).items():
        raise DamagedError(f"{os.path.join(directory, manifests.FILE)} is missing")
    try:
        skeleton, names, kinds = _tree(content["tree_metadata"])
    except (
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise DamagedError(f"{path} is damaged: {error!r}") from error
    found = Manifest(
        skeleton,
        (),
        tuple(names),
        driver="zarr3" if content.get("use_zarr3") else "zarr",
        ocdbt=content.get("use_ocdbt", True),
        zeros_stored=content.get("store_array_data_equal_to_fill_value", False),
    )
    return found, kinds


def _tree(entries: dict[str, Any]) -> tuple[Skeleton, list[str], list[str]]:
    """The skeleton, and the names and kinds of the leaves in its order."""
    leaves: list[tuple[str, str]] = []
    root: Any = {}
    for entry in entries.values():
        keys, value = entry["key_metadata"], entry["value_metadata"]
        path = tuple(Step(str(key["key"]), key["key_type"] == 1) for key in keys)
        end: Any = {"Dict": {}, "List": [], "Tuple": []}.get(value["value_type"])
        if not value["skip_deserialize"]:
            end = len(leaves)
            leaves.append((".".join(s.text for s in path), value["value_type"]))
        root = _insert(root, path, end)
    listed = _close(root)
    order = [end for _, end in naming.endings(listed) if isinstance(end, int)]
    new_number = {old: new for new, old in enumerate(order)}
    names, kinds = ([leaves[old][i] for old in order] for i in (0, 1))
    return naming.decode(listed, new_number), names, kinds


def _insert(node: Any, path: Path, end: Skeleton) -> Any:
    if not path:
        return end
    node = node if isinstance(node, dict) else {}
    node[path[0]] = _insert(node.get(path[0]), path[1:], end)
    return node


def _close(node: Any) -> Skeleton:
    """Turns dicts whose keys are steps into dicts by name and lists."""
    if not isinstance(node, dict) or not node:
        return node
    # Orbax leaves out what holds nothing: then positions are names.
    if {step.text for step in node if step.is_index} == set(map(str, range(len(node)))):
        return [_close(node[s]) for s in sorted(node, key=lambda s: int(s.text))]
    return {step.text: _close(child) for step, child in node.items()}
