"""The steps that random programs are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.core.fuse.random_programs import DTYPES, Generator, Program

Rule = Callable[[Generator], None]
RULES: dict[Rule, float] = {}


def rule(weight: float) -> Callable[[Rule], Rule]:
    """Registers a rule that adds a step or a few, or nothing if nothing fits."""

    def register(function: Rule) -> Rule:
        RULES[function] = weight
        return function

    return register


UNARY = (
    *("tnp.tanh({0})", "tnp.exp(-tnp.abs({0}))", "{0} * 0.5", "{0} + 1.5", "-{0}"),
    *("tnp.sqrt(tnp.abs({0}) + 0.5)", "tnp.maximum({0}, 0)", "{0} * {0}", "{0} / 3"),
    *("1 / (1 + tnp.exp(-{0}))", "tnp.where({0} > 0.1, {0}, 0.3)", "tnp.sin({0})"),
    *("tnp.log(tnp.abs({0}) + 1)", "tnp.clip({0}, -1, 1)", "2.0 - {0}"),
    *("{0} * {0} * 0.5 - {0}", "{0} * 1.7 + 0.3", "{0} * 0.3 - {0} * {0}"),
)
BINARY = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "tnp.maximum({0}, {1})"),
    *("{0} / (tnp.abs({1}) + 1)", "tnp.where({0} > {1}, {0}, {1} * 0.5)"),
    *("tnp.minimum({0}, {1})", "tnp.where({1} < 0, {0}, {1})"),
    *("{0} * {1} + {0}", "{0} - {1} * {1}", "tnp.tanh({0} * 0.5 + {1})"),
)
INTEGER = (
    *("{0} + 1", "{0} * 2 % 7", "{0} // 3", "tnp.abs({0})", "{0} & 5", "{0} ^ 3"),
    *("tnp.where({0} > 1, {0}, 2)", "tnp.sum({0})", "tnp.max({0}, axis=-1)", "{0} > 0"),
)
BOOLEAN = ("~{0}", "tnp.any({0}, -1)", "tnp.all({0}, 0)", "tnp.sum({0}, -1)")
AROUND = ("{0} - {1}", "{0} / (tnp.abs({1}) + 1)", "{0} * {1}", "{1} - {0}")
SCANS = (
    *("(c * 0.5 + x, tnp.tanh(c))", "(c, c + x)", "(c * 0.5, x * 2)", "(x, c)"),
    *("(c[::-1] * 0.5, x)", "(tnp.maximum(c, x), tnp.sum(c * x))"),
    "(td.fori_loop(0, 2, lambda j, z: z * 0.5 + x, c), tnp.cos(c))",
)
LOOPS = (
    *("c * 0.9 + {1}", "tnp.where(i > 1, c, {1} * 0.5)", "c.at[0].add(i)"),
    *("tnp.flip(c, 0) * 0.5", "c - tnp.mean(c)"),
)
BRANCHES = (
    *("x", "y", "x + y", "tnp.flip(x, 0)", "tnp.zeros_like(x)", "tnp.tanh(x) * y"),
    "tnp.broadcast_to(tnp.sum(y, 0), x.shape)",
)


@rule(8)
def unary(g: Generator) -> None:
    if (a := g.pick()) is not None:
        g.add(g.r.choice(UNARY), a)


@rule(10)
def binary(g: Generator) -> None:
    if (a := g.pick()) is None:
        return
    shape = g.values[a].shape

    def fits(v: Any) -> bool:
        both = zip(reversed(v.shape), reversed(shape), strict=False)
        return all(m == n or 1 in (m, n) for m, n in both)

    b = g.pick(pred=fits)
    assert b is not None
    g.add(g.r.choice(BINARY), a, b)


@rule(4)
def broadcast(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    k = g.r.randrange(g.values[a].ndim + 1)
    index = [":"] * g.values[a].ndim
    index.insert(k, "None")
    if g.add(f"{{0}}[{', '.join(index)}]", a) and g.r.random() < 0.6:
        shape = list(g.values[-1].shape)
        shape[k] = g.r.choice(g.dims)
        g.add(f"tnp.broadcast_to({{0}}, {tuple(shape)})", g.last)


@rule(7)
def reduce(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    ndim = g.values[a].ndim
    count = 1 if g.r.random() < 0.6 else g.r.randint(1, ndim)
    axes = tuple(sorted(g.r.sample(range(ndim), count)))
    name = g.r.choice(["sum", "mean", "max", "min", "sum", "mean"])
    keep = g.r.random() < 0.5
    done = g.add(f"tnp.{name}({{0}}, axis={axes}, keepdims={keep})", a)
    if done and keep and g.r.random() < 0.8:
        g.add(g.r.choice(AROUND), a, g.last)


@rule(3)
def softmax(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    ndim = g.values[a].ndim
    options = f"axis={g.r.randrange(-ndim, ndim)}, keepdims=True"
    if not g.add(f"tnp.max({{0}}, {options})", a):
        return
    g.add("tnp.exp({0} - {1})", a, g.last)
    e = g.last
    if g.add(f"tnp.sum({{0}}, {options})", e):
        ends = ["{0} / {1}", "tnp.log({0} + 0.1) - tnp.log({1})"]
        g.add(g.r.choice(ends), e, g.last)


@rule(3)
def norm(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    ndim = g.values[a].ndim
    some = [(-1,), tuple(range(ndim - 1)) or (-1,), (g.r.randrange(ndim),)]
    options = f"axis={g.r.choice(some)}, keepdims=True"
    if not g.add(f"tnp.mean({{0}}, {options})", a):
        return
    g.add("{0} - {1}", a, g.last)
    centred = g.last
    if g.add(f"tnp.mean({{0}} * {{0}}, {options})", centred):
        g.add("{0} / tnp.sqrt({1} + 0.01)", centred, g.last)


@rule(4)
def regroup(g: Generator) -> None:
    if (a := g.pick("ffib")) is None:
        return
    size, shape = g.values[a].size, []
    while size > 1 and len(shape) < 3:
        shape.append(g.r.choice([k for k in range(1, size + 1) if size % k == 0]))
        size //= shape[-1]
    shape.append(size)
    g.r.shuffle(shape)
    texts = [
        f"tnp.reshape({{0}}, {tuple(shape)})",
        "tnp.ravel({0})",
        "tnp.squeeze({0})",
    ]
    g.add(g.r.choice(texts[:1] + texts), a)


@rule(5)
def rearrange(g: Generator) -> None:
    if (a := g.pick("ffib", rank=1)) is None:
        return
    ndim = g.values[a].ndim
    order = tuple(g.r.sample(range(ndim), ndim))
    pads = tuple((g.r.randrange(3), g.r.randrange(3)) for _ in range(ndim))
    texts = [
        f"tnp.transpose({{0}}, {order})",
        f"tnp.pad({{0}}, {pads})",
        f"tnp.flip({{0}}, axis={g.r.randrange(ndim)})",
    ]
    grown = [sum(p) + n for p, n in zip(pads, g.values[a].shape, strict=True)]
    if (text := g.r.choice(texts)) != texts[1] or math.prod(grown) <= 4000:
        g.add(text, a)


@rule(3)
def slices(g: Generator) -> None:
    if (a := g.pick("ffib", rank=1)) is None:
        return
    index = []
    for n in g.values[a].shape:
        start = g.r.randrange(n + 1)
        stop = g.r.randint(start, n)
        step = g.r.choice(["", ":2", ":3"])
        index.append(g.r.choice([":", ":", ":", "::-1", "0", f"{start}:{stop}{step}"]))
    g.add(f"{{0}}[{', '.join(index)}]", a)


@rule(4)
def join(g: Generator) -> None:
    if (a := g.pick("ffi", rank=1)) is None:
        return
    v = g.values[a]
    axis = g.r.randrange(v.ndim)

    def rest(w: Any) -> tuple[Any, ...]:
        return w.dtype, w.shape[:axis], w.shape[axis + 1 :]

    b = g.pick("fi", pred=lambda w: w.ndim == v.ndim and rest(w) == rest(v))
    assert b is not None
    texts = [
        "concatenate([{0}, {1}]",
        "concatenate([{0}, {1}, {0}]",
        "stack([{0}, {0}]",
    ]
    g.add(f"tnp.{g.r.choice(texts)}, axis={axis})", a, b)


@rule(4)
def gather(g: Generator) -> None:
    a, i = g.pick("ffi", rank=1), g.pick("i")
    if a is None or i is None:
        return
    shape = g.values[a].shape
    axis = g.r.randrange(len(shape))
    texts = [f"tnp.take({{0}}, {{1}} % {max(shape[axis], 1)}, axis={axis})"]
    texts.append(f"{{0}}[{{1}} % {max(shape[0], 1)}]")
    texts.append("{0}.at[{1}].get(mode='fill', fill_value=1)")
    if shape[0]:
        texts.append("{0}[{1}]")
    if len(shape) > 1:
        texts.append(f"{{0}}[:, {{1}} % {max(shape[1], 1)}]")
        texts += ["tnp.diagonal({0})", "tnp.diagonal({0}, axis1=-2, axis2=-1)"]
    g.add(g.r.choice(texts), a, i)


@rule(4)
def scatter(g: Generator) -> None:
    a, i = g.pick("ffi", rank=1), g.pick("i", pred=lambda w: w.ndim <= 1)
    if a is None or i is None:
        return
    v = g.values[a]
    wanted = g.values[i].shape + v.shape[1:]
    b = g.pick(pred=lambda u: u.dtype == v.dtype and u.shape == wanted)
    # Some places are out of range.
    target = f"{{0}}.at[{{1}} % {g.r.choice([max(v.shape[0], 1), 7])}]"
    if b is not None and g.r.random() < 0.7:
        g.add(target + g.r.choice([".add", ".add", ".max", ".min"]) + "({2})", a, i, b)
    else:
        g.add(target + g.r.choice([".add(1)", ".set(1)"]), a, i)


@rule(3)
def update(g: Generator) -> None:
    if (a := g.pick("ffi", rank=1)) is None:
        return
    v = g.values[a]
    start = g.r.randrange(v.shape[0] + 1)
    stop = g.r.randint(start, v.shape[0])
    wanted = (stop - start, *v.shape[1:])
    b = g.pick(pred=lambda u: u.dtype == v.dtype and u.shape == wanted)
    target = f"{{0}}.at[{start}:{stop}].{g.r.choice(['add', 'set', 'multiply'])}"
    if b is not None:
        g.add(target + "({1})", a, b)
    else:
        g.add(target + "(2)", a)


@rule(6)
def matmul(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    v = g.values[a]

    def fits(w: Any) -> bool:
        return w.dtype == v.dtype and v.shape[-1] in w.shape[-2:]

    if (b := g.pick(rank=1, pred=fits)) is None:
        return
    if not g.add("{0} @ {1}", a, b) and not g.add("{0} @ {1}.swapaxes(-1, -2)", a, b):
        return
    product, columns = g.last, g.values[-1].shape[-1:]
    bias = g.pick(pred=lambda w: w.shape == columns)
    if bias is not None and g.add("{0} * 0.1 + {1}", product, bias):
        g.add("tnp.maximum({0}, 0)", g.last)


@rule(5)
def einsum(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    v = g.values[a]
    b = g.pick(rank=1, pred=lambda w: w.dtype == v.dtype and {*w.shape} & {*v.shape})
    if b is None:
        return
    left, right, free = "abcdef"[: v.ndim], "", iter("uvwxyz")
    for n in g.values[b].shape:
        alike = [x for x, m in zip(left, v.shape, strict=True) if m == n]
        alike = [x for x in alike if x not in right]
        take = alike and g.r.random() < 0.75
        right += g.r.choice(alike) if take else next(free)
    out = [x for x in dict.fromkeys(left + right)]
    out = [x for x in out if (x in left) != (x in right) or g.r.random() < 0.4]
    g.r.shuffle(out)
    g.add(f"tnp.einsum('{left},{right}->{''.join(out)}', {{0}}, {{1}}) * 0.25", a, b)


@rule(3.5)
def along_an_axis(g: Generator) -> None:
    if (a := g.pick("fi", rank=1)) is None:
        return
    names = ["argmax", "argmin", "cumsum", "sort", "cumprod", "argsort", "median"]
    name = g.r.choice(names)
    g.add(f"tnp.{name}({{0}}, axis={g.r.randrange(g.values[a].ndim)})", a)


@rule(2)
def windows(g: Generator) -> None:
    if (a := g.pick(pred=lambda v: v.ndim == 2)) is None:
        return
    size, strides = ((g.r.randrange(1, 4), g.r.randrange(1, 3)) for _ in range(2))
    pads = tuple((g.r.randrange(3), g.r.randrange(3)) for _ in range(2))
    grown = g.r.choice(["[None, :, :, None]", "[:, :, None, None].swapaxes(1, 2)"])
    whole = f"(1, *{size}, 1), (1, *{strides}, 1), ((0, 0), *{pads}, (0, 0))"
    start = g.r.choice(["-tnp.inf, td.lax.max", "0.0, td.lax.add"])
    g.add(f"td.lax.reduce_window({{0}}{grown}, {start}, {whole})[0]", a)


@rule(3)
def mask(g: Generator) -> None:
    if (a := g.pick(rank=2)) is None:
        return
    rows, columns = g.values[a].shape[-2:]
    limit = g.r.randrange(columns + 1)
    texts = [
        f"tnp.where(tnp.arange({rows})[:, None] >= tnp.arange({columns}), {{0}}, -1)",
        f"tnp.where(tnp.arange({columns}) < {limit}, {{0}}, 0)",
    ]
    g.add(g.r.choice(texts), a)


@rule(2)
def one_hot(g: Generator) -> None:
    if (i := g.pick("i", pred=lambda w: w.ndim <= 2)) is not None:
        classes = g.r.choice(g.dims)
        g.add(f"({{0}}[..., None] == tnp.arange({classes})).astype('float32')", i)


@rule(3)
def discrete(g: Generator) -> None:
    if (a := g.pick("ib")) is not None:
        g.add(g.r.choice(BOOLEAN if g.values[a].dtype == bool else INTEGER), a)


@rule(2)
def scalar(g: Generator) -> None:
    a, b = g.pick(), g.pick()
    if a is None or b is None:
        return
    if g.add("tnp.sqrt(tnp.sum({0} * {0}) + 1)", a):
        g.add("{0} / {1}", b, g.last)


@rule(3)
def control(g: Generator) -> None:
    if (a := g.pick(rank=1)) is None:
        return
    v = g.values[a]
    row = g.pick(pred=lambda w: w.shape == v.shape[1:] and w.dtype == v.dtype)
    b = g.pick(pred=lambda w: w.shape == v.shape and w.dtype == v.dtype)
    assert b is not None
    which, back, count = g.r.choice([0, 1]), g.r.random() < 0.3, g.r.randrange(4)
    x, y = g.r.choice(BRANCHES), g.r.choice(BRANCHES)
    scan = f"td.scan(lambda c, x: {g.r.choice(SCANS)}, {{1}}, {{0}}, reverse={back})"
    loop = f"td.fori_loop(0, {count}, lambda i, c: {g.r.choice(LOOPS)}, {{0}})"
    test = f"lambda s: (s[0] < {count}) & (tnp.sum(tnp.abs(s[1])) > 0.5)"
    body = "lambda s: (s[0] + 1, s[1] * 0.7 + {1} * 0.1)"
    branches = f"lambda x, y: {x}, lambda x, y: {y}"
    cond = f"td.cond(tnp.max({{0}}) > 0.5, {branches}, {{0}}, {{1}})"
    if row is not None and g.r.random() < 0.5:
        g.add(f"{scan}[{which}]", a, row)
    else:
        text = f"td.while_loop({test}, {body}, (0, {{0}}))[{which}]"
        g.add(g.r.choice([loop, cond, text]), a, b)


def generate(
    seed: int,
    dtypes: Sequence[str] = DTYPES,
    length: int | None = None,
    loops: bool = True,
    rules: Mapping[Rule, float] = RULES,
) -> Program:
    """The random program with a number.

    Args:
      length: the number of steps; without it, 3 to 20.
      loops: whether there may be control flow.
      rules: what adds steps, and how often.
    """
    g = Generator(seed, dtypes)
    for _ in range(g.r.randint(1, 3)):
        g.input(g.shape())
    if g.r.random() < 0.7:
        g.input(g.shape(g.r.choice([1, 2, 2, 3])))
    if g.r.random() < 0.6:
        g.input(g.shape(g.r.choice([0, 1, 1, 2])), "i")
    if g.r.random() < 0.3:
        g.input(g.shape(g.r.choice([0, 1, 2])), "b")
    length = length or g.r.choice([3, 5, 8, 12, 20])
    rules = {f: w for f, w in rules.items() if loops or f is not control}
    for _ in range(200):
        if len(g.steps) >= length:
            break
        g.r.choices(list(rules), list(rules.values()))[0](g)
    return g.program()
