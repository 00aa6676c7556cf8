"""Random programs of nested control flow that leave notes, in Treadle and in Python.

A program is a list of steps that change the state (i, n, y): which example it is, an
integer that control flow depends on, a float. What an example notes must be what Python
notes for it alone, in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import treadle as td

State = tuple[Any, Any, Any]
Note = tuple[int, str, int]
Body = Callable[[Any, State], State]


def treadle_notes(seen: list[Note]) -> Any:
    """The operations of programs in Treadle; notes go to `seen`."""

    def record(tag: str) -> Callable[..., None]:
        return lambda i, n: seen.append((int(i), tag, int(n)))

    def count(tag: str) -> Callable[..., Any]:
        def host(i: Any, n: Any) -> Any:
            seen.append((int(i), tag, int(n)))
            return np.int32(n + 1)

        return host

    return SimpleNamespace(
        note=lambda tag, i, n: td.debug.callback(record(tag), i, n),
        tell=lambda tag, i, n: td.io_callback(record(tag), None, i, n),
        ask=lambda tag, i, n: td.io_callback(
            count(tag), td.ShapeDtype((), np.int32), i, n
        ),
        cond=td.cond,
        switch=td.switch,
        while_loop=td.while_loop,
        scan=lambda f, s: td.scan(lambda s, _: (f(s), None), s, None, 2)[0],
        jit=td.jit,
        remat=td.remat,
        custom=_custom_jvp,
        reverse=_custom_vjp,
    )


def _custom_jvp(f: Any) -> Any:
    g = td.custom_jvp(f)
    g.defjvp(lambda s, ds: (f(s[0]), ds[0]))
    return g


def _custom_vjp(f: Any) -> Any:
    g = td.custom_vjp(f)
    g.defvjp(lambda s: (f(s), None), lambda _, ct: (ct,))
    return g


def python_notes(seen: list[Note]) -> Any:
    """The same in plain Python."""

    def note(tag: str, i: Any, n: Any) -> None:
        seen.append((int(i), tag, int(n)))

    def ask(tag: str, i: Any, n: Any) -> Any:
        note(tag, i, n)
        return n + 1

    def while_loop(test: Any, body: Any, state: Any) -> Any:
        while test(state):
            state = body(state)
        return state

    return SimpleNamespace(
        note=note,
        tell=note,
        ask=ask,
        cond=lambda pred, true, false, *args: true(*args) if pred else false(*args),
        switch=lambda k, branches, *args: branches[
            min(max(int(k), 0), len(branches) - 1)
        ](*args),
        while_loop=while_loop,
        scan=lambda f, s: f(f(s)),
        **dict.fromkeys(("jit", "remat", "custom", "reverse"), lambda f: f),
    )


def _cond(k: int, *bodies: Body) -> Body:
    def run(lib: Any, state: State) -> State:
        true, false = (lambda s, b=b: b(lib, s) for b in bodies)
        return lib.cond((state[1] + k) % 2 == 0, true, false, state)

    return run


def _switch(k: int, *bodies: Body) -> Body:
    def run(lib: Any, state: State) -> State:
        branches = [lambda s, b=b: b(lib, s) for b in bodies]
        return lib.switch(state[1] % 5 - k, branches, state)

    return run


def _while(tag: str, body: Body) -> Body:
    def run(lib: Any, state: State) -> State:
        def test(pair: Any) -> Any:
            lib.note(tag, pair[1][0], pair[1][1])
            return pair[0] > 0

        def step(pair: Any) -> Any:
            return pair[0] - 1, body(lib, pair[1])

        return lib.while_loop(test, step, (state[1] % 3, state))[1]

    return run


def _note(tag: str) -> Body:
    def run(lib: Any, state: State) -> State:
        i, n, y = state
        lib.note(tag, i, n)
        return i, n * 3 % 7, y * 0.5

    return run


def _tell(tag: str) -> Body:
    def run(lib: Any, state: State) -> State:
        lib.tell(tag, state[0], state[1])
        return state

    return run


def _ask(tag: str) -> Body:
    def run(lib: Any, state: State) -> State:
        i, n, y = state
        return i, lib.ask(tag, i, n), y

    return run


def _through(name: str, body: Body) -> Body:
    return lambda lib, state: getattr(lib, name)(lambda s: body(lib, s))(state)


def _scan(body: Body) -> Body:
    return lambda lib, state: lib.scan(lambda s: body(lib, s), state)


def _sequence(bodies: Sequence[Body]) -> Body:
    def run(lib: Any, state: State) -> State:
        for body in bodies:
            state = body(lib, state)
        return state

    return run


_tags = st.sampled_from("abc")
_CALLS = ["jit", "remat", "custom"]


def _holding(inner: Any, loops: bool, reverse: bool) -> Any:
    blocks = st.lists(inner, min_size=1, max_size=2).map(_sequence)
    numbers = st.integers(0, 1)
    ways = [
        st.builds(_cond, numbers, blocks, blocks),
        st.builds(_switch, numbers, blocks, blocks, blocks),
        st.builds(_scan, blocks),
        st.builds(_through, st.sampled_from([*_CALLS, *["reverse"] * reverse]), blocks),
    ]
    return st.one_of(*ways, *([st.builds(_while, _tags, blocks)] if loops else []))


_simple = st.one_of(
    st.builds(_note, _tags), st.builds(_tell, _tags), st.builds(_ask, _tags)
)


def programs(loops: bool = True, reverse: bool = True) -> Any:
    """Programs; without `loops`, such as have reverse derivatives; without `reverse`,
    such as have forward ones."""
    steps = st.recursive(_simple, lambda s: _holding(s, loops, reverse), max_leaves=6)
    return st.lists(steps, min_size=1, max_size=3).map(_sequence)
