"""Recipes that begin with what transformers saved, and what it makes of their end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers as hf

from treadle import nn
from treadle.recipes import cli, loop, resnet, runs
from treadle.recipes.catalogue import RECIPES

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()

TEXT = "".join(f"{n} times {n} is {n * n}.\n" for n in range(300))
KINDS = {
    "gpt2": hf.GPT2Config(n_embd=24, n_layer=2, n_head=3, n_positions=32),
    "llama": hf.LlamaConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=40,
        max_position_embeddings=32,
    ),
}


def folder(path: Path, kind: str) -> Path:
    """A model and a tokenizer as transformers writes them."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    inner.train_from_iterator([TEXT], trainer)
    theirs = hf.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    theirs.save_pretrained(path)
    config = KINDS[kind]
    config.vocab_size = len(theirs)
    config.bos_token_id = config.eos_token_id = theirs.eos_token_id
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_adapters_of_their_models(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is exported computes there what the trained model does here, and they write
    the same."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)
    model = folder(tmp_path / "model", kind)
    options = [f"--model={model}", "--data=text.txt", "--context=24", "--steps=8"]
    options += ["--batch-size=4", "--learning-rate=0.03", "--run-dir=run"]
    options += ["--checkpoint-every=8", "--adapt=layers.*.attention,**.up"]
    assert cli.main(["train", "finetune-lora", *options]) == 0
    assert cli.main(["export", "run", "exported"]) == 0
    capsys.readouterr()
    arguments = ["--prompt=12 times", "--length=12", "--temperature=0"]
    assert cli.main(["sample", "run", *arguments]) == 0
    written = capsys.readouterr().out

    tokenizer = hf.AutoTokenizer.from_pretrained("exported")
    theirs = hf.AutoModelForCausalLM.from_pretrained("exported").eval()
    given = tokenizer("12 times", return_tensors="pt")
    made = theirs.generate(**given, max_new_tokens=12, do_sample=False)
    expected = tokenizer.decode(made[0], skip_special_tokens=True)
    assert written == expected + "\n"

    run = runs.find("run", RECIPES)
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    template = loop.beginning(learner, run.config)
    state = loop.manager_of(run, learner).restore(template).state
    whole = nn.inference(state.evaluated(learner))
    ids = made[:, :9]
    with torch.no_grad():
        logits = theirs(ids).logits.numpy()
        before = hf.AutoModelForCausalLM.from_pretrained(model).eval()(ids).logits
    np.testing.assert_allclose(whole(ids.numpy()), logits, 1e-3, 1e-3)
    assert np.abs(before.numpy() - logits).max() > 0.1


def test_images_are_normalised_as_theirs(tmp_path: Path) -> None:
    """By what their preprocessor says, for a ResNet that they saved."""
    config = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    hf.ResNetForImageClassification(config).save_pretrained(tmp_path / "model")
    processor = hf.ConvNextImageProcessor(
        image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7], do_resize=False
    )
    processor.save_pretrained(tmp_path / "model")
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (20, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "images.npz", x=pixels, y=np.arange(20) % 2)
    chosen = resnet.Config(
        data=str(tmp_path / "images.npz"),
        pretrained=str(tmp_path / "model"),
        batch_size=4,
    )
    facts = resnet.load(chosen).facts
    found = np.asarray(resnet.normalised(facts, pixels))
    expected = processor(list(pixels), return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(found, expected.transpose(0, 2, 3, 1), 1e-5, 1e-5)
