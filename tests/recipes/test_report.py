"""Reports: what they say, and that a real browser shows it, of runs that go on, too."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.recipes.browser import PROGRAM, Page, browsing
from tests.recipes.small import SMALL, begin, train
from tests.recipes.test_loop import small
from treadle import nn, recipes, rng
from treadle.recipes import char_gpt, cli, loop, metrics, runs
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.report import layers, parts
from treadle.recipes.report.page import page as html_of
from treadle.recipes.step import next_batch

Captured = pytest.CaptureFixture[str]
needs_a_browser = pytest.mark.skipif(
    PROGRAM is None, reason="no Chromium or Chrome is on PATH"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


def columns(table: parts.Table, *names: str) -> dict[str, list[float]]:
    """Some numbers of each row, by its first cell."""
    places = [table.head.index(name) for name in names]
    return {
        row[0]: [float(row[p].rstrip(" %").replace(",", "")) for p in places]
        for row in table.rows
    }


def test_statistics_of_layers(here: Path) -> None:
    """Against the same in NumPy, by hand; the gradient by finite differences."""
    run = begin(here / "run", replace(SMALL, batch_size=20))
    data = run.recipe.load(run.config)
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    model, batch = learner.model, next_batch(data.batches.repeat(), 1)
    flat = np.asarray(batch[0], np.float64).reshape(20, -1)
    weights = [
        np.asarray(x, np.float64)
        for layer in (model.hidden[0], model.out)
        for x in (layer.weight, layer.bias)
    ]
    found = columns(
        layers.activations(model, learner.loss, batch), "norm", "mean", "std", "zeros"
    )
    first = flat @ weights[0] + weights[1]
    relu = np.maximum(first, 0)
    for path, x in (("hidden.0", first), ("dropout", relu)):
        expected = [np.linalg.norm(x), x.mean(), x.std(), 100 * np.mean(x == 0)]
        np.testing.assert_allclose(found[path], expected, rtol=1e-2, atol=1e-3)

    def loss(out: np.ndarray) -> float:
        logits = relu @ out + weights[3]
        top = logits.max(-1, keepdims=True)
        logs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        return -float(logs[np.arange(20), batch[1]].mean())

    step, grad = 1e-6, np.zeros_like(weights[2])
    for place in np.ndindex(*grad.shape):
        moved = weights[2].copy()
        moved[place] += step
        grad[place] = (loss(moved) - loss(weights[2])) / step
    table = layers.gradients(model, learner.loss, batch)
    found = columns(table, "its norm", "norm", "std", "greatest")
    expected = [
        np.linalg.norm(weights[2]),
        np.linalg.norm(grad),
        grad.std(),
        grad.max(),
    ]
    np.testing.assert_allclose(found["out.weight"], expected, rtol=1e-2)


def test_summary_is_of_the_model(here: Path) -> None:
    run = begin(here / "run")
    data = run.recipe.load(run.config)
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    batch = next_batch(data.batches.repeat(), 1)
    found = columns(layers.summary(learner.model, learner.loss, batch), "parameters")
    assert found["(the model)"] == [nn.count(learner.model)]
    assert found["hidden.0"] == [64 * 8 + 8]


def test_thinned_curves_keep_their_peaks() -> None:
    rows = [{"step": n, "seconds": 0.0, "loss": n % 7} for n in range(1, 100_001)]
    rows[5000]["loss"], rows[-1]["loss"] = 1e9, 3.0
    found = parts.curve("training", rows, "loss")
    assert len(found.x) <= 1501
    assert max(found.y) == 1e9 and min(found.y) == 0
    assert found.x[-1] == 100_000 and found.y[-1] == 3.0
    assert list(found.x) == sorted(set(found.x))


def test_a_run_from_python(capsys: Captured, here: Path) -> None:
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    model = nn.Sequential(nn.BatchNorm(3), nn.Linear(3, 1, key=rng.key(0)))
    for name, rate in (("a", 1e-2), ("b", 1e-1)):
        recipes.fit(
            model,
            (x, x.sum(-1)),
            test=0.2,
            steps=20,
            batch_size=20,
            learning_rate=rate,
            checkpoint_every=10,
            run_dir=here / name,
            show=False,
        )
    assert cli.main(["report", "a"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"parameters +10\b", shown) and "best test loss" in shown
    assert (here / "a/report.html").exists()
    rows = metrics.read(here / "a/metrics.jsonl")
    assert cli.main(["eval", "a", "--best"]) == 0
    best = min(row["test_loss"] for row in rows if "test_loss" in row)
    assert f"test loss: {best:.4f}" in capsys.readouterr().out
    assert cli.main(["compare", "a", "b", "--page=both.html"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^a +0.01 ", shown, re.M) and re.search(r"^b +0.1 ", shown, re.M)
    assert "<h2>runs</h2>" in (here / "both.html").read_text()
    assert cli.main(["resume", "a"]) == 2
    assert "in the program that did so" in capsys.readouterr().err.replace("\n", " ")


def test_data_that_are_gone(capsys: Captured, here: Path) -> None:
    run = begin(here / "gpt", small("char-gpt", here), char_gpt.RECIPE)
    train(run)
    (here / "corpus.txt").unlink()
    assert cli.main(["report", "gpt"]) == 0
    text = run.page.read_text()
    assert "what needs the data: --data" in text
    assert "<h2>sample</h2>" in text


def test_a_page_is_safe_from_what_it_shows(here: Path) -> None:
    shown = parts.Report(
        "</script><b>", [], [parts.Text("<i>", "<script>alert(1)</script>")]
    )
    text = html_of(shown)
    assert "<script>alert" not in text and "</script><b>" not in text
    assert text.count("<script") == 2


def test_a_tail_reads_what_is_new(here: Path) -> None:
    path = here / "metrics.jsonl"
    tail = metrics.Tail(path)
    assert tail.rows() == []
    rows = [{"step": n, "seconds": 1.0, "loss": 2.0} for n in range(1, 5)]
    log = metrics.Log(path, 0)
    for row in rows[:2]:
        log.write(row)
    assert tail.rows() == rows[:2]
    with path.open("a") as file:
        file.write(json.dumps(rows[2])[:9])
        file.flush()
        assert tail.rows() == rows[:2]
        file.write(json.dumps(rows[2])[9:] + "\n")
    assert tail.rows() == rows[:3]
    log.close()
    # The run goes on from its first step.
    again = metrics.Log(path, 1)
    again.write(rows[3])
    again.close()
    assert tail.rows() == [rows[0], rows[3]]


def heeding() -> None:
    """Who runs the tests in the background of a shell, or under nohup, has interrupts
    ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def serving(*arguments: str) -> tuple[subprocess.Popen[str], str, int]:
    """A live report, its address and its port."""
    command = [sys.executable, "-m", "treadle.recipes", "report", *arguments, "--live"]
    process = subprocess.Popen(
        [*command, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heeding,
    )
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", line := process.stdout.readline())
    assert found is not None, line
    return process, found[0], int(found[1])


def answer(port: int, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = {} if host is None else {"Host": host}
    connection.request("GET", path, headers=headers)
    found = connection.getresponse()
    body = found.read()
    connection.close()
    return found.status, body


def test_a_live_report_of_a_run_that_begins_later(here: Path) -> None:
    process, _, port = serving("later")
    try:
        status, body = answer(port, "/data.json")
        assert status == 200 and json.loads(body)["state"] == "waiting"
        assert process.stdout is not None
        assert "waiting for the run later" in process.stdout.readline()
        train(begin(here / "later"))
        assert "the run has ended" in process.stdout.readline()
        found = json.loads(answer(port, "/data.json")[1])
        assert (found["state"], found["charts"][0]["title"]) == ("complete", "loss")
        assert found["charts"][0]["series"][1]["x"] == [4, 8, 12]
        assert answer(port, f"/data.json?since={found['version']}") == (204, b"")
        # It goes on.
        run = runs.load(here / "later", RECIPES)
        train(replace(run, config=replace(run.config, steps=16)))
        again = json.loads(answer(port, f"/data.json?since={found['version']}")[1])
        assert again["charts"][0]["series"][1]["x"] == [4, 8, 12, 16]
        assert answer(port, "/metrics.jsonl")[0] == 404
        assert answer(port, "/../later/run.json")[0] == 404
        # A site whose name was made to lead here.
        assert answer(port, "/", "example.org:80")[0] == 403
        with socket.socket() as other, pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
        assert cli.main(["report", "later", "--live", f"--port={port}"]) == 2
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0


@needs_a_browser
def test_a_report_in_a_browser(page: Page, here: Path) -> None:
    run = begin(here / "run", replace(SMALL, steps=200, log_every=1))
    train(run)
    assert cli.main(["report", "run"]) == 0
    for width, scheme in ((1200, "light"), (420, "dark")):
        page.look(width, 900, scheme)
        page.open(run.page.as_uri())
        assert page.run("document.querySelectorAll('.chart').length") == 2
        names = "[...document.querySelectorAll('.chart:first-child .curve')]"
        drawn = page.run(f"{names}.map(e => [e.dataset.name, e.getTotalLength()])")
        assert {name for name, _ in drawn} == {"training", "test"}
        assert all(length > 100 for _, length in drawn)
        # Nothing is wider than the window, but for tables, which scroll.
        assert page.run("document.documentElement.scrollWidth") <= width
        box = page.run("document.querySelector('svg').getBoundingClientRect().toJSON()")
        page.point(box["x"] + box["width"] - 12, box["y"] + 60)
        shown = page.until("document.querySelector('.tip:not([hidden])')?.innerText")
        last = metrics.read(run.metrics)[-1]
        assert shown.startswith("step 200\n")
        for name in ("loss", "test_loss"):
            value = float(
                re.findall(r"(?:training|test) ([\d.]+)", shown)[name != "loss"]
            )
            assert value == pytest.approx(last[name], rel=1e-4)
        page.point(5, 5)
        page.until("document.querySelector('.tip').hidden")
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.look(1200, 900, "light")
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    assert page.errors == []


@pytest.mark.slow
@needs_a_browser
def test_a_live_report_in_a_browser(page: Page, here: Path) -> None:
    options = ["--steps=100000", "--batch-size=100", "--width=8", "--log-every=20"]
    command = [sys.executable, "-m", "treadle.recipes", "train", "digits-mlp", *options]
    training = subprocess.Popen(
        [*command, "--run-dir=run"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=heeding,
    )
    server, address, _ = serving("run")
    try:
        page.look(1000, 800)
        page.open(address)
        # The same document all the time: it is not loaded anew.
        page.run("window.marked = true")
        page.until("document.querySelector('#status').className === 'training'")
        reached = "current.charts[0]?.series[0].x.at(-1)"
        before = page.until(reached)
        page.until(f"{reached} > {before + 100}")
        assert page.run("document.querySelectorAll('.curve').length") > 0
        training.send_signal(signal.SIGINT)
        training.wait(timeout=120)
        page.until("document.querySelector('#status').className === 'stopped'")
        status = page.run("document.querySelector('#status').innerText")
        assert re.match(r"the run has ended early: step [\d,]+ of 100,000", status)
        assert page.run("window.marked")
        assert page.errors == []
    finally:
        training.kill()
        training.wait()
        server.send_signal(signal.SIGINT)
        shown = server.communicate(timeout=120)[0]
    assert "training: step" in shown and "ended early" in shown
    page.until("document.querySelector('#status').className === 'lost'")
