"""Tables and pictures of what `run.py` measured."""

import math
import statistics
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
COLUMNS = {
    "workload": "workload",
    "treadle_ms": "treadle ms",
    "jax_ms": "jax ms",
    "torch_ms": "torch ms",
    "compiled_ms": "torch.compile ms",
    "ratio": "best peer / treadle",
    "limit_ratio": "treadle / limit",
    "treadle_compile_ms": "compile ms: treadle",
    "treadle_warm_compile_ms": "treadle, warm",
    "jax_compile_ms": "jax",
    "compiled_compile_ms": "torch.compile",
    "treadle_memory_mb": "memory MB: treadle",
    "jax_memory_mb": "jax",
    "torch_memory_mb": "torch",
    "compiled_memory_mb": "torch.compile",
    "treadle_process_mb": "process MB: treadle",
    "jax_process_mb": "jax",
    "torch_process_mb": "torch",
    "compiled_process_mb": "torch.compile",
    "loss_difference": "max loss difference",
}


def table(rows: Rows) -> str:
    """The rows as a Markdown table, and below it what failed."""
    titles = " | ".join(COLUMNS.values())
    lines = [f"| {titles} |", "| --- " * len(COLUMNS) + "|"]
    for row in rows:
        cells = (cell(row.get(key)) for key in COLUMNS)
        lines.append("| " + " | ".join(cells) + " |")
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    if len(ratios) > 1:
        ahead = sum(ratio >= 1 for ratio in ratios)
        lines += [
            "",
            f"Best peer / treadle: median {statistics.median(ratios):.2f}, at least 1 "
            f"in {ahead} of {len(ratios)} rows.",
        ]
    failed = [
        f"- {row['workload']}, {peer}: {reason}"
        for row in rows
        for peer, reason in row["failures"].items()
    ]
    return "\n".join(lines + (["", *failed] if failed else []))


def cell(value: str | float | None) -> str:
    """Three digits, or the text."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if abs(value) < 1e-2:
        return f"{value:.0e}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(digits, 0)}f}"


def picture(rows: Rows, file: Path) -> None:
    """A PNG: for each row how many times longer than Treadle each peer takes."""
    from matplotlib import pyplot as plt

    peers = {"jax": "JAX", "torch": "PyTorch", "compiled": "torch.compile"}
    figure, axes = plt.subplots(figsize=(8, 1 + 0.32 * len(rows)), layout="tight")
    for peer, color in zip(peers, ("tab:orange", "tab:red", "tab:purple"), strict=True):
        known = [(y, row) for y, row in enumerate(rows) if row.get(f"{peer}_ratio")]
        ratios = [row[f"{peer}_ratio"] for _, row in known]
        axes.scatter(ratios, [y for y, _ in known], color=color, label=peers[peer])
    axes.axvline(1, color="tab:blue", label="Treadle")
    axes.set_xscale("log")
    axes.set_xlabel("time of a step / Treadle's")
    axes.set_yticks(range(len(rows)), [row["workload"] for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="x", which="both", alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(file, dpi=120)
    plt.close(figure)
