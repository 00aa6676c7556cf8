"""Loops that end by traced values, and so become operations.

The user's functions call these (`treadle.trace.source`), as statements that branch do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from treadle import tree
from treadle.api.ambient import Surroundings
from treadle.api.args import CLOSE_OVER
from treadle.api.carry import flatten_checked, of_types
from treadle.api.steps import (
    UNBOUND,
    Differs,
    Step,
    Unfit,
    Variables,
    give_up,
    is_tracing,
    joined_run,
)
from treadle.api.while_loops import while_loop
from treadle.arraytype import ArrayType
from treadle.control.ways import explore
from treadle.dtypes import bool_, is_integer, promote
from treadle.errors import (
    MutationError,
    StructureError,
    TracerError,
    at,
    user_source,
)
from treadle.ops.arithmetic import add
from treadle.ops.compare import bitwise_and, bitwise_not, bitwise_or, gt, lt, ne
from treadle.ops.movement import zeros_like
from treadle.trace import source
from treadle.trace.interpreter import entering
from treadle.trace.outside import ONCE, Outside, owning
from treadle.trace.rewrite import COUNT, LOOP
from treadle.trace.source import Place
from treadle.trace.stage import StageInterpreter, known_value
from treadle.trace.value import NUMBERS, is_array, typeof
from treadle.trace.ways import MOST_WAYS, Restage, Unrepeated, check_resumed

_BODY = "the body of a loop"

_TWO_TYPES = """\
a loop over traced values returns {} from different lines{}
Convert (`.astype(...)`) what one of them returns."""


def loop(
    test: FunctionType,
    body: FunctionType,
    names: Sequence[str],
    live: Sequence[str],
    at: tuple,
    breaks: bool,
    left: Sequence[str],
) -> None:
    """Runs a `while`: as the operation, if its end depends on what is traced.

    Args:
      body: True if it has ended the loop.
      names: of the variables that it may bind; `live`: those that are read later.
      at: its line and column.
      breaks: whether there is a `break` or `return` in it.
      left: the variables that say whether the function returned in it, and what.
    """
    place: Place = (test.__code__.co_filename, *at)
    check_resumed(place, "a function")
    if place in source.unfit or not is_tracing():
        while test():
            if body():
                break
        return
    variables = Variables((test, body), names)
    while (going := _known(test)) is not None:
        if not going:
            return
        ended = _iteration(body, variables, live, place) if breaks else body()
        if ended is None:
            continue
        if ended is not UNBOUND:
            return
        break
    variables = Variables((test, body), names)
    carry = variables.bound()
    if breaks:
        carry[_BREAK] = False
    try:
        _add_returned(carry, lambda _: body(), 0, variables, left)
        _repeat(lambda carry: test(), lambda carry: body(), variables, carry)
    except (TracerError, MutationError, StructureError, TypeError, Unfit):
        if not breaks:
            raise
        # In each way through what is around it, it may do.
        variables.put(variables.before)
        give_up(place)


def count(
    limits: FunctionType,
    body: FunctionType,
    whole: FunctionType,
    names: Sequence[str],
    live: Sequence[str],
    at: tuple,
    breaks: bool,
    left: Sequence[str],
    target: str,
) -> None:
    """Runs a `for` over a `range`: as an operation, if its end depends on what is
    traced.

    Args:
      limits: gives what is called `range`, and its arguments.
      body: takes the number, and is True if it has ended the loop; `whole`: the loop.
      names, live, at, breaks, left: as of `loop`. target: the name of the number.
    """
    place: Place = (body.__code__.co_filename, *at)
    check_resumed(place, "a function")
    kind, *ends = limits()
    if kind is not range or all(known_value(x) is not None for x in ends):
        numbers = kind(*ends)
        if place in source.unfit or not is_tracing():
            whole(numbers)
            return
        variables = Variables((body, whole), names)
        long = breaks and kind is range and len(numbers) > MOST_WAYS
        if left and not long:
            whole(numbers)  # Who returns does so in one way through the function.
            return
        if not long:
            joined_run(lambda: whole(numbers), variables, live, place)
            return
        for i in numbers:
            ended = _iteration(lambda: body(i), variables, live, place)  # noqa: B023
            if ended is UNBOUND:
                ends = [i, numbers.stop, numbers.step]
                variables.put({n: i for n in variables.cells if n == target})
                break
            if ended:
                return
        else:
            return
    variables = Variables((body, whole), names)
    _count_up(body, ends, variables, live, breaks, left, target)


def _count_up(
    body: Callable[[Any], Any],
    ends: Sequence[Any],
    variables: Variables,
    live: Sequence[str],
    breaks: bool,
    left: Sequence[str],
    target: str,
) -> None:
    """Runs a `for` over the `range` of some numbers as the operation."""
    integers = all(not t.shape and is_integer(t.dtype) for t in map(typeof, ends))
    if not integers or (len(ends) == 3 and known_value(ends[2]) == 0):
        range(*ends)  # which says what is wrong
    start, stop = ends[:2] if len(ends) > 1 else (0, ends[0])
    stride = ends[2] if len(ends) == 3 else 1
    step = known_value(stride)
    dtype = promote(*((t.dtype, t.weak) for t in map(typeof, (start, stop, stride))))[0]
    start, stop, stride = of_types([start, stop, stride], [ArrayType((), dtype)] * 3)
    carry = variables.bound()
    if target not in live:
        carry.pop(target, None)
    _add_returned(carry, body, start, variables, left)
    carry[_NEXT] = start
    if breaks:
        carry[_BREAK] = False

    def goes_on(carry: dict[str, Any]) -> Any:
        up, down = lt(carry[_NEXT], stop), gt(carry[_NEXT], stop)
        if step is not None:
            return up if step > 0 else down
        return bitwise_or(
            bitwise_and(gt(stride, 0), up), bitwise_and(lt(stride, 0), down)
        )

    def iterated(carry: dict[str, Any]) -> Any:
        ended = body(carry[_NEXT])
        carry[_NEXT] = add(carry[_NEXT], stride)
        return ended

    _repeat(goes_on, iterated, variables, carry)


def _add_returned(
    carry: dict[str, Any],
    body: Callable[[Any], Any],
    number: Any,
    variables: Variables,
    left: Sequence[str],
) -> None:
    """Gives what a loop returns a place among what it carries: zeros, until it returns.

    body: takes a number like `number`.

    Raises:
      Unfit: if it does not return arrays and numbers of one structure.
    """
    if not left:
        return
    said, value = left
    leaves, form = flatten_checked({**carry, _NEXT: number}, _BODY, CLOSE_OVER)
    found: list[tuple[tree.Structure, list[ArrayType]]] = []
    around = Surroundings()

    def once(*values: Any) -> list[Any]:
        given = form.unflatten(values)
        variables.put({n: given.get(n, UNBOUND) for n in variables.before})
        with around.inside(around.leaves):
            body(given[_NEXT])
        now = variables.now()
        if now[said] is True:
            returned, shape = tree.flatten(now[value])
            if not all(is_array(x) or isinstance(x, NUMBERS) for x in returned):
                raise Unfit
            found.append((shape, [typeof(x) for x in returned]))
        return []

    try:
        with owning(variables.all):
            explore(once, [typeof(x) for x in leaves], lambda: _NOTHING, name=_BODY)
    finally:
        variables.put(variables.before)
    if len({shape for shape, _ in found}) > 1:
        raise Unfit
    zeros = []
    for column in zip(*(types for _, types in found), strict=True):
        if len({t.shape for t in column}) > 1:
            raise Unfit
        dtype, _ = promote(*((t.dtype, t.weak) for t in column))
        if any(not t.weak and t.dtype != dtype for t in column):
            given = " and ".join(dict.fromkeys(map(str, column)))
            raise TypeError(_TWO_TYPES.format(given, at(user_source())))
        zeros.append(zeros_like(ArrayType(column[0].shape, dtype)))
    if found:
        carry[value] = found[0][0].unflatten(zeros)


_NOTHING = tree.structure(())
_BREAK, _NEXT = "break", "for"
"""Parts of a carry that are no variables."""


def _iteration(
    body: Callable[[], Any], variables: Variables, live: Sequence[str], at: Place
) -> Any:
    """Runs a loop's body once. Says whether it has ended the loop: None or True; if
    that depends on what is traced, it is as if it had not run, and `UNBOUND`."""
    variables.before = variables.now()
    try:
        return Step(body, variables, [*variables.cells]).run()
    except Differs:
        variables.put(variables.before)
        return UNBOUND
    except (MutationError, StructureError, Unfit, Unrepeated):
        variables.put(variables.before)
        give_up(at)


def _repeat(
    test: Callable[[dict[str, Any]], Any],
    body: Callable[[dict[str, Any]], Any],
    variables: Variables,
    init: dict[str, Any],
) -> None:
    """Repeats a body while a test holds, and until the body ends it, as the operation.
    Both are given what is carried, of which the body may change parts.

    init: the variables that are carried, and other parts. Those that an iteration
      leaves without a value, as nothing reads them any more, have none after the loop.
    """
    before = variables.before
    outside = Outside.of(body, _repeat.__code__)
    numbers = _Numbers()
    gone: set[str] = set()

    def put(carry: dict[str, Any]) -> None:
        variables.put({n: carry.get(n, UNBOUND) for n in before})

    def goes_on(carry: dict[str, Any]) -> Any:
        put(carry)
        going = test(carry)
        if _BREAK not in carry:
            return going
        if typeof(going).dtype != bool_:
            going = ne(going, 0)
        return bitwise_and(bitwise_not(carry[_BREAK]), going)

    def next_carry(carry: dict[str, Any]) -> dict[str, Any]:
        put(carry)
        given, carry = carry, dict(carry)
        ended = body(carry)
        now = variables.now()
        found = {n: now[n] if n in before else x for n, x in carry.items()}
        for n in [n for n, x in found.items() if x is UNBOUND]:
            gone.add(n)
            found[n] = given[n]
        if _BREAK in carry:
            found[_BREAK] = ended is True
        return numbers.kept(given, found)

    next_carry.__name__ = _BODY
    with owning(variables.all):
        while True:
            try:
                carry = while_loop(goes_on, next_carry, numbers.widened(init))
                break
            except TypeError:
                variables.put(before)
                if not numbers.grew():
                    raise
            except Restage:
                variables.put(before)  # A `finally` of the user's may read them.
                raise
    variables.put(before)
    outside.check(Outside.of(body, _repeat.__code__), _BODY, ONCE)
    put({n: x for n, x in carry.items() if n not in gone})


class _Numbers:
    """Variables that are Python's numbers, of one kind before an iteration and another
    one behind it: from the beginning they have the type that holds both."""

    def __init__(self) -> None:
        self.wanted: dict[str, ArrayType] = {}
        self.met: dict[str, ArrayType] = {}

    def grew(self) -> bool:
        """Whether more is known of them than when the loop was traced."""
        grown = {n: t for n, t in self.met.items() if self.wanted.get(n) != t}
        self.wanted |= grown
        return bool(grown)

    def widened(self, carry: dict[str, Any]) -> dict[str, Any]:
        """What a loop begins with."""
        names = [n for n in carry if n in self.wanted]
        new = of_types([carry[n] for n in names], [self.wanted[n] for n in names])
        return carry | dict(zip(names, new, strict=True))

    def kept(self, given: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        """What comes out of an iteration, and goes into the next one."""
        for n, x in found.items():
            if not (_is_number(x) and _is_number(given[n])):
                continue
            types = [typeof(given[n]), typeof(x)]
            kinds = [(t.dtype, t.weak) for t in types]
            common = ArrayType((), promote(*kinds)[0])
            if types[0].dtype != types[1].dtype and not types[0].weak:
                self.met[n] = common
        return self.widened(found)


def _is_number(x: Any) -> bool:
    """Whether a value may have been one of Python's numbers."""
    if isinstance(x, NUMBERS):
        return True
    return is_array(x) and typeof(x) in _STRONG


_STRONG = [ArrayType((), typeof(kind()).dtype) for kind in (bool, int, float, complex)]


def _known(test: Callable[[], Any]) -> bool | None:
    """Whether a test holds, if that is known while tracing."""
    with entering(StageInterpreter()):
        try:
            return bool(test())
        except TracerError:
            return None


source.helpers.update({LOOP: loop, COUNT: count})
