"""Orbax's own checkpointers with modules, keys and states of optimizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint.experimental import v1

import treadle.checkpoint.orbax  # noqa: F401
import treadle.numpy as tnp
from tests.checkpoint.trees import assert_same
from treadle import Array, nn, optim, rng, tree
from treadle.checkpoint import Items, Manager, restore, save

pytestmark = pytest.mark.filterwarnings("ignore")


class Held(nn.Module):
    layer: nn.Linear


class Model(nn.Module):
    """Whatever a module may hold: layers without arrays, statics among layers, None,
    one layer in two places, cells of state, arrays in plain containers."""

    encoder: nn.Sequential
    mixed: tuple[Any, ...]
    extra: dict[str, Any]
    head: nn.Linear | None
    drop: nn.Dropout
    tied: nn.Linear
    tied_inside: Held

    def __init__(self, *, key: rng.Key) -> None:
        first, second = rng.split(key)
        self.encoder = nn.Sequential(
            nn.Linear(2, 3, key=first), nn.Dropout(0.5), nn.Linear(3, 3, key=second)
        )
        self.mixed = (nn.Dropout(0.1), "mode", nn.BatchNorm(3))
        self.extra = {"scales": (tnp.ones(3), [tnp.zeros(2, tnp.bfloat16)])}
        self.head = None
        self.drop = nn.Dropout(0.1)
        self.tied = self.encoder.layers[0]
        self.tied_inside = Held(self.encoder.layers[2])


def training(seed: int) -> dict[str, Any]:
    """Everything that a training goes on from."""
    model = Model(key=rng.key(seed))
    rate = optim.cosine_decay_schedule(1e-3, 100)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(rate))
    return {
        "model": model,
        "optimizer": tree.map(lambda x: x + seed, optimizer.init(model)),
        "key": rng.key(seed),
        "step": seed,
        "data": np.full(4, seed),
        "count": tnp.array(seed),
    }


def standard(path: Path, value: Any, like: Any) -> Any:
    with ocp.StandardCheckpointer() as made:
        made.save(path, value)
        made.wait_until_finished()
        return made.restore(path, like)


def pytrees(
    kind: Any = ocp.Checkpointer, chunk: int | None = None, **layout: Any
) -> Callable[[Path, Any, Any], Any]:
    def both(path: Path, value: Any, like: Any) -> Any:
        arguments = ocp.checkpoint_utils.construct_restore_args(like)
        handler = ocp.PyTreeCheckpointHandler(**layout)
        one = ocp.SaveArgs(chunk_byte_size=chunk)
        cut = jax.tree.map(lambda _: one, value) if chunk else None
        sizes = {"ocdbt_target_data_file_size": 1 << 12} if chunk else {}
        with kind(handler) as made:
            made.save(path, args=ocp.args.PyTreeSave(value, save_args=cut, **sizes))
            if kind is ocp.AsyncCheckpointer:
                made.wait_until_finished()
            return made.restore(
                path, args=ocp.args.PyTreeRestore(like, restore_args=arguments)
            )

    return both


def version_1(path: Path, value: Any, like: Any) -> Any:
    v1.save(path, value)
    return v1.load(path, like)


WAYS = {
    "standard": standard,
    "ocdbt": pytrees(use_ocdbt=True, use_zarr3=False),
    "ocdbt-zarr3": pytrees(use_ocdbt=True, use_zarr3=True),
    "files": pytrees(use_ocdbt=False, use_zarr3=False),
    "files-zarr3": pytrees(use_ocdbt=False, use_zarr3=True),
    "uncompressed": pytrees(use_ocdbt=True, use_compression=False),
    "small chunks": pytrees(use_ocdbt=True, use_zarr3=True, chunk=64),
    "small chunks, zarr 2": pytrees(use_ocdbt=True, use_zarr3=False, chunk=64),
    "async": pytrees(ocp.AsyncCheckpointer),
    "version 1": version_1,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpointer_of_orbax_saves_and_restores(way: str, tmp_path: Path) -> None:
    saved, like = training(3), training(0)
    assert_same(WAYS[way](tmp_path / "a", saved, like), saved)
    assert_same(restore(tmp_path / "a", like), saved)
    assert_same(
        restore(tmp_path / "a", {"key": like["key"]}, partial=True)["key"], saved["key"]
    )


HOWS: dict[str, dict[str, Any]] = {
    "default": {},
    "compressed": {"compression": 3},
    "small chunks": {"chunk_bytes": 8, "file_bytes": 1 << 10},
    "with metadata": {"metadata": {"k": 1}},
}


@pytest.mark.parametrize("how", HOWS)
def test_every_layout_of_ours_is_one_of_orbax_s(how: str, tmp_path: Path) -> None:
    saved, like = training(3), training(0)
    save(tmp_path / "a", saved, **HOWS[how])
    with ocp.StandardCheckpointer() as made:
        assert_same(made.restore(tmp_path / "a", like), saved)
    arguments = ocp.checkpoint_utils.construct_restore_args(like)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as plain:
        args = ocp.args.PyTreeRestore(like, restore_args=arguments)
        assert_same(plain.restore(tmp_path / "a", args=args), saved)
    assert_same(v1.load(tmp_path / "a", like, checkpointable_name=None), saved)


def test_targets_without_elements(tmp_path: Path) -> None:
    """The shapes of a model, as JAX's and as ours, for what either has saved."""
    model, other = Model(key=rng.key(3)), Model(key=rng.key(0))
    jax_types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), other)
    our_types = tree.map(lambda x: x.type, other)
    standard(tmp_path / "theirs", model, other)
    save(tmp_path / "ours", model)
    for name in ("theirs", "ours"):
        for types in (jax_types, our_types):
            assert_same(restore(tmp_path / name, types), model)
        with ocp.StandardCheckpointer() as made:
            found = made.restore(tmp_path / name, jax_types)
        pairs = zip(tree.leaves(found), tree.leaves(model), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)


