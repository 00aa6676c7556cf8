"""Tables of layers, and models in notebooks."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

KEY = rng.key(0)


class Model(nn.Module):
    table: nn.Embedding
    blocks: nn.Stack
    norm: nn.BatchNorm
    drop: nn.Dropout
    head: nn.Linear
    options: dict

    def __init__(self):
        self.table = nn.Embedding(50, 8, key=KEY)
        self.blocks = nn.Stack(lambda k: nn.Linear(8, 8, key=k), 3, key=KEY)
        self.norm, self.drop = nn.BatchNorm(8), nn.Dropout(0.1)
        self.head = nn.Linear(8, 2, key=KEY)
        self.options = {"a<b": nn.Dropout(0.2)}

    def __call__(self, tokens, scale=None):
        x = self.drop(self.norm(self.blocks(self.table(tokens))))
        return self.head(x), self.head(x if scale is None else x * scale)


def cells(text):
    """The rows of a table, by their columns' titles."""
    lines = text.splitlines()
    starts = [m.start() for m in re.finditer(r"\S+", lines[0])]
    titles = lines[0].split()
    # Columns are two or more spaces apart; the root has no path.
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[1:]]
    assert starts[0] == 0
    rows[0].insert(0, "")
    return [dict(zip(titles, row, strict=True)) for row in rows]


@pytest.mark.parametrize("abstract", [False, True])
def test_rows(abstract):
    """Nothing is computed: the model may be types, and so may the inputs."""
    model = td.eval_shape(Model) if abstract else Model()
    tokens = td.ShapeDtype((4, 5), np.int32) if abstract else np.zeros((4, 5), np.int32)
    table = cells(nn.summary(model, tokens))
    found = [tuple(row.values())[:5] for row in table]
    assert found == [
        ("", "Model", "i32[4,5]", "f32[4,5,2], f32[4,5,2]", "650"),
        ("table", "Embedding", "i32[4,5]", "f32[4,5,8]", "400"),
        ("blocks", "Stack", "f32[4,5,8]", "f32[4,5,8]", "216"),
        ("blocks.layers", "Linear", "f32[4,5,8]", "f32[4,5,8]", "72"),
        ("norm", "BatchNorm", "f32[4,5,8]", "f32[4,5,8]", "16"),
        ("drop", "Dropout", "f32[4,5,8]", "f32[4,5,8]", "0"),
        ("head (2 calls)", "Linear", "f32[4,5,8]", "f32[4,5,2]", "18"),
    ]
    assert [row["bytes"] for row in table][-3:] == ["128 B", "0 B", "72 B"]
    flops = {row["layer"]: row["FLOPs"] for row in table}
    # A product of (20, 8) and (8, n), and the bias.
    assert flops["head (2 calls)"] == str(20 * 2 * (2 * 8 + 1))
    assert flops["blocks.layers"] == f"{20 * 8 * (2 * 8 + 1):,}"
    assert flops["blocks"] == f"{3 * 20 * 8 * (2 * 8 + 1):,}"


def test_options_depth_and_time():
    model, tokens = Model(), np.zeros((2, 3), np.int32)
    table = nn.summary(model, tokens, scale=tnp.ones(8), depth=1, timed=True)
    rows = cells(table)
    assert rows[0]["input"] == "i32[2,3], f32[8]"
    assert [row["layer"] for row in rows][2:4] == ["blocks", "norm"]
    assert all(re.fullmatch(r"[\d.]+ (ms|µs)", row["time"]) for row in rows)
    within = cells(nn.summary(model, tokens, timed=True))
    assert [row["time"] for row in within if row["layer"] == "blocks.layers"] == ["?"]
    widths = {len(line) for line in table.splitlines()}
    assert len(widths) == 1


def test_a_layer_that_works_only_inside():
    class Mean(nn.Module):
        def __call__(self, x):
            return td.pmean(x, "batch")

    class Around(nn.Module):
        mean: Mean

        def __call__(self, x):
            return td.vmap(self.mean, axis_name="batch")(x)

    rows = cells(nn.summary(Around(Mean()), tnp.ones((3, 2))))
    assert rows[1]["FLOPs"] == "?" and rows[0]["FLOPs"] != "?"
    with pytest.raises(TypeError, match="inputs are for a model that can be called"):
        nn.summary([1], tnp.ones(2))


def test_in_a_notebook():
    text = Model()._repr_html_()
    words, opened = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            opened.append(tag)

        def handle_endtag(self, tag):
            assert opened.pop() == tag

        def handle_data(self, data):
            words.append(data)

    Reader().feed(text)
    assert not opened
    assert words[:2] == ["Model ", "650 parameters, 2.60 KiB"]
    for word in ("table=Embedding ", "weight=f32[50,8]", "'a<b'=Dropout ", "rate=0.2"):
        assert word in words
    assert text.count("<details open>") == 1
