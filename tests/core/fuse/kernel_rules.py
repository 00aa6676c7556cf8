"""Steps of random programs that kernels of their own run: attention, as one operation
and spelled; convolutions of groups, strides and dilations; norms over few channels."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.fuse.random_programs import Generator, Program
from tests.core.fuse.random_rules import RULES, Rule, generate

LENGTHS = (1, 2, 3, 7, 13, 15, 17, 31, 33)
SCORES = (
    "tnp.einsum('qhd,khd->hqk', {0}, {1}) * 0.4",
    "tnp.einsum('qhd,khd->hqk', {0} * 0.3, {1})",
)
SEEN = ("", "tnp.tril(tnp.ones({0}.shape[1:])) > 0", "{0} > -0.3")
NORMED = (
    "({0} - {0}.mean({1}, keepdims=True)) / tnp.sqrt({0}.var({1}, keepdims=True) + 1)",
    "{0} / tnp.sqrt(tnp.mean({0} * {0}, {1}, keepdims=True) + 1)",
    "tnp.sum({0} * tnp.sin({0}), {1})",
)


def _drawn(g: Generator, *shape: int) -> int | None:
    """The number of a new step: an input's numbers, at other places, of a shape."""
    size = 1
    for n in shape:
        size *= n
    a = g.pick(pred=lambda v: v.size > 0)
    if a is None or size > 2500:
        return None
    wave = f"tnp.cos(tnp.arange({size}).astype({{0}}.dtype))"
    text = f"(tnp.resize({{0}}, ({size},)) * {wave}).reshape{shape}"
    return g.last if g.add(text, a) else None


def _heads(g: Generator) -> list[int | None]:
    """Query, key and value, (length, heads, depth), of one dtype."""
    queries, keys = g.r.choice(LENGTHS), g.r.choice(LENGTHS)
    shared, depth = g.r.choice([1, 2]), g.r.choice([1, 3, 8])
    heads = shared * g.r.choice([1, 2])
    sizes = ((queries, heads), (keys, shared), (keys, shared))
    return [_drawn(g, *size, depth) for size in sizes]


def attend(g: Generator) -> None:
    q, k, v = _heads(g)
    if q is None or k is None or v is None:
        return
    reach = g.r.choice(["", ", after=0", ", before=2, after=1", ", before=5"])
    one = g.r.choice([(q, k, v), (q, k, k), (k, k, k)])
    operands = "{0}[None], {1}[None].astype({0}.dtype), {2}[None].astype({0}.dtype)"
    g.add(f"td.lax.attention({operands}, scale=0.4{reach})[0]", *one)


def spell(g: Generator) -> None:
    q, k, v = _heads(g)
    if q is None or k is None or v is None:
        return
    if not g.add(g.r.choice(SCORES), q, k):
        return
    if seen := g.r.choice(SEEN):
        # Not less: a program with larger numbers is none to compare.
        g.add(f"tnp.where({seen}, {{0}}, -99.0)", g.last)
    if g.add("tnp.exp({0} - {0}.max(-1, keepdims=True))", g.last):
        g.add("{0} / {0}.sum(-1, keepdims=True)", g.last)
        g.add("tnp.einsum('hqk,khd->qhd', {0}, {1})", g.last, v)


def convolve(g: Generator) -> None:
    r = g.r
    groups, rank = r.choice([1, 2, 3, 8]), r.choice([1, 2])
    inside, outside = r.choice([1, 1, 2]), r.choice([1, 1, 2, 3])
    sides = tuple(r.choice([1, 3, 7, 13]) for _ in range(rank))
    taps = tuple(r.choice([1, 2, 3]) for _ in range(rank))
    image = _drawn(g, r.choice([1, 2]), *sides, groups * inside)
    weight = _drawn(g, *taps, inside, groups * outside)
    if image is None or weight is None:
        return
    letters = "WH"[:rank]
    names = f"('N{letters}C', '{letters}IO', 'N{letters}C')"
    strides = tuple(r.choice([1, 1, 2, 3]) for _ in sides)
    apart = tuple(r.choice([1, 1, 2]) for _ in sides)
    padding = r.choice(["'SAME'", f"{((1, 0),) * rank}", f"{((2, 2),) * rank}"])
    g.add(
        f"td.lax.conv_general_dilated({{0}}, {{1}}.astype({{0}}.dtype), {strides}, "
        f"{padding}, rhs_dilation={apart}, dimension_numbers={names}, "
        f"feature_group_count={groups})",
        *(image, weight),
    )


def norm(g: Generator) -> None:
    """Of groups of channels: the last axis that is reduced is short."""
    r = g.r
    groups, few = r.choice([1, 2, 5]), r.choice([1, 2, 3, 4])
    x = _drawn(g, r.choice([1, 2]), r.choice([1, 7, 16]), groups, few)
    if x is not None:
        text = r.choice(NORMED).replace("{1}", r.choice(["(1, 3)", "3", "1", "(0, 1)"]))
        g.add(text, x)


KERNELS: dict[Rule, float] = {attend: 14, spell: 10, convolve: 14, norm: 12}


def generate_kernels(seed: int, dtypes: Sequence[str], length: int) -> Program:
    """The random program with a number that has such steps among others."""
    return generate(seed, dtypes, length, rules=RULES | KERNELS)
