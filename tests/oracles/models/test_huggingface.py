"""Folders that transformers wrote: the model of the zoo computes the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers as hf

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import models, nn, weights
from treadle.models.huggingface.config import Config
from treadle.models.huggingface.folder import FAMILIES

hf.logging.set_verbosity_error()
hf.logging.disable_progress_bar()

TINY = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
BERT = {**TINY, "intermediate_size": 40, "vocab_size": 50}
BERT |= {"max_position_embeddings": 16}
GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 50, "n_positions": 16}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}
VIT = {**TINY, "intermediate_size": 40, "image_size": 12, "patch_size": 4}
LLAMA = {**TINY, "intermediate_size": 40, "vocab_size": 50, "head_dim": 8}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2}
T5 = {"d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 3}
T5 |= {"num_heads": 3, "vocab_size": 50, "relative_attention_num_buckets": 8}
T5 |= {"relative_attention_max_distance": 12, "decoder_start_token_id": 0}
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 2]}

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(1, 50, (3, 9))
LENGTHS = np.array([9, 4, 6])
MASK = np.arange(9) < LENGTHS[:, None]
SEGMENTS = RANDOM.integers(0, 2, (3, 9))
IMAGES = random(2, 12, 12, 3)
TARGETS = RANDOM.integers(1, 50, (3, 17))
TARGET_LENGTHS = np.array([11, 17, 1])
TARGET_MASK = np.arange(17) < TARGET_LENGTHS[:, None]


def made(kind, options, **more):
    """A model of theirs, with weights that are not what they begin with."""
    torch.manual_seed(0)
    theirs = kind(kind.config_class(**options, **more)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return theirs


def saved_gradients(theirs, folder):
    """Their gradients by the names that files have."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(
                torch.zeros_like(parameter)
                if parameter.grad is None
                else parameter.grad
            )
        for buffer in theirs.buffers():
            buffer.zero_()
    theirs.save_pretrained(folder)
    return weights.load(folder)


def compare(theirs, folder, call, expect):
    """Outputs, and gradients of a weighted sum of them in every parameter.

    call: our outputs of our model. expect: their outputs.
    """
    theirs.save_pretrained(folder / "model")
    ours = models.from_huggingface(folder / "model")
    expected = expect(theirs)
    scores = random(*expected.shape, seed=7)
    (expected * torch.tensor(scores)).sum().backward()
    expected = expected.detach().numpy()
    close(call(ours), expected, 1e-5)
    close(td.jit(call)(ours), expected, 1e-5)

    grads = td.jit(td.grad(lambda m: (call(m) * scores).sum()))(ours)
    config = Config.read(folder / "model")
    family = FAMILIES[config["model_type"]]
    found = weights.of(grads, family.names(ours))
    wanted = {
        name.removeprefix(family.PREFIX): value
        for name, value in saved_gradients(theirs, folder / "grads").items()
    }
    assert set(found) <= set(wanted)
    # What is not in our model takes no part in theirs.
    assert all(not np.any(wanted[name]) for name in set(wanted) - set(found))
    for name in found:
        size = max(1, float(np.abs(wanted[name]).max()))
        np.testing.assert_allclose(
            found[name] / size, wanted[name] / size, 0, 2e-5, err_msg=name
        )


def of_tokens(model, theirs):
    ids = torch.tensor(TOKENS)
    return theirs(
        input_ids=ids,
        attention_mask=torch.tensor(MASK.astype(int)),
        token_type_ids=torch.tensor(SEGMENTS),
    )


@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
def test_bert(activation, tmp_path):
    theirs = made(hf.BertModel, BERT, hidden_act=activation)

    def expect(theirs):
        out = of_tokens(TOKENS, theirs)
        whole = out.last_hidden_state * torch.tensor(MASK)[..., None]
        return torch.cat([whole.flatten(1), out.pooler_output], 1)

    def call(ours):
        hidden = ours(TOKENS, mask=MASK, segments=SEGMENTS)
        whole = hidden * MASK[..., None]
        return tnp.concatenate([whole.reshape(3, -1), ours.pool(hidden)], 1)

    compare(theirs, tmp_path, call, expect)


def test_bert_without_a_pooler_or_a_mask(tmp_path):
    torch.manual_seed(0)
    theirs = hf.BertModel(hf.BertConfig(**BERT), add_pooling_layer=False).eval()
    compare(
        theirs,
        tmp_path,
        lambda ours: ours(TOKENS),
        lambda theirs: theirs(torch.tensor(TOKENS)).last_hidden_state,
    )


