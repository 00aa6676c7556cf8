"""PageRank: a `while_loop` that runs until the ranks rest, and its gradient.

How much would a page's rank grow if a link counted more? Reverse mode goes back through
as many steps as the loop took. Ranks and gradients are checked against the solution of
the linear equation.
"""

import treadle as td
import treadle.numpy as tnp
from treadle import rng

DAMPING = 0.85


def links(key, pages, count):
    """Pages at random, of which the first are linked to more often."""
    k1, k2 = rng.split(key)
    senders = rng.randint(k1, (count,), 0, pages)
    receivers = (pages * rng.uniform(k2, (count,)) ** 3).astype(int)
    # Every page has a link.
    ring = tnp.arange(pages)
    return (
        tnp.concatenate([senders, ring]),
        tnp.concatenate([receivers, (ring + 1) % pages]),
    )


def pagerank(weights, senders, receivers, pages, tolerance=1e-7):
    """The ranks, and in how many steps they were found."""
    total = td.segment_sum(weights, senders, pages)
    share = weights / total[senders]

    def step(carry):
        ranks, _, count = carry
        given = td.segment_sum(share * ranks[senders], receivers, pages)
        new = (1 - DAMPING) / pages + DAMPING * given
        return new, abs(new - ranks).sum(), count + 1

    start = tnp.full(pages, 1 / pages), 1.0, 0
    ranks, _, count = td.while_loop(lambda c: c[1] > tolerance, step, start)
    return ranks, count


def solved(weights, senders, receivers, pages):
    """The ranks as the solution of (1 - DAMPING P) r = (1 - DAMPING) / pages."""
    total = td.segment_sum(weights, senders, pages)
    P = tnp.zeros((pages, pages)).at[receivers, senders].add(weights / total[senders])
    right = tnp.full(pages, (1 - DAMPING) / pages)
    return tnp.linalg.solve(tnp.eye(pages) - DAMPING * P, right)


def main(pages=300, count=2000):
    senders, receivers = links(rng.key(0), pages, count)
    weights = tnp.ones(len(senders))
    page = 7

    @td.jit
    def rank(weights):
        ranks, count = pagerank(weights, senders, receivers, pages)
        return ranks[page], (ranks, count)

    (_, (ranks, steps)), slope = td.jit(td.value_and_grad(rank, has_aux=True))(weights)
    wanted, by_solving = td.value_and_grad(
        lambda w: solved(w, senders, receivers, pages)[page]
    )(weights)
    best = tnp.argsort(-ranks)[:5]
    print(f"{steps} steps; the five highest of {pages} pages: {best}, {ranks[best]}")
    edge = tnp.argmax(slope)
    print(
        f"page {page} gains most by the link {senders[edge]} -> {receivers[edge]}: "
        f"{slope[edge]:.2e}; by solving: {by_solving[edge]:.2e}"
    )
    assert abs(ranks.sum() - 1) < 1e-5
    assert tnp.allclose(ranks[page], wanted, rtol=1e-4)
    assert tnp.allclose(slope, by_solving, rtol=1e-3, atol=1e-4 * slope.max())
    assert receivers[edge] == page


if __name__ == "__main__":
    main()
