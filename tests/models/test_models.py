"""Models without their originals: what they refuse, and how they lie in folders."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import random
from treadle import models, nn, rng, weights
from treadle.errors import MissingPackageError
from treadle.models.huggingface import bert as theirs

KEY = rng.key(0)
BERT = {
    "model_type": "bert",
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
}


def test_a_folder_there_and_back(tmp_path):
    bert = models.Bert(20, 8, 1, 2, hidden=12, positions=10, key=KEY)
    model = nn.inference(models.BertClassifier(bert, 3, key=KEY))
    weights.save(tmp_path / "a", weights.of(model, theirs.names(model)))
    (tmp_path / "a" / "config.json").write_text(json.dumps(BERT))
    (tmp_path / "a" / "vocab.txt").write_text("[PAD]")
    found = models.from_huggingface(tmp_path / "a")
    tokens = np.array([[3, 4, 5]])
    np.testing.assert_array_equal(found(tokens), model(tokens))
    models.to_huggingface(tmp_path / "b", found, like=tmp_path / "a")
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == [
        *("config.json", "model.safetensors", "vocab.txt")
    ]
    again = models.from_huggingface(tmp_path / "b")
    np.testing.assert_array_equal(again(tokens), model(tokens))
    with pytest.raises(FileExistsError):
        models.to_huggingface(tmp_path / "b", found, like=tmp_path / "a")


def test_padding_changes_nothing():
    bert = nn.inference(models.Bert(20, 8, 2, 2, key=KEY))
    encoders = [
        models.SentenceEncoder(bert, pooling=p) for p in ("mean", "first", "max")
    ]
    for encoder in encoders:
        short = encoder([[3, 4]])
        padded = encoder([[3, 4, 9, 9]], mask=[[1, 1, 0, 0]])
        np.testing.assert_allclose(padded, short, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose((short**2).sum(), 1, rtol=1e-5)
        assert np.isfinite(encoder([[0]], mask=[[0]])).all()


def test_later_tokens_change_nothing_before():
    for model in (
        nn.inference(models.GPT2(20, 8, 2, 2, key=KEY)),
        models.Llama(20, 8, 2, 4, 12, kv_heads=2, key=KEY),
    ):
        whole = model([[3, 4, 5, 6]])
        np.testing.assert_allclose(model([[3, 4, 7, 8]])[:, :2], whole[:, :2], 1e-5)
        assert not np.allclose(model([[3, 4, 7, 8]])[:, 2:], whole[:, 2:])


def test_what_models_refuse():
    with pytest.raises(ValueError, match="9 pixels are no whole number of 4"):
        models.ViT(9, 4, 8, 1, 2, 3, key=KEY)
    vit = models.ViT(8, 4, 8, 1, 2, None, key=KEY)
    with pytest.raises(ValueError, match=r"images of 8 x 8, got f32\[1,12,12,3\]"):
        vit.encode(random(1, 12, 12, 3))
    with pytest.raises(ValueError, match="made without classes"):
        vit(random(1, 8, 8, 3))
    with pytest.raises(ValueError, match="made without a pooler"):
        vit.pool(vit.encode(random(1, 8, 8, 3)))
    bert = models.Bert(20, 8, 1, 2, pooler=False, key=KEY)
    with pytest.raises(ValueError, match="made without a pooler"):
        bert.pool(tnp.ones((1, 3, 8)))
    with pytest.raises(ValueError, match="pooling is one of mean, first, max; got"):
        models.SentenceEncoder(bert, pooling="last")
    with pytest.raises(ValueError, match="4 heads can't share 3 heads"):
        models.Llama(20, 8, 1, 4, 12, kv_heads=3, key=KEY)
    with pytest.raises(ValueError, match="2 widths for 1 stages"):
        models.ResNet((8, 16), (1,), 3, key=KEY)
    with pytest.raises(ValueError, match='"basic" or "bottleneck", got \'wide\''):
        models.ResNet((8,), (1,), 3, block="wide", key=KEY)


def test_without_the_package_of_tokenizers(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        MissingPackageError, match=r"models\.tokenizer needs tokenizers"
    ):
        models.tokenizer(tmp_path)


def test_other_names_lead_here():
    layer = nn.Linear(2, 3, key=KEY)
    with pytest.raises(AttributeError, match=r"weights\.of\(module\)"):
        layer.state_dict()
    with pytest.raises(AttributeError, match=r"weights\.into\(module, arrays\)"):
        layer.load_state_dict({})
    with pytest.raises(
        AttributeError, match=r"use `treadle\.models\.from_huggingface`"
    ):
        _ = models.from_pretrained
    with pytest.raises(AttributeError, match=r"use `treadle\.weights\.of`"):
        _ = td.state_dict


def test_gpt2_generates_with_caches():
    """Places go on from call to call."""
    gpt = nn.inference(models.GPT2(20, 8, 2, 2, positions=8, key=KEY))
    tokens = tnp.array([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
    cached, found = nn.with_cache(gpt, 2, 8), []
    for first, last in [(0, 3), (3, 4), (4, 6)]:
        out, cached = nn.stateful(cached)(tokens[:, first:last])
        found.append(out)
    np.testing.assert_allclose(tnp.concatenate(found, 1), gpt(tokens), atol=1e-5)


def of_texts(model, tokens):
    return model(tokens, tokens) if isinstance(model, models.T5) else model(tokens)


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: models.GPT2(50, 16, 2, 2, key=KEY, **o),
        lambda **o: models.Llama(50, 16, 2, 4, 24, kv_heads=2, key=KEY, **o),
        lambda **o: models.LSTMLM(50, 16, 2, key=KEY, **o),
        lambda **o: models.T5(50, 16, 1, 2, key=KEY, **o),
        lambda **o: models.BertMaskedLM(
            models.Bert(50, 16, 2, 2, key=KEY, **o), key=KEY
        ),
        lambda **o: models.BertClassifier(
            models.Bert(50, 16, 2, 2, key=KEY, **o), 3, key=KEY
        ),
    ],
)
def test_halves(make):
    """Parameters stay wide, what is computed is narrow, and about the same."""
    tokens = tnp.arange(12).reshape(2, 6)
    wide, narrow = nn.inference(make()), nn.inference(make(dtype=tnp.bfloat16))
    assert {x.dtype.name for x in nn.parameters(narrow).values()} == {"float32"}
    wanted, found = of_texts(wide, tokens), of_texts(narrow, tokens)
    assert found.dtype.name == "bfloat16"
    size = float(abs(wanted).max())
    assert 0 < float(abs(found.astype(tnp.float32) - wanted).max()) < 0.05 * size
    half = make(param_dtype=tnp.bfloat16)
    assert {x.dtype.name for x in nn.parameters(half).values()} == {"bfloat16"}
