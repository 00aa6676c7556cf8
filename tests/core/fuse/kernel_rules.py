"""Steps of random programs that kernels of their own run: attention, as one operation
and spelled; convolutions of groups, strides and dilations; norms over few channels;
rows of a few elements, windows with padding, many small matrices."""

from __future__ import annotations

from collections.abc import Sequence

from tests.core.fuse.random_programs import Generator, Program
from tests.core.fuse.random_rules import RULES, Rule, generate

ROWS = (1, 15, 16, 17, 35)
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


def narrow(g: Generator) -> None:
    """Rows of a few elements, which vectors go across."""
    rows, others, few = g.r.choice(ROWS), g.r.choice(ROWS), g.r.choice([2, 3, 4, 7, 12])
    x, y, lines = _drawn(g, rows, few), _drawn(g, others, few), _drawn(g, few, rows)
    weights = _drawn(g, rows, others)
    if x is None or y is None or lines is None or weights is None:
        return
    apart = "({0}[:, None] - {1}.astype({0}.dtype))"
    axis, by = g.r.choice([0, 1, -1]), g.r.choice([-5, 1, 4])
    texts: list[tuple[str, Sequence[int]]] = [
        (f"tnp.sum({apart} * {apart}, {axis})", (x, y)),
        (
            f"tnp.sum({{2}}[:, :, None].astype({{0}}.dtype) * {apart}, 1)",
            (x, y, weights),
        ),
        ("tnp.tanh({0}.T) * 2 + {1}.astype({0}.dtype)", (lines, x)),
        (f"tnp.roll({{0}}, {by}, {axis % 2}) * {{0}}", (g.r.choice([x, lines]),)),
        ("tnp.tanh({0}[:, ::-1] - {0}[-1]).T", (x,)),
    ]
    text, operands = g.r.choice(texts)
    g.add(text, *operands)


def border(g: Generator) -> None:
    """Windows along lines, some of which begin or end in padding."""
    taps, stride = g.r.choice([2, 3, 5]), g.r.choice([1, 1, 2])
    x = _drawn(g, 2, g.r.choice([1, 3]), g.r.choice([5, 18, 33]))
    if x is None:
        return
    pads = g.r.choice([0, 1, taps - 1]), g.r.choice([0, 1, taps - 1])
    name, first = g.r.choice([("add", "0.0"), ("max", "-tnp.inf"), ("min", "tnp.inf")])
    first = f"tnp.asarray({first}, {{0}}.dtype)"
    g.add(
        f"td.lax.reduce_window({{0}}, {first}, td.lax.{name}, "
        f"(1, 1, {taps}), (1, 1, {stride}), ((0, 0), (0, 0), {pads}))",
        x,
    )


def small(g: Generator) -> None:
    """Products of many small matrices."""
    m, n, k = (g.r.choice([1, 2, 3, 5, 8, 9]) for _ in range(3))
    x, y = _drawn(g, 17, m, k), _drawn(g, 17, *g.r.choice([(k, n), (n, k)]))
    if x is not None and y is not None:
        subscripts = "bmk,bkn->bmn" if g.values[y].shape[1] == k else "bmk,bnk->bmn"
        g.add(
            f"tnp.einsum('{subscripts}', {{0}} * 0.3, {{1}}.astype({{0}}.dtype))", x, y
        )


KERNELS: dict[Rule, float] = {
    **{attend: 14, spell: 10, convolve: 14, norm: 12},
    **{narrow: 14, border: 10, small: 8},
}


def generate_kernels(seed: int, dtypes: Sequence[str], length: int) -> Program:
    """The random program with a number that has such steps among others."""
    return generate(seed, dtypes, length, rules=RULES | KERNELS)
