"""Runs what `recipes/README.md` states of the recipes, and checks it.

python benchmarks/recipes.py                    # all rows of its table
python benchmarks/recipes.py dp-sgd char-gpt    # those of some recipes
python benchmarks/recipes.py --curves           # and draw the curves on that page anew
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "recipes" / "README.md"
_ROW = re.compile(
    r"\| `treadle (?P<command>train (?P<recipe>\S+)[^`]*)` \| "
    r"(?P<metric>test [\w ]+) (?P<relation>[≥≤]) (?P<value>[\d.]+) \|"
)
_CURVE = (2.4, 1.2)


class Statement(NamedTuple):
    """A row of the page's table."""

    recipe: str
    command: list[str]
    metric: str
    least: bool
    value: float

    @property
    def curve(self) -> Path:
        """Its picture, beside the page."""
        words = re.findall(r"\w+", " ".join(self.command[1:]))
        return PAGE.parent / "curves" / f"{'-'.join(words)}.png"

    def holds(self, found: float) -> bool:
        return found >= self.value if self.least else found <= self.value


def statements(page: Path = PAGE) -> list[Statement]:
    """What the page states."""
    return [
        Statement(
            row["recipe"],
            shlex.split(row["command"]),
            row["metric"].replace(" ", "_"),
            row["relation"] == "≥",
            float(row["value"]),
        )
        for row in map(_ROW.match, page.read_text(encoding="utf-8").splitlines())
        if row
    ]


def write_digits(folder: Path) -> None:
    """The bundled digits as a user's own files: 28x28 pixels, as an NPZ, IDX files, and
    a folder of images."""
    bundled = load_digits()
    images = np.stack(
        [
            np.asarray(
                Image.fromarray((x * 255 / 16).astype(np.uint8)).resize((28, 28))
            )
            for x in bundled.images
        ]
    )
    labels = bundled.target.astype(np.uint8)
    np.savez(folder / "digits.npz", x=images, y=labels)
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        head = struct.pack(">HBB", 0, 8, content.ndim)
        head += struct.pack(f">{content.ndim}I", *content.shape)
        (folder / f"train-{name}-ubyte").write_bytes(head + content.tobytes())
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        of_class = folder / "digits" / str(label)
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(of_class / f"{number}.png")


def write_language(folder: Path) -> None:
    """A small GPT-2 of Hugging Face's form, which has learnt from Python's sources, and
    Python's own manual, of which it has seen nothing."""
    example = ROOT / "examples" / "small_gpt2.py"
    subprocess.run(
        [sys.executable, str(example), "base"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    manual = "\n\n".join(text for _, text in sorted(topics.items()))
    (folder / "topics.txt").write_text(manual, encoding="utf-8")


class Found(NamedTuple):
    """What a command came to.

    value: the metric at its end; NaN if it failed.
    seconds, cpu: what it took, and of the processor.
    """

    value: float
    seconds: float
    cpu: float


def reproduce(stated: Statement, folder: Path, curves: bool) -> Found:
    """Runs a command."""
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    began, used = time.monotonic(), processor()
    command = [sys.executable, "-m", "treadle.recipes", *stated.command]
    done = subprocess.run(
        [*command, "--run-dir", str(run)], cwd=folder, stdout=subprocess.DEVNULL
    )
    took = time.monotonic() - began, processor() - used
    if done.returncode:
        return Found(float("nan"), *took)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if stated.metric in row]
    if curves:
        draw(stated, [r["step"] for r in rows], [r[stated.metric] for r in rows])
    return Found(rows[-1][stated.metric], *took)


def processor() -> float:
    """How many seconds of processors the commands have taken so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


def draw(stated: Statement, steps: list[int], values: list[float]) -> None:
    """The metric over the steps, with what is stated, as a small picture."""
    figure = Figure(figsize=_CURVE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.axhline(stated.value, color="#999999", linewidth=0.8, linestyle="--")
    axes.plot(steps, values, color="#c4451c", linewidth=1.5, marker=".")
    axes.tick_params(labelsize=6)
    axes.set_title(stated.metric.replace("_", " "), fontsize=7)
    stated.curve.parent.mkdir(exist_ok=True)
    figure.savefig(stated.curve, dpi=80, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recipes", nargs="*", help="only rows of these")
    parser.add_argument("--curves", action="store_true", help="draw the curves anew")
    chosen = parser.parse_args()
    rows = [
        row
        for row in statements()
        if not chosen.recipes or row.recipe in chosen.recipes
    ]
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_digits(folder)
        if any("base" in row.command for row in rows):
            write_language(folder)
        for row in rows:
            found = reproduce(row, folder, chosen.curves)
            holds = row.holds(found.value)
            failed += not holds
            bound = f"{'≥' if row.least else '≤'} {row.value:g}"
            print(
                f"{'ok' if holds else 'NOT SO':<7} {shlex.join(row.command):<58} "
                f"{row.metric.replace('_', ' ')} {found.value:.4f} ({bound})  "
                f"{minutes(found.seconds)}, {minutes(found.cpu)} cpu",
                flush=True,
            )
    print(f"{len(rows) - failed} of {len(rows)} hold; load {os.getloadavg()[0]:.1f}")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
