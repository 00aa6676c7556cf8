"""What must run before what: nodes, the order among them, and two becoming one."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.ir.graph import Equation, Var


class Node:
    """A step of the program to be.

    number: tells nodes apart, in the order in which they were made.
    bit: a set of numbers, as bits: its own, and those of the nodes it has taken in.
    before: the bits of all nodes that must run before it.
    needs, users: the nodes from which that follows, directly before and after it.
    values: the results that it owns.
    """

    def __init__(self, number: int) -> None:
        self.number, self.bit = number, 1 << number
        self.before = 0
        self.needs: set[Node] = set()
        self.users: set[Node] = set()
        self.equations: list[Equation] = []
        self.values: list[Var] = []

    def runs_after(self, other: Node) -> bool:
        return bool(self.before & other.bit)

    def run_after(self, other: Node) -> None:
        """Makes this node, and all that run after it, run after another."""
        if other is not self:
            other.users.add(self)
            self.needs.add(other)
            self._inherit(other.bit | other.before)

    def _inherit(self, bits: int) -> None:
        waiting = [self]
        while waiting:
            node = waiting.pop()
            # What runs after a node has its bits already where the node has them.
            if bits & ~node.before:
                node.before |= bits
                waiting += node.users

    def meets(self, other: Node) -> bool:
        """Whether no third node must run after another and before this one."""
        return not any(n.runs_after(other) for n in self.needs if n is not other)

    def take_in(self, other: Node) -> None:
        """Makes one node of two that meet: what ran after or before either of them
        does so with both."""
        for n in other.needs:
            n.users.remove(other)
            n.users.add(self)
        for n in other.users:
            n.needs.remove(other)
            n.needs.add(self)
        self.needs = (self.needs | other.needs) - {self, other}
        self.users = (self.users | other.users) - {self, other}
        self.bit |= other.bit
        self.before = (self.before | other.before) & ~self.bit
        self.values += other.values
        for n in self.users:
            n._inherit(self.bit | self.before)


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """The nodes sorted so that each comes after those before it: as they are given,
    what has to wait in further rounds."""
    place = {n: i for i, n in enumerate(nodes)}
    rounds = dict.fromkeys(place, 0)
    missing = {n: len(n.needs) for n in place}
    ready = [n for n in place if not missing[n]]
    for n in ready:
        for user in n.users:
            wait = rounds[n] + (place[user] < place[n])
            rounds[user] = max(rounds[user], wait)
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    if len(ready) < len(place):
        raise AssertionError("fusion made a cycle")
    return sorted(ready, key=lambda n: (rounds[n], place[n]))
