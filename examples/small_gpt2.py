"""A small GPT-2 of one's own, in a folder as Hugging Face's are: from a text to tokens,
to a model that other programs read.

It learns from Python's standard library by `recipes.fit`. What is written computes the
same when it is read again: that is checked. With a folder as its argument, it learns
for some minutes, and leaves the model there, for `treadle train finetune-lora`.
"""

import json
import pathlib
import sys
import sysconfig
import tempfile

import numpy as np
import tokenizers

from treadle import data, models, nn, recipes, rng, weights
from treadle.models.huggingface import gpt2

LENGTH = 128


def standard_library(limit):
    """Its sources, one after the other."""
    folder, text = pathlib.Path(sysconfig.get_path("stdlib")), ""
    for path in sorted(folder.glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="replace")
        if len(text) >= limit:
            return text[:limit]
    return text


def learn_tokens(text, entries, folder):
    """Learns pieces of words, which any text can be made of, and writes them."""
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator([text], entries, special_tokens=["<|endoftext|>"])
    made.save(str(folder / "tokenizer.json"))
    return made


def windows(tokens):
    """Tokens, and what follows each, at any place."""

    def fetch(places):
        rows = tokens[places[:, None] + np.arange(LENGTH + 1)]
        return rows[:, :-1], rows[:, 1:]

    return data.Source(fetch, len(tokens) - LENGTH, slow=False)


def write(model, entries, width, layers, heads, folder):
    """The weights by Hugging Face's names, and what they are."""
    weights.save(folder / "model.safetensors", weights.of(model, gpt2.names(model)))
    options = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    options |= {"vocab_size": entries, "n_embd": width, "n_layer": layers}
    options |= {"n_head": heads, "n_positions": LENGTH, "resid_pdrop": 0.0}
    options |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    options |= {"bos_token_id": 0, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(options))


def train(folder, steps, width, layers, heads, limit):
    """Trains, writes, and reads again."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = standard_library(limit)
    made = learn_tokens(text, 1000, folder)
    tokens, entries = np.array(made.encode(text).ids, np.int32), made.get_vocab_size()
    print(f"{len(text)} characters, {len(tokens)} tokens, {entries} different ones")
    model = models.GPT2(
        entries, width, layers, heads, positions=LENGTH, dropout=0.0, key=rng.key(0)
    )
    fitted = recipes.fit(
        model,
        windows(tokens),
        steps=steps,
        batch_size=16,
        learning_rate=2e-3,
        checkpoint_every=steps,
        show=steps > 100,
    )
    write(fitted.model, entries, width, layers, heads, folder)
    again, first = models.from_huggingface(folder), tokens[None, :9]
    np.testing.assert_array_equal(again(first), nn.inference(fitted.model)(first))
    print(
        f"loss {fitted.metrics['loss']:.2f} after {steps} steps; read again, it agrees"
    )
    assert fitted.metrics["loss"] < np.log(entries)


def main(folder=None, steps=400, width=128, layers=4, heads=4, limit=1_000_000):
    """Without a folder, a smaller one, which is not kept."""
    if folder is not None:
        return train(folder, steps, width, layers, heads, limit)
    with tempfile.TemporaryDirectory() as temporary:
        train(temporary, 12, 16, 1, 2, 100_000)


if __name__ == "__main__":
    main(*sys.argv[1:2])
