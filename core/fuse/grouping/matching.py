"""When two clusters run over the same points: the renaming of their dimensions."""

from __future__ import annotations

from treadle.fuse.cluster import Cluster
from treadle.ir.maps import Map


def matching(wanted: Map, found: Map) -> dict[int, int] | None:
    """The renaming of dimensions that turns one map into another."""
    names: dict[int, int] = {}
    for a, b in zip(wanted, found, strict=True):
        if a.offset != b.offset or len(a.terms) != len(b.terms):
            return None
        for (d, c), (e, f) in zip(a.terms, b.terms, strict=True):
            if c != f or names.setdefault(e, d) != d:
                return None
    return names if len(set(names.values())) == len(names) else None


def extend(names: dict[int, int], cluster: Cluster, other: Cluster) -> bool:
    """Completes a renaming by the reduced dimensions, if the two clusters agree."""
    sizes, other_sizes = cluster.space.sizes, other.space.sizes
    left = set(other_sizes) - set(names)
    if left:
        if left != other.reduced or len(left) != len(cluster.reduced):
            return False
        if cluster.reduced & set(names.values()):
            return False
        names.update(zip(sorted(left), sorted(cluster.reduced), strict=True))
    if any(sizes[d] != other_sizes[e] for e, d in names.items()):
        return False
    if set(names.values()) != set(sizes):
        return False
    if cluster.form and other.form:
        return {names[d] for d in other.reduced} == cluster.reduced
    return True
