"""The metrics file: no step twice, nothing half read."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.recipes import metrics


def write(path: Path, steps: range) -> None:
    log = metrics.Log(path, steps.start - 1)
    for step in steps:
        log.write({"step": step, "loss": 1 / step, "seconds": float(step)})
    log.sync()
    log.close()


def test_rows_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 6))
    log = metrics.Log(path, 3)
    assert log.seconds == 3
    log.close()
    assert [row["step"] for row in metrics.read(path)] == [1, 2, 3]
    write(path, range(4, 8))
    assert [row["step"] for row in metrics.read(path)] == [1, 2, 3, 4, 5, 6, 7]


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 4))
    path.write_text(path.read_text()[:-9])
    assert [row["step"] for row in metrics.read(path)] == [1, 2]
    write(path, range(3, 5))
    assert [row["step"] for row in metrics.read(path)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "line", [b"3", b"{}", b'{"step": 2}', b"\xff\x8b", b'{"step": "2", "seconds": 0}']
)
def test_a_damaged_line_is_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 4))
    first, _, third = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, third, b""]))
    assert [row["step"] for row in metrics.read(path)] == [1, 3]


def test_series(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "test_loss": 3.0}]
    assert metrics.series(rows, "test_loss") == ([2], [3.0])
    assert metrics.last(rows, "loss") == 1.0
    assert metrics.last(rows, "accuracy") is None
    assert metrics.read(tmp_path / "none") == []