def test_bert_masked_lm(tmp_path):
    compare(
        made(hf.BertForMaskedLM, BERT),
        tmp_path,
        lambda ours: ours(TOKENS, mask=MASK, segments=SEGMENTS) * MASK[..., None],
        lambda theirs: of_tokens(TOKENS, theirs).logits * torch.tensor(MASK)[..., None],
    )


def test_bert_classifier(tmp_path):
    compare(
        made(hf.BertForSequenceClassification, BERT, num_labels=5),
        tmp_path,
        lambda ours: ours(TOKENS, mask=MASK, segments=SEGMENTS),
        lambda theirs: of_tokens(TOKENS, theirs).logits,
    )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", [hf.GPT2LMHeadModel, hf.GPT2Model])
def test_gpt2(kind, tied, tmp_path):
    def expect(theirs):
        out = theirs(torch.tensor(TOKENS), attention_mask=torch.tensor(MASK).int())
        return out[0] * torch.tensor(MASK)[..., None]

    def call(ours):
        run = ours if kind is hf.GPT2LMHeadModel else ours.encode
        return run(TOKENS, LENGTHS) * MASK[..., None]

    theirs = made(kind, GPT2, tie_word_embeddings=tied)
    compare(theirs, tmp_path, call, expect)


def pixels():
    return torch.tensor(np.moveaxis(IMAGES, -1, 1).copy())


@pytest.mark.parametrize("bias", [True, False])
def test_vit_classifier(bias, tmp_path):
    compare(
        made(hf.ViTForImageClassification, VIT, num_labels=7, qkv_bias=bias),
        tmp_path,
        lambda ours: ours(IMAGES),
        lambda theirs: theirs(pixels()).logits,
    )


def test_vit(tmp_path):
    def expect(theirs):
        out = theirs(pixels())
        return torch.cat([out.last_hidden_state.flatten(1), out.pooler_output], 1)

    def call(ours):
        x = ours.encode(IMAGES)
        return tnp.concatenate([x.reshape(2, -1), ours.pool(x)], 1)

    compare(made(hf.ViTModel, VIT), tmp_path, call, expect)


LLAMA3 = {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 32}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
        {"rope_parameters": LLAMA3, "num_key_value_heads": 1, "hidden_act": "gelu"},
        {"rope_parameters": YARN},
        {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.3}},
        {"rope_parameters": LINEAR, "num_key_value_heads": 4},
    ],
)
def test_llama(options, tmp_path):
    compare(
        made(hf.LlamaForCausalLM, LLAMA | options),
        tmp_path,
        lambda ours: ours(TOKENS, LENGTHS) * MASK[..., None],
        lambda theirs: (
            theirs(torch.tensor(TOKENS), attention_mask=torch.tensor(MASK).int()).logits
            * torch.tensor(MASK)[..., None]
        ),
    )


def test_llama_without_a_head(tmp_path):
    compare(
        made(hf.LlamaModel, LLAMA),
        tmp_path,
        lambda ours: ours.encode(TOKENS),
        lambda theirs: theirs(torch.tensor(TOKENS)).last_hidden_state,
    )


def test_llama_as_older_versions_write_it(tmp_path):
    theirs = made(hf.LlamaForCausalLM, LLAMA | {"rope_parameters": LLAMA3})
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    config |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling}
    path.write_text(json.dumps(config))
    found = models.from_huggingface(tmp_path)(TOKENS)
    close(found, theirs(torch.tensor(TOKENS)).logits.detach().numpy(), 1e-5)
    path.write_text(json.dumps(config | {"rope_scaling": {"rope_type": "longrope"}}))
    with pytest.raises(
        ValueError, match="the rope_type is 'longrope'; known are default"
    ):
        models.from_huggingface(tmp_path)


def photos(*shape):
    images = random(*shape, 3)
    return images, torch.tensor(np.moveaxis(images, -1, 1).copy())


@pytest.mark.parametrize(
    "options",
    [
        {"layer_type": "basic"},
        {"layer_type": "bottleneck"},
        {"layer_type": "bottleneck", "downsample_in_bottleneck": True},
        {"layer_type": "basic", "downsample_in_first_stage": True},
    ],
)
def test_resnet(options, tmp_path):
    images, theirs_images = photos(2, 37, 45)
    theirs = made(hf.ResNetForImageClassification, RESNET | options, num_labels=7)
    with torch.no_grad():
        theirs.train()(theirs_images)  # statistics that are not 0 and 1
    compare(
        theirs.eval(),
        tmp_path,
        lambda ours: ours(images),
        lambda theirs: theirs(theirs_images).logits,
    )


