"""A training whose values are not finite any more says where they come from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import checkpoint, nn, recipes, rng
from treadle.recipes import cli
from treadle.recipes.errors import DivergedError

Captured = pytest.CaptureFixture[str]
MODEL = """
import treadle.numpy as tnp
from treadle import nn, rng


class Rooted(nn.Module):
    scale: object

    def __init__(self):
        self.scale = tnp.ones(())

    def __call__(self, x):
        return tnp.sqrt(x * self.scale)


class Net(nn.Module):
    first: nn.Linear
    parts: list
    out: nn.Linear

    def __init__(self, in_features, classes, *, key):
        a, b = rng.split(key)
        self.first = nn.Linear(in_features, 4, key=a)
        self.parts = [Rooted(), Rooted()]
        self.out = nn.Linear(4, classes, key=b)

    def __call__(self, x):
        x = tnp.abs(self.first(x)) + 0.1
        x = self.parts[0](x)
        bad = x.sum() > 50
        return self.out(self.parts[1](tnp.where(bad, x - 10, x)))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def examples(bad: int) -> tuple[np.ndarray, np.ndarray]:
    """Two hundred of them; a model of above gives NaN for one."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 3)).astype(np.float32)
    x[bad] = 1e4
    return x, (x[:, 0] > 0).astype(np.int32)


def test_the_layer_is_named_and_what_was_before_is_kept(
    capsys: Captured, here: Path
) -> None:
    x, y = examples(bad=17)
    # Nothing of it is set apart: the training meets the example, sooner or later.
    np.savez(here / "data.npz", x_train=x, y_train=y, x_test=x[:16], y_test=y[:16])
    (here / "net.py").write_text(MODEL)
    options = ["--data=data.npz", "--batch-size=10", "--checkpoint-every=3"]
    command = ["train", "net.py:Net", *options, "--steps=20", "--log-every=1"]
    assert cli.main([*command, "--run-dir=run"]) == 2
    errors = capsys.readouterr().err
    assert re.search(r"the loss is nan after step (\d+)", errors)
    failed = int(re.search(r"In step (\d+), `sqrt` gave", errors)[1])  # type: ignore[index]
    assert f"after step {failed}:" in errors
    line = MODEL.splitlines().index("        return tnp.sqrt(x * self.scale)") + 1
    assert f"net.py:{line}, in parts[1]" in errors
    # From what is kept, the step gives it again.
    kept = here / f"run/diverged/{failed - 1}"
    assert str(kept.relative_to(here)) in errors
    found = checkpoint.restore(kept)
    assert int(found["state"]["step"]) == failed - 1
    assert np.isfinite(np.asarray(found["state"]["model"]["first"]["weight"])).all()
    # The report says it.
    assert cli.main(["report", "run"]) == 0
    assert "in parts[1]" in capsys.readouterr().out
    text = (here / "run/report.html").read_text()
    assert "in parts[1]" in text and 'class="failed"' in text
    # As far as it was right, it can be trained; then nothing is said any more.
    assert cli.main(["resume", "run", "--steps", str(failed - 1)]) == 0
    assert cli.main(["report", "run"]) == 0
    assert 'class="failed"' not in (here / "run/report.html").read_text()
    assert not kept.exists()


def test_from_python(here: Path) -> None:
    class Log(nn.Module):
        shift: td.Array

        def __init__(self) -> None:
            self.shift = tnp.ones(())

        def __call__(self, x: td.Array) -> td.Array:
            return tnp.log(x + self.shift)

    model = nn.Sequential(nn.Linear(3, 1, key=rng.key(0)), Log())
    x, _ = examples(bad=3)
    before = np.asarray(model.layers[0].weight).copy()
    with pytest.raises(DivergedError, match=r"(?s)`log` gave .* in layers\[1\]"):
        recipes.fit(
            model,
            (x, x.sum(-1)),
            steps=30,
            batch_size=20,
            log_every=10,
            checkpoint_every=100,
            run_dir=here / "run",
            show=False,
        )
    np.testing.assert_array_equal(np.asarray(model.layers[0].weight), before)


def test_a_test_that_gives_nan(here: Path) -> None:
    """The steps are right, and so are the parameters."""

    class Half(nn.Module):
        linear: nn.Linear

        def __init__(self) -> None:
            self.linear = nn.Linear(3, 1, key=rng.key(0))

        def __call__(self, x: td.Array) -> td.Array:
            return self.linear(x) + 0 * tnp.log(x.max() - 1e3).sum()

    x, _ = examples(bad=3)
    data = np.where(x == 1e4, 1e2, x) + 2e3
    with pytest.raises(DivergedError, match="the test loss is nan") as caught:
        recipes.fit(
            Half(),
            (data, x[:, 0]),
            test=(data[:9] - 2e3, x[:9, 0]),
            steps=3,
            batch_size=20,
            learning_rate=1e-6,
            run_dir=here / "run",
            show=False,
        )
    assert "In the test after step 3, `log` gave" in str(caught.value)
    assert (here / "run/diverged/3").is_dir()


def test_what_fails_in_the_first_step_is_not_the_learning_rate() -> None:
    x, _ = examples(bad=3)
    with pytest.raises(DivergedError) as caught:
        recipes.fit(
            nn.Sequential(nn.Linear(3, 1, key=rng.key(0)), nn.Lambda(tnp.log)),
            (np.full_like(x, 1e3), x[:, 0]),
            loss=lambda output, target: output[..., 0] + tnp.log(target - 1e6),
            steps=3,
            batch_size=20,
            show=False,
        )
    assert "In step 1, `log` gave" in str(caught.value)
    assert "so it is not the learning rate: look at that line" in str(caught.value)
    assert "smaller" not in str(caught.value)
