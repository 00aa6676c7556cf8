"""Connectionist temporal classification: learning labels whose times nobody knows.

The loss sums over all alignments by a `scan` in the logarithm; its gradient needs no
backward recursion of its own. Small cases are checked against a sum over alignments.
(A. Graves et al.: Connectionist Temporal Classification, 2006.)
"""

import itertools

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng

BLANK = 0
NEVER = -1e30


def ctc_loss(log_probs, labels, length):
    """Minus the log likelihood of labels, given those of symbols at each time.

    log_probs: (time, symbols). labels: (n,), of which the first `length` count.
    """
    n = len(labels)
    # Between labels, before and behind them, there may be blanks.
    states = tnp.full(2 * n + 1, BLANK).at[1::2].set(labels)
    place = tnp.arange(2 * n + 1)
    # A blank between two labels may be left out, unless these are the same.
    before = tnp.concatenate([tnp.array([BLANK, BLANK]), states[:-2]])
    skips = (states != BLANK) & (states != before) & (place >= 2)

    def shifted(alpha, by):
        return tnp.concatenate([tnp.full(by, NEVER), alpha[:-by]])

    def step(alpha, log_prob):
        ways = tnp.stack(
            [alpha, shifted(alpha, 1), tnp.where(skips, shifted(alpha, 2), NEVER)]
        )
        return nn.logsumexp(ways, axis=0) + log_prob[states], None

    alpha = tnp.where(place < 2, log_probs[0][states], NEVER)
    alpha, _ = td.scan(step, alpha, log_probs[1:])
    # It ends in the last label, or in the blank behind it.
    last = tnp.where(length > 0, alpha[2 * length - 1], NEVER)
    return -tnp.logaddexp(alpha[2 * length], last)


def collapsed(path):
    """What is read of symbols at each time: repeats once, blanks not at all."""
    return [k for k, _ in itertools.groupby(path) if k != BLANK]


def summed_up(log_probs, labels):
    """The loss by its definition: all alignments, one by one."""
    times, symbols = log_probs.shape
    paths = [
        path
        for path in itertools.product(range(symbols), repeat=times)
        if collapsed(path) == labels
    ]
    likely = log_probs[tnp.arange(times), tnp.array(paths)].sum(-1)
    return -nn.logsumexp(likely)


def spoken(key, count, times=30, most=4, symbols=5):
    """Sequences of numbers for labels that come at any time, and last for some."""
    k1, k2, k3 = rng.split(key, 3)
    labels = rng.randint(k1, (count, most), 1, symbols)
    starts = tnp.sort(rng.uniform(k2, (count, most)), 1) * (times - 4 * most)
    starts = starts.astype(int) + 4 * tnp.arange(most)
    since = tnp.arange(times)[:, None] - starts[:, None, :]
    heard = ((since >= 0) & (since < 3))[..., None] * nn.one_hot(labels, symbols)[
        :, None
    ]
    x = heard.sum(2)
    return x + 0.3 * rng.normal(k3, x.shape), labels


def main(rounds=250):
    k1, k2, k3, k4 = rng.split(rng.key(0), 4)
    log_probs = nn.log_softmax(rng.normal(k1, (5, 3)))
    for labels in ([1], [1, 2], [1, 1], [2, 1, 2], []):
        padded = tnp.array([*labels, 0, 0, 0][:3])
        found = ctc_loss(log_probs, padded, len(labels))
        wanted = summed_up(log_probs, labels)
        print(f"labels {labels!s:10} loss {found:.5f}, all alignments {wanted:.5f}")
        assert abs(found - wanted) < 1e-4

    model = nn.MLP([15, 32, 5], key=k2)
    x, labels = spoken(k3, 256)
    lengths = tnp.full(256, 4)

    def hear(model, x):
        """Each time, with what comes before and behind it."""
        padded = tnp.pad(x, ((0, 0), (1, 1), (0, 0)))
        near = tnp.concatenate([padded[:, :-2], x, padded[:, 2:]], -1)
        return nn.log_softmax(model(near))

    def loss(model):
        return td.vmap(ctc_loss)(hear(model, x), labels, lengths).mean()

    optimizer = optim.adam(1e-2)

    @td.jit
    def train(model):
        def step(carry, _):
            model, state = carry
            value, slope = td.value_and_grad(loss)(model)
            updates, state = optimizer.update(slope, state, model)
            return (optim.apply_updates(model, updates), state), value

        return td.scan(step, (model, optimizer.init(model)), length=rounds)

    (model, _), path = train(model)
    new, wanted = spoken(k4, 200)
    best = hear(model, new).argmax(-1)
    right = [
        collapsed(b) == w for b, w in zip(best.tolist(), wanted.tolist(), strict=True)
    ]
    share = sum(right) / len(right)
    print(f"loss {path[0]:.2f} before, {path[-1]:.3f} after; {share:.0%} heard rightly")
    assert path[-1] < 0.1 * path[0] and share > 0.8


if __name__ == "__main__":
    main()
