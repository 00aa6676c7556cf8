"""Every bit of many results, to compare two versions of Treadle.

    python benchmarks/fingerprint.py before.npz
    python benchmarks/fingerprint.py after.npz --like before.npz

The first line writes what 500 random programs, their gradients, and 20 training steps
of each benchmark model and recipe give. The second, run with another version of Treadle
(this file may be run by that version's interpreter), computes the same programs again
and lists every result whose bits differ, with how far apart they are. Recipes that work
on files of the user's are left out.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1]))

import harness
import numpy as np
import workloads

import treadle as td
from tests.core.fuse.random_programs import Program, Step
from tests.core.fuse.random_rules import generate
from treadle.recipes import loop
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.errors import UsageError

PROGRAMS = 500
STEPS = 20

Results = dict[str, np.ndarray]


def leaves(values: Any) -> list[np.ndarray]:
    """The arrays of a pytree; those that NumPy's files don't know, as integers."""
    arrays = [np.asarray(x) for x in td.tree.leaves(values)]
    return [x.view(np.uint16) if x.dtype.name == "bfloat16" else x for x in arrays]


def digest(values: Any) -> np.ndarray:
    """A hash of all bits of a pytree's arrays."""
    total = hashlib.sha256()
    for x in leaves(values):
        total.update(np.ascontiguousarray(x).tobytes())
    return np.frombuffer(total.digest(), np.uint8)


def save_program(name: str, program: Program) -> Results:
    """A program as arrays."""
    text = [step.text for step in program.steps]
    saved = {
        f"{name}/text": np.array(text),
        f"{name}/args": np.array([len(s.args) for s in program.steps]),
        f"{name}/values": np.array([a for s in program.steps for a in s.args], int),
        f"{name}/results": np.array(program.results),
        f"{name}/dtypes": np.array([x.dtype.name for x in program.inputs]),
    }
    inputs = leaves(program.inputs)
    return saved | {f"{name}/input{i}": x for i, x in enumerate(inputs)}


def load_program(name: str, saved: Results) -> Program:
    """The program that was saved."""
    ends = np.cumsum(saved[f"{name}/args"])
    values = [int(a) for a in saved[f"{name}/values"]]
    steps = [
        Step(str(text), tuple(values[end - n : end]))
        for text, n, end in zip(
            saved[f"{name}/text"], saved[f"{name}/args"], ends, strict=True
        )
    ]
    inputs = []
    for i, dtype in enumerate(saved[f"{name}/dtypes"]):
        x = saved[f"{name}/input{i}"]
        inputs.append(x.view(td.bfloat16) if dtype == "bfloat16" else x)
    return Program(inputs, steps, [int(r) for r in saved[f"{name}/results"]])


def attempt(function: Callable[..., Any], args: Any) -> list[np.ndarray]:
    """What a compiled function gives, or the kind of its error."""
    try:
        return leaves(td.jit(function)(*args))
    except Exception as error:
        return [np.array(type(error).__name__)]


def of_program(name: str, program: Program) -> Results:
    """The results of a random program, and its gradients."""
    args = program.arguments()
    found = {"value": attempt(program.function(), args)}
    if program.smooth() and "while_loop" not in program.source():
        found["gradient"] = attempt(program.gradient(), args)
    return {
        f"{name}/{kind}{i}": x
        for kind, arrays in found.items()
        for i, x in enumerate(arrays)
    }


def of_model(name: str) -> Results:
    """The losses and the last state of a benchmark's training."""
    step = workloads.build(name, "treadle")
    losses = np.array(harness.losses(step, STEPS))
    return {f"{name}/losses": losses, f"{name}/state": digest((step.model, step.state))}


def of_recipe(name: str) -> Results:
    """The losses and the last state of a recipe's training."""
    recipe = RECIPES[name]
    config = recipe.config()
    data = recipe.load(config)
    learner = loop.learner_of(recipe, config, data.facts)
    step, state = loop.make_step(learner), loop.beginning(learner, config).state
    batches, losses = data.batches.repeat(), []
    for _ in range(STEPS):
        state, metrics = step(state, next(batches))
        losses.append(float(metrics["loss"]))
    return {f"{name}/losses": np.array(losses), f"{name}/state": digest(state)}


def parts(programs: dict[str, Program]) -> Iterator[tuple[str, Results]]:
    """Everything that is computed, part by part."""
    for name, program in programs.items():
        yield name, of_program(name, program)
    for name in workloads.NAMES:
        if getattr(workloads.load(name), "trains", True):
            yield name, of_model(name)
    for name in RECIPES:
        try:
            yield name, of_recipe(name)
        except UsageError as error:
            print(f"{name} is left out: {str(error).splitlines()[0]}", flush=True)


def difference(a: np.ndarray, b: np.ndarray) -> str:
    """How two results differ; empty if they have the same bits."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{a.dtype}{a.shape} became {b.dtype}{b.shape}"
    if a.tobytes() == b.tobytes():
        return ""
    if a.dtype.kind != "f":
        return "other values"
    with np.errstate(all="ignore"):
        scale = np.nanmax(np.abs(a), initial=1e-30)
        far = np.nanmax(np.abs(a - b), initial=0.0) / scale
    return f"{far:.1e} of the largest apart"


def main() -> None:
    """Write results; list differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="where the results are written")
    parser.add_argument("--like", type=Path, help="results to compare with")
    parser.add_argument("--programs", type=int, default=PROGRAMS)
    options = parser.parse_args()
    before: Results = dict(np.load(options.like)) if options.like else {}
    names = [n.removesuffix("/text") for n in before if n.endswith("/text")]
    if before:
        programs = {name: load_program(name, before) for name in names}
    else:
        programs = {f"program {i}": generate(i) for i in range(options.programs)}
    results: Results = {}
    for name, program in programs.items():
        results |= save_program(name, program)
    count = 0
    for part, found in parts(programs):
        results |= found
        for name, x in found.items() if before else ():
            if name not in before:
                print(f"{name}: new")
            elif change := difference(before[name], x):
                count += 1
                print(f"{name}: {change}", flush=True)
                if part in programs:
                    print("    " + programs[part].source().replace("\n", "\n    "))
    np.savez_compressed(options.file, **results)  # type: ignore[arg-type]
    if before:
        print(f"{count} of {len(results)} results differ")


if __name__ == "__main__":
    main()
