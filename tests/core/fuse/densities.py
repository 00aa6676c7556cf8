"""Random programs like losses of probabilistic models: log-densities that share their
parameters, reduced along either axis, over few short axes. In their gradients many ways
lead from value to value, so that nodes that become one have others around them."""

from __future__ import annotations

from tests.core.fuse import random_rules
from tests.core.fuse.random_programs import Generator, Program

POSITIVE = ("tnp.exp(0.1 * {})", "(tnp.abs({}) + 0.5)", "(1 + {} ** 2)")


class Densities(Generator):
    """Grows programs over axes of length 1 to 3."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ("float32",))
        self.dims = [1, 2, self.r.choice([1, 2, 3])]


def log_density(g: Generator) -> None:
    a, m, s = g.pick(), g.pick(), g.pick()
    if a is None or m is None or s is None:
        return
    if g.add(g.r.choice(POSITIVE).format("{0}"), s):
        g.add("-0.5 * (({0} - {1}) / {2}) ** 2 - tnp.log({2})", a, m, g.last)


def column(g: Generator) -> None:
    if (a := g.pick(rank=1, pred=lambda v: v.size > 0)) is not None:
        last = g.r.randrange(g.values[a].shape[-1])
        g.add(g.r.choice([f"{{0}}[..., {last}]", "{0}[0]", "{0}[:, :1]"]), a)


RULES = {
    **{log_density: 10, column: 4, random_rules.unary: 1, random_rules.binary: 4},
    **{random_rules.reduce: 4, random_rules.softmax: 4, random_rules.matmul: 3},
}


def generate(seed: int) -> Program:
    """The program of log-densities with a number."""
    g = Densities(seed)
    for shape in ((g.dims[2],), (g.dims[2],), (g.r.choice([1, 1, 2]), g.dims[2])):
        g.input(shape)
    length = g.r.choice([6, 10, 16])
    for _ in range(100):
        if len(g.steps) >= length:
            break
        g.r.choices(list(RULES), list(RULES.values()))[0](g)
    return g.program()
