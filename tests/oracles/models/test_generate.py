"""Generation with models that transformers wrote, against its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf

from tests.oracles.models.test_huggingface import GPT2, LLAMA, made
from tests.oracles.models.test_t5 import t5_with_a_head
from treadle import models

KINDS = {
    "gpt2": (hf.GPT2LMHeadModel, GPT2 | {"n_positions": 64}),
    "llama": (hf.LlamaForCausalLM, LLAMA | {"eos_token_id": 0, "pad_token_id": 0}),
}
STEPS = 12
LENGTHS = np.array([6, 2, 4, 1])
TOKENS = np.random.default_rng(5).integers(1, 50, (4, 6))


@pytest.fixture(params=KINDS)
def pair(request, tmp_path):
    """A model of theirs, and ours of its folder."""
    kind, options = KINDS[request.param]
    theirs = made(kind, options)
    with torch.no_grad():  # so that texts are not all alike
        for parameter in theirs.parameters():
            parameter.mul_(2)
    theirs.save_pretrained(tmp_path)
    return theirs, models.from_huggingface(tmp_path)


def generated(theirs, **options):
    """Their tokens after each prompt, which they have padded at the front."""
    ids, mask = np.zeros((2, *TOKENS.shape), int)
    for i, n in enumerate(LENGTHS):
        ids[i, 6 - n :], mask[i, 6 - n :] = TOKENS[i, :n], 1
    with torch.no_grad():
        out = theirs.generate(
            torch.tensor(ids),
            attention_mask=torch.tensor(mask),
            max_new_tokens=STEPS,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    return out, out.sequences[:, 6:].numpy()


def same_texts(found, expected, ends):
    """Up to the first stop token; what they put behind it is padding."""
    for i, n in enumerate(found.lengths):
        row = found.tokens[i, : int(n)].tolist()
        assert expected[i, : int(n)].tolist() == row
        stopped = [t for t in row if t in ends]
        assert stopped == ([] if n == STEPS and row[-1] not in ends else row[-1:])


def frequent(theirs):
    """A token that greedy texts have in their middle."""
    _, texts = generated(theirs, eos_token_id=None)
    return int(texts[0, 4])


def test_the_likeliest_tokens(pair):
    theirs, ours = pair
    for eos in (None, frequent(theirs)):
        _, expected = generated(theirs, eos_token_id=eos)
        ends = () if eos is None else (eos,)
        found = models.generate(ours, TOKENS, STEPS, lengths=LENGTHS, eos=ends)
        same_texts(found, expected, ends)
        assert (eos is None) == (min(found.lengths) == STEPS)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("beams", [2, 5])
def test_beams(pair, beams, penalty):
    theirs, ours = pair
    first = frequent(theirs)
    for ends in ((), (first,), (first, 7)):
        out, expected = generated(
            theirs,
            eos_token_id=list(ends) or None,
            num_beams=beams,
            length_penalty=penalty,
            early_stopping=False,
        )
        found = models.generate(
            ours,
            TOKENS,
            STEPS,
            lengths=LENGTHS,
            eos=ends,
            beams=beams,
            length_penalty=penalty,
        )
        same_texts(found, expected, ends)
        np.testing.assert_allclose(found.scores, out.sequences_scores, 1e-4, 1e-4)


@pytest.mark.parametrize("beams", [1, 4])
def test_texts_for_other_texts(beams, tmp_path):
    # Their caches want as many layers in the decoder as in the encoder.
    theirs = t5_with_a_head(tmp_path, num_decoder_layers=2)
    ours = models.from_huggingface(tmp_path)
    mask = np.arange(6) < LENGTHS[:, None]

    def expected(eos):
        with torch.no_grad():
            return theirs.generate(
                torch.tensor(TOKENS),
                attention_mask=torch.tensor(mask.astype(int)),
                max_new_tokens=STEPS,
                pad_token_id=0,
                eos_token_id=eos,
                num_beams=beams,
            ).numpy()[:, 1:]

    eos = int(expected(None)[0, 5])
    found = models.generate(
        ours.decoder,
        np.zeros((4, 1), int),
        STEPS,
        eos=eos,
        beams=beams,
        context=ours.encoder(TOKENS, LENGTHS),
        context_lengths=LENGTHS,
    )
    texts = expected(eos)
    texts = np.pad(texts, ((0, 0), (0, STEPS - texts.shape[1])))
    same_texts(found, texts, (eos,))
    assert min(found.lengths) < STEPS
