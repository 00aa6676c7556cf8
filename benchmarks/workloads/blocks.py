"""Pieces that the transformers share."""

from workloads import initial


def projections(rng, name: str, width: int, heads: tuple[int, int], bias: bool = True):
    """Weights of attention: heads of queries, and of keys and values."""
    depth = width // heads[0]
    options = {"bias": bias}
    found: initial.Weights = {}
    for part, count in zip(("query", "key", "value"), (*heads, heads[1]), strict=True):
        found |= initial.dense(rng, f"{name}.{part}", count * depth, width, **options)
    return found | initial.dense(rng, f"{name}.out", width, width, **options)


def block(rng, name: str, width: int, heads: int, hidden: int):
    """Weights of a pre-LN block."""
    return (
        initial.norm(f"{name}.norm1", width)
        | projections(rng, f"{name}.attention", width, (heads, heads))
        | initial.norm(f"{name}.norm2", width)
        | initial.dense(rng, f"{name}.expand", hidden, width)
        | initial.dense(rng, f"{name}.shrink", width, hidden)
    )


def attend(F, p, x, heads, *, other=None, turn=None, **options):
    """Attention with its projections: of x to itself or to another sequence; `turn` is
    applied to queries and keys."""
    of_queries, of_keys = heads
    other = x if other is None else other
    depth = x.shape[-1] // of_queries

    def split(part, x, count):
        return F.linear(p[part], x).reshape(*x.shape[:-1], count, depth)

    q, k, v = (
        split("query", x, of_queries),
        split("key", other, of_keys),
        split("value", other, of_keys),
    )
    if turn is not None:
        q, k = turn(q), turn(k)
    return F.linear(p["out"], F.attention(q, k, v, **options).reshape(*x.shape))


def run_block(F, p, x, heads: int, **options):
    """A pre-LN block."""
    p_attention = p["attention"]
    x = x + attend(
        F, p_attention, F.layer_norm(p["norm1"], x), (heads, heads), **options
    )
    hidden = F.gelu(F.linear(p["expand"], F.layer_norm(p["norm2"], x)))
    return x + F.linear(p["shrink"], hidden)
