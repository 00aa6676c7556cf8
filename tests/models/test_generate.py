"""Generation, against recomputing everything, enumeration, and what NumPy draws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import random
from treadle import models, nn, rng, tree

CALLS: list[tuple[int, ...]] = []


class Counted(nn.Module):
    """A model that notes when it runs, in Python."""

    model: Any

    def __call__(self, tokens: Any, lengths: Any = None) -> Any:
        CALLS.append(tokens.shape)
        return self.model(tokens, lengths)


class Fixed(nn.Module):
    """Logits of the next token that depend on the last one alone."""

    logits: td.Array
    cache: Any = None

    def __call__(self, tokens: Any, lengths: Any = None) -> Any:
        return self.logits[tokens]

    def new_cache(self, batch: Any, length: Any, dtype: Any) -> None:
        """It needs to know no token but the last."""


def louder(model: Any) -> Any:
    """With weights so large that texts are not all alike."""
    return tree.map(lambda x: 6 * x, model)


def gpt(**options: Any) -> Any:
    return louder(models.GPT2(13, 8, 2, 2, positions=32, key=rng.key(1), **options))


MODELS = {
    "gpt2": gpt(),
    "lstm": louder(models.LSTMLM(13, 8, 2, key=rng.key(3))),
    "llama": louder(models.Llama(13, 8, 2, 4, 12, kv_heads=2, key=rng.key(2))),
}
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6, 5]]
TOKENS = np.array([p + [0] * (5 - len(p)) for p in PROMPTS])
LENGTHS = np.array([len(p) for p in PROMPTS])


def recomputed(model: Any, prompt: list[int], steps: int, eos: int = -1) -> list[int]:
    run = td.jit(nn.inference(model), dynamic={"tokens": (None, "length")})
    tokens = list(prompt)
    while len(tokens) < len(prompt) + steps and eos not in tokens[len(prompt) :]:
        tokens.append(int(run(np.array([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_it_is_what_recomputing_everything_gives(model):
    expected = [recomputed(model, p, 8) for p in PROMPTS]
    assert len({token for row in expected for token in row}) > 3
    found = models.generate(model, TOKENS, 8, lengths=LENGTHS)
    assert found.tokens.tolist() == expected
    assert found.lengths.tolist() == [8, 8, 8]
    eos = expected[0][3]
    ended = [recomputed(model, p, 8, eos) for p in PROMPTS]
    found = models.generate(model, TOKENS, 8, lengths=LENGTHS, eos=eos)
    assert found.lengths.tolist() == [len(row) for row in ended]
    filled = [row + [eos] * (8 - len(row)) for row in ended]
    assert found.tokens.tolist() == filled


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_scores_are_log_probabilities(model):
    found = models.generate(model, TOKENS[:1], 6)
    text = np.concatenate([TOKENS[:1], found.tokens], 1)
    chances = nn.log_softmax(nn.inference(model)(text[:, :-1]))[0, 4:]
    expected = np.take_along_axis(chances, text[0, 5:, None], -1).sum()
    np.testing.assert_allclose(found.scores[0], expected, 1e-4)


@pytest.mark.parametrize("options", [{}, {"beams": 3}, {"key": rng.key(0), "top_p": 1}])
def test_one_program_for_all_batches_and_lengths(options):
    CALLS.clear()
    model = Counted(MODELS["llama"])
    for batch, length in [(1, 3), (2, 5), (3, 1), (1, 11)]:
        tokens = np.random.default_rng(length).integers(0, 13, (batch, length))
        found = models.generate(model, tokens, 4, **options)
        assert found.tokens.shape == (batch, 4)
        if not options:
            row = [int(t) for t in tokens[-1]]
            assert found.tokens[-1].tolist() == recomputed(MODELS["llama"], row, 4)
    assert len(CALLS) == 2  # the prompts, and a step


def filtered(logits: Any, temperature: float, top_k: int, top_p: float) -> Any:
    """The probabilities of tokens, by sorting in NumPy."""
    chances = np.exp(np.float64(logits) / temperature)
    order = np.argsort(-chances)
    chances[order[top_k:]] = 0
    chances /= chances.sum()
    before = np.cumsum(chances[order]) - chances[order]
    chances[order[1:][before[1:] >= top_p]] = 0
    return chances / chances.sum()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.4},
        {"top_k": 3},
        {"top_p": 0.7},
        {"temperature": 1.7, "top_k": 6, "top_p": 0.8},
        {"top_p": 0.0},
    ],
)
def test_tokens_are_drawn_as_often_as_they_should(options):
    logits = random(9, 9, seed=3) * 1.5
    count = 6000
    found = models.generate(
        Fixed(tnp.asarray(logits)),
        np.full((count, 1), 4),
        2,
        key=rng.key(5),
        **options,
    )
    whole = {"temperature": 1.0, "top_k": 9, "top_p": 1.0, **options}
    first, second = np.asarray(found.tokens).T
    often = [row for row in range(9) if (first == row).sum() > 1000]
    for row, chosen in [(4, first), *((row, second[first == row]) for row in often)]:
        shares = np.bincount(chosen, minlength=9) / len(chosen)
        expected = filtered(logits[row], **whole)
        assert not shares[expected == 0].any()
        # Four standard deviations.
        bound = 4 * np.sqrt(expected * (1 - expected) / len(chosen))
        assert (np.abs(shares - expected) <= bound + 1e-9).all()


def test_another_temperature_is_no_other_program_and_a_key_decides():
    CALLS.clear()
    model = Counted(gpt())
    found = [
        models.generate(model, TOKENS, 8, key=rng.key(k), temperature=t).tokens
        for k, t in [(0, 1.0), (0, 1.0), (1, 1.0), (0, 3.0)]
    ]
    assert len(CALLS) == 2
    assert found[0].tolist() == found[1].tolist()
    assert found[0].tolist() != found[2].tolist() != found[3].tolist()


def test_as_many_beams_as_texts_find_the_likeliest():
    logits = random(4, 4, seed=1) * 2
    chances = np.asarray(nn.log_softmax(tnp.asarray(logits)))

    def score(text: Any) -> float:
        return sum(chances[a, b] for a, b in itertools.pairwise((1, *text)))

    texts = sorted(itertools.product(range(4), repeat=3), key=score)
    model = Fixed(tnp.asarray(logits))
    found = models.generate(model, [[1]], 3, beams=16, length_penalty=0.0)
    assert found.tokens[0].tolist() == list(texts[-1])
    np.testing.assert_allclose(found.scores[0], score(texts[-1]), 1e-5)
    # Of texts that end before, too.
    ended = {
        text[: text.index(2) + 1] if 2 in text else text
        for text in itertools.product(range(4), repeat=3)
    }
    for penalty in (0.0, 1.0, 2.0):
        best = max(ended, key=lambda text, p=penalty: score(text) / len(text) ** p)
        found = models.generate(
            model, [[1]], 3, eos=2, beams=16, length_penalty=penalty
        )
        n = int(found.lengths[0])
        assert found.tokens[0, :n].tolist() == list(best)


class Layered(nn.Module):
    """A language model of blocks, with or without a context."""

    embed: nn.Embedding
    blocks: Any

    def __init__(self, make: Any, *, key: Any):
        keys = rng.split(key, 4)
        self.embed = nn.Embedding(13, 8, key=keys[0])
        self.blocks = [make(key=key) for key in keys[1:]]

    def __call__(self, tokens: Any, lengths: Any = None, **context: Any) -> Any:
        x = self.embed(tokens)
        whole = isinstance(self.blocks, nn.Stack)
        for block in [self.blocks] if whole else self.blocks:
            x = block(x, *context.values(), lengths=lengths, **CAUSAL[len(context)])
        return self.embed.attend(x)


CAUSAL: list[dict[str, Any]] = [{"causal": True}, {}]
BLOCKS = [nn.TransformerEncoderBlock, nn.TransformerDecoderBlock]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
def test_layers_of_a_stack_search_as_those_of_a_list(block, nested):
    model = louder(Layered(lambda key: block(8, 2, key=key), key=rng.key(6)))
    context = {"context": random(3, 4, 8)} if block is BLOCKS[1] else {}
    whole = nn.Stack.of(model.blocks)
    if nested:
        whole = [nn.Stack.of([nn.Stack.of(model.blocks[:2])]), model.blocks[2]]
    stacked = model.replace(blocks=whole)
    wanted = models.generate(model, TOKENS, 6, lengths=LENGTHS, beams=3, **context)
    found = models.generate(stacked, TOKENS, 6, lengths=LENGTHS, beams=3, **context)
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_allclose(found.scores, wanted.scores, 1e-5)


def test_several_stop_tokens():
    model, prompt = MODELS["gpt2"], PROMPTS[2]
    free = recomputed(model, prompt, 8)
    found = models.generate(model, [prompt], 8, eos=(free[5], free[2]))
    n = min(free.index(free[2]), free.index(free[5])) + 1
    assert found.lengths.tolist() == [n]
    assert found.tokens[0, :n].tolist() == free[:n]
    assert found.tokens[0, n:].tolist() == [free[5]] * (8 - n)


@pytest.mark.parametrize("options", [{}, {"key": rng.key(3), "top_k": 5}])
def test_a_stream_is_the_same_text(options):
    model = MODELS["llama"]
    whole = models.generate(model, TOKENS, 8, lengths=LENGTHS, **options).tokens
    parts = list(models.stream(model, TOKENS, 8, chunk=3, lengths=LENGTHS, **options))
    assert [x.shape[1] for x in parts] == [1, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(parts, 1), whole)
    eos = int(whole[0, 2])
    row = models.generate(model, TOKENS[:1], 8, eos=eos, **options)
    parts = list(models.stream(model, TOKENS[:1], 8, chunk=4, eos=eos, **options))
    n = int(row.lengths[0])
    assert np.concatenate(parts, 1)[0].tolist() == row.tokens[0, :n].tolist()


def test_inside_of_a_users_jit():
    model = MODELS["gpt2"]

    @td.jit
    def run(model: Any, tokens: Any) -> Any:
        return models.generate(model, tokens + 1, 3, eos=0).tokens

    expected = models.generate(model, TOKENS + 1, 3, eos=0).tokens
    np.testing.assert_array_equal(run(model, TOKENS), expected)


def test_what_it_refuses():
    model = MODELS["gpt2"]
    with pytest.raises(
        ValueError, match=r"32 places, and a cache was asked for .* length \+ 27"
    ):
        models.generate(model, [[1] * 6], 28)
    with pytest.raises(ValueError, match="top_k, top_p without a key"):
        models.generate(model, [[1]], 2, top_k=3, top_p=0.5)
    with pytest.raises(ValueError, match="beams=2 and a key"):
        models.generate(model, [[1]], 2, beams=2, key=rng.key(0))
    with pytest.raises(ValueError, match=r"prompts \(batch, length\) of one token"):
        models.generate(model, [1, 2], 2)
    with pytest.raises(ValueError, match="one for each of the prompts"):
        models.generate(model, [[1, 2]], 2, lengths=[1, 2])
    for wrong in ({"steps": 0}, {"steps": 1, "beams": 0}):
        with pytest.raises(ValueError, match="is 1 or more, got 0"):
            models.generate(model, [[1]], **wrong)