def test_resnet_in_training(tmp_path):
    images, theirs_images = photos(3, 33, 40)
    theirs = made(hf.ResNetModel, RESNET)
    theirs.save_pretrained(tmp_path / "before")
    ours = nn.training(models.from_huggingface(tmp_path / "before"))
    found, after = nn.stateful(ours.encode)(images)
    with torch.no_grad():
        expected = theirs.train()(theirs_images).last_hidden_state.numpy()
    close(found, np.moveaxis(expected, 1, -1), 1e-4)
    theirs.save_pretrained(tmp_path / "after")
    file = weights.load(tmp_path / "after")
    mean = file["encoder.stages.1.layers.0.shortcut.normalization.running_mean"]
    close(after.stages[1][0].shortcut.norm.mean.value, mean, 1e-4)


def test_resnet_has_one_trace_for_all_images(tmp_path):
    made(hf.ResNetForImageClassification, RESNET).save_pretrained(tmp_path)
    model = models.from_huggingface(tmp_path)
    traced = []

    def run(model, images):
        traced.append(images.shape)
        return model(images)

    run = td.jit(run, dynamic={"images": ("batch", "height", "width", None)})
    for shape in ((2, 33, 40), (1, 64, 64), (3, 50, 35)):
        images, _ = photos(*shape)
        close(run(model, images), model(images), 1e-5)
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("kind", "options", "padding"),
    [
        (hf.BertForMaskedLM, BERT, "mask"),
        (hf.GPT2LMHeadModel, GPT2, "lengths"),
        (hf.LlamaForCausalLM, LLAMA, "lengths"),
    ],
)
def test_one_trace_trains_for_all_batches_and_lengths(kind, options, padding, tmp_path):
    made(kind, options).save_pretrained(tmp_path)
    model = nn.training(models.from_huggingface(tmp_path))
    traced = []

    def loss(model, tokens, mask, key):
        traced.append(tokens.shape)
        options = {padding: mask if padding == "mask" else mask.sum(-1)}
        logits, _ = nn.stateful(model, key=key)(tokens, **options)
        return nn.cross_entropy(logits, tokens).mean()

    step = td.jit(
        td.value_and_grad(loss),
        dynamic={"tokens": ("batch", "length"), "mask": ("batch", "length")},
    )
    for batch, length in ((3, 9), (1, 5), (4, 16), (2, 2)):
        tokens = RANDOM.integers(0, 50, (batch, length))
        value, _ = step(model, tokens, np.ones((batch, length), bool), td.rng.key(0))
        assert np.isfinite(value)
    assert len(traced) == 1


def test_longer_texts_than_the_model_has_places(tmp_path):
    made(hf.GPT2Model, GPT2).save_pretrained(tmp_path)
    model = models.from_huggingface(tmp_path)
    with pytest.raises(ValueError, match=r"has 16 places, got .* with 17\n"):
        model(np.zeros((1, 17), int))


def test_files_of_pytorch_and_several_files(tmp_path):
    theirs = made(hf.GPT2LMHeadModel, GPT2)
    theirs.save_pretrained(tmp_path, max_shard_size="20kB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    ours = models.from_huggingface(tmp_path)(TOKENS)
    close(ours, theirs(torch.tensor(TOKENS)).logits.detach().numpy(), 1e-5)
    for file in tmp_path.glob("model*"):
        file.unlink()
    # As the oldest files are: masks among the weights, the head beside its table.
    state = theirs.state_dict()
    state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16).tril()
    torch.save(state, tmp_path / "pytorch_model.bin")
    np.testing.assert_array_equal(models.from_huggingface(tmp_path)(TOKENS), ours)


def test_the_names_of_the_oldest_bert(tmp_path):
    theirs = made(hf.BertForMaskedLM, BERT)
    theirs.save_pretrained(tmp_path)
    state = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): x
        for name, x in weights.load(tmp_path).items()
    }
    state["cls.seq_relationship.weight"] = random(2, 24)
    state["bert.embeddings.position_ids"] = np.arange(16)
    weights.save(tmp_path, state)
    ours = models.from_huggingface(tmp_path)
    expected = theirs(torch.tensor(TOKENS)).logits.detach().numpy()
    close(ours(TOKENS), expected, 1e-5)
    models.to_huggingface(tmp_path / "again", ours, like=tmp_path)
    again = hf.BertForMaskedLM.from_pretrained(tmp_path / "again").eval()
    close(expected, again(torch.tensor(TOKENS)).logits.detach().numpy(), 1e-5)
    file = weights.load(tmp_path / "again")
    assert "cls.seq_relationship.weight" in file
    assert "bert.embeddings.LayerNorm.weight" in file