def test_items_with_modules_both_ways(tmp_path: Path) -> None:
    def parts(value: Any, args: Any) -> Any:
        return ocp.args.Composite(
            model=args(value["model"]), optimizer=args(value["optimizer"])
        )

    def items(value: Any) -> Items:
        return Items(model=value["model"], optimizer=value["optimizer"])

    with ocp.CheckpointManager(tmp_path) as theirs:
        theirs.save(1, args=parts(training(1), ocp.args.StandardSave))
    with Manager(tmp_path) as ours:
        found = ours.restore(items(training(0)))
        ours.save(2, items(training(2)))
    with ocp.CheckpointManager(tmp_path) as theirs:
        back = theirs.restore(2, args=parts(training(0), ocp.args.StandardRestore))
    for name in ("model", "optimizer"):
        assert_same(found[name], training(1)[name])
        assert_same(back[name], training(2)[name])


def test_what_we_save_a_checkpointer_of_orbax_restores(tmp_path: Path) -> None:
    saved, like = training(3), training(0)
    save(tmp_path / "a", saved)
    with ocp.StandardCheckpointer() as made:
        found = made.restore(tmp_path / "a", like)
    assert_same(found, saved)
    assert all(
        isinstance(a, Array) == isinstance(b, Array)
        for a, b in zip(tree.leaves(found), tree.leaves(saved), strict=True)
    )
    assert_same(v1.load(tmp_path / "a", like, checkpointable_name=None), saved)


NAMINGS: list[dict[str, Any]] = [
    {},
    {"step_format_fixed_length": 6},
    {"step_prefix": "ckpt"},
    {"step_prefix": "ckpt", "step_format_fixed_length": 3},
]


@pytest.mark.parametrize("item", [None, "state"])
@pytest.mark.parametrize(
    "naming",
    [
        *NAMINGS[::3],
        *(pytest.param(naming, marks=pytest.mark.slow) for naming in NAMINGS[1:3]),
    ],
    ids=str,
)
def test_one_run_with_orbax_s_manager_and_ours(
    tmp_path: Path, naming: dict[str, Any], item: str | None
) -> None:
    def to_save(value: Any) -> Any:
        args = ocp.args.StandardSave(value)
        return args if item is None else ocp.args.Composite(**{item: args})

    def found_in(manager: ocp.CheckpointManager, step: int, name: str | None) -> Any:
        args = ocp.args.StandardRestore(training(0))
        if name is None:
            return manager.restore(step, args=args)
        return manager.restore(step, args=ocp.args.Composite(**{name: args}))[name]

    options = ocp.CheckpointManagerOptions(**naming)
    with ocp.CheckpointManager(tmp_path, options=options) as theirs:
        theirs.save(5, args=to_save(training(5)))
        theirs.wait_until_finished()
        assert_same(found_in(theirs, 5, item), training(5))
    with Manager(tmp_path, **naming) as ours:
        assert_same(ours.restore(training(0), item=item), training(5))
        ours.save(12, training(12))
    with ocp.CheckpointManager(tmp_path, options=options) as theirs:
        assert list(theirs.all_steps()) == [5, 12]
        assert_same(found_in(theirs, 12, None), training(12))


def test_one_layer_in_two_places_stays_one(tmp_path: Path) -> None:
    model = Model(key=rng.key(1))
    found = standard(tmp_path / "a", model, Model(key=rng.key(0)))
    assert found.tied is found.encoder.layers[0]
    assert found.tied_inside.layer is found.encoder.layers[2]
    layer = nn.Linear(2, 2, key=rng.key(0))
    with pytest.raises(TypeError, match=r"`layers\.0` and, in a list, as `layers\.1`"):
        jax.tree.leaves(nn.Sequential(layer, layer))


def test_jax_knows_classes_that_are_defined_later() -> None:
    class Later(nn.Module):
        scale: Array

    doubled = jax.tree.map(lambda x: x * 2, Later(tnp.ones(2)))
    assert isinstance(doubled, Later) and (doubled.scale == 2).all()


def test_a_class_that_jax_knows_already_stays_as_it_is() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    def children(pair: Pair) -> tuple[tuple[Any, Any], None]:
        return (pair.a, pair.b), None

    jax.tree_util.register_pytree_node(Pair, children, lambda _, c: Pair(*c))
    tree.register(Pair, children, lambda _, c: Pair(*c))
    assert jax.tree.leaves(Pair(1, 2)) == [1, 2]
