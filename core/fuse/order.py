"""What must run before what: nodes, the order among them, and two becoming one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from treadle.ir.graph import Equation, Var


class Node:
    """A step of the program to be.

    number: tells nodes apart, in the order in which they were made.
    values: the results that it owns.
    needs, users: the nodes directly before and after it, which `Precedence` keeps.
    before: the bits of all nodes that must run before it (and of some that were taken
      in by others).
    """

    def __init__(self, number: int) -> None:
        self.number, self.bit = number, 1 << number
        self.before = 0
        self.needs: set[Node] = set()
        self.users: set[Node] = set()
        self.equations: list[Equation] = []
        self.values: list[Var] = []


class Precedence:
    """Nodes, and which of them must run before which: a directed graph without cycles.
    What would close one is refused, and changes nothing."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}

    @property
    def nodes(self) -> list[Node]:
        """All nodes, as they were added."""
        return list(self._nodes.values())

    def add(self, node: Node) -> None:
        """Takes in a node that nothing depends on yet."""
        self._nodes[node.number] = node

    def depends(self, node: Node, other: Node) -> bool:
        """Whether a node must run after another."""
        return bool(node.before & other.bit)

    def can_depend(self, node: Node, others: Iterable[Node]) -> bool:
        """Whether `depend` would not close a cycle."""
        bit = node.bit
        return not any([other.before & bit for other in others])

    def depend(self, node: Node, others: Collection[Node]) -> bool:
        """Makes a node, and all that run after it, run after others (itself among them
        is as well as not); gives whether that can be."""
        if not self.can_depend(node, others):
            return False
        bits = 0
        for other in others:
            if other is not node:
                other.users.add(node)
                node.needs.add(other)
                bits |= other.bit | other.before
        if bits:
            _inherit(node, bits)
        return True

    def can_contract(self, a: Node, b: Node) -> bool:
        """Whether `contract` would not close a cycle: no third node must run after one
        of two nodes and before the other."""
        return a is not b and not self._apart(a, b) and not self._apart(b, a)

    def _apart(self, late: Node, early: Node) -> bool:
        return self.depends(late, early) and any(
            self.depends(n, early) for n in late.needs
        )

    def contract(self, a: Node, b: Node) -> bool:
        """Lets `a` take in `b`, and run after and before all that either of them did;
        gives whether that can be."""
        if not self.can_contract(a, b):
            return False
        del self._nodes[b.number]
        for n in b.needs:
            n.users.remove(b)
            n.users.add(a)
        for n in b.users:
            n.needs.remove(b)
            n.needs.add(a)
        a.needs = (a.needs | b.needs) - {a, b}
        a.users = (a.users | b.users) - {a, b}
        a.before = (a.before | b.before) & ~a.bit
        a.values += b.values
        for n in a.users:
            _inherit(n, a.bit | a.before)
        return True

    def topological(self) -> list[Node]:
        """The nodes, each after those that it depends on: as they were added, what has
        to wait in further rounds."""
        place = {n: i for i, n in enumerate(self.nodes)}
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
        return sorted(ready, key=lambda n: (rounds[n], place[n]))


def _inherit(node: Node, bits: int) -> None:
    """Makes a node, and all that run after it, run after the nodes of some bits."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        # What runs after a node has its bits already where the node has them.
        if bits & ~node.before:
            node.before |= bits
            waiting += node.users