def test_half_precision(tmp_path):
    theirs = made(hf.BertModel, BERT).bfloat16()
    theirs.save_pretrained(tmp_path)
    ours = models.from_huggingface(tmp_path)
    assert {x.dtype.name for x in nn.parameters(ours).values()} == {"float32"}
    expected = theirs.float()(torch.tensor(TOKENS)).last_hidden_state.detach().numpy()
    close(ours(TOKENS), expected, 1e-5)
    half = models.from_huggingface(tmp_path, dtype=tnp.bfloat16)
    assert {x.dtype.name for x in nn.parameters(half).values()} == {"bfloat16"}
    out = half(TOKENS)
    assert out.dtype == tnp.bfloat16
    np.testing.assert_allclose(out.astype(np.float32), expected, 0.1, 0.1)


def of_texts(theirs):
    return theirs(
        input_ids=torch.tensor(TOKENS),
        attention_mask=torch.tensor(MASK).int(),
        decoder_input_ids=torch.tensor(TARGETS),
        decoder_attention_mask=torch.tensor(TARGET_MASK).int(),
    )


@pytest.mark.parametrize(
    ("kind", "options", "run"),
    [
        (hf.BertForMaskedLM, BERT, lambda theirs: theirs(torch.tensor(TOKENS)).logits),
        (hf.GPT2LMHeadModel, GPT2, lambda theirs: theirs(torch.tensor(TOKENS)).logits),
        (hf.LlamaForCausalLM, LLAMA, lambda theirs: theirs(torch.tensor(TOKENS))[0]),
        (hf.T5ForConditionalGeneration, T5, lambda theirs: of_texts(theirs).logits),
        (hf.ViTForImageClassification, VIT, lambda theirs: theirs(pixels()).logits),
        (hf.ResNetForImageClassification, RESNET, lambda t: t(pixels()).logits),
    ],
)
def test_what_we_write_transformers_loads(kind, options, run, tmp_path):
    made(kind, options).save_pretrained(tmp_path / "theirs")
    model = models.from_huggingface(tmp_path / "theirs")
    changed = td.tree.map(lambda x: x * 1.1, model)
    models.to_huggingface(tmp_path / "ours", changed, like=tmp_path / "theirs")
    again, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    inputs = (TOKENS,) if "vocab_size" in options else (IMAGES,)
    if kind is hf.T5ForConditionalGeneration:
        inputs = (TOKENS, TARGETS, LENGTHS, TARGET_LENGTHS)
    found, expected = changed(*inputs), run(again.eval()).detach().numpy()
    if kind is hf.T5ForConditionalGeneration:
        found, expected = (x * TARGET_MASK[..., None] for x in (found, expected))
    close(found, expected, 1e-5)
    wide = nn.at(model, nn.Linear).apply(lambda x: x.replace(weight=tnp.ones((2, 3))))
    with pytest.raises(ValueError, match=r"is f32\[2,3\], and"):
        models.to_huggingface(tmp_path / "more", wide, like=tmp_path / "theirs")
    assert not (tmp_path / "more").exists()


def test_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        models.from_huggingface(tmp_path)
    theirs = made(hf.BertModel, BERT)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    def changed(**options):
        (tmp_path / "config.json").write_text(json.dumps(config | options))
        return pytest.raises(ValueError)

    with changed(model_type="mamba") as error:
        models.from_huggingface(tmp_path)
    assert "model_type is 'mamba'; known are bert, convnext, gpt2" in str(error.value)
    with changed(hidden_act="softsign") as error:
        models.from_huggingface(tmp_path)
    assert "hidden_act is 'softsign'; known are" in str(error.value)
    with changed(is_decoder=True) as error:
        models.from_huggingface(tmp_path)
    assert "is_decoder is True; only False is supported" in str(error.value)
    with changed(num_hidden_layers=3, vocab_size=60) as error:
        models.from_huggingface(tmp_path)
    assert "missing: `layers.2.attention.query.weight`" in str(error.value)
    assert "`tokens.weight` is f32[60,24]" in str(error.value)
