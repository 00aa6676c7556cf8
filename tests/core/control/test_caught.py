"""Errors that traced functions raise, and catch: as in Python, or refused."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress as ignored
from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.refused import refused
from treadle.errors import TracerError


def checked(x: Any) -> Any:
    if x < 0:
        raise ValueError("negative")
    return x * 1.5


def grown(x: Any) -> Any:
    while x < 10:
        x = checked(x)
    return x


def around_a_while(x: Any) -> Any:
    try:
        while x < 10:
            if x < 0:
                raise ValueError("negative")
            x = x * 1.5
    except ValueError:
        x = -x
    return x


def around_a_for(x: Any) -> Any:
    try:
        for _ in range(x.astype(int)):
            if x < 0:
                raise ZeroDivisionError
            x = x * 1.5
    except Exception:
        x = -x
    return x


def around_a_call(x: Any) -> Any:
    try:
        return grown(x)
    except (KeyError, ValueError):
        return -x


def around_an_operation(x: Any) -> Any:
    try:
        return td.while_loop(lambda x: x < 10, checked, x)
    except Exception as error:
        return -x if error else x


def around_a_jitted_function(x: Any) -> Any:
    try:
        return td.jit(checked)(x)
    except ValueError:
        return -x


def of_another_kind(x: Any) -> Any:
    try:
        x = grown(x)
    except (KeyError, OSError):
        x = -x
    return x


def with_an_end(x: Any) -> Any:
    try:
        while x < 10:
            if x < 0:
                raise ValueError("negative")
            x = x * 1.5
    finally:
        x = x + 1
    return x


def around_a_suppressed_for(x: Any) -> Any:
    with contextlib.suppress(KeyError, ZeroDivisionError):
        for _ in range(x.astype(int)):
            if x < 0:
                raise ZeroDivisionError
            x = x * 1.5
    return x


def around_a_for_suppressed_by_another_name(x: Any) -> Any:
    with ignored(ZeroDivisionError):
        for _ in range(x.astype(int)):
            if x < 0:
                raise ZeroDivisionError
            x = x * 1.5
    return x


class Swallowing:
    def __enter__(self) -> Swallowing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return kind is not None and issubclass(kind, ZeroDivisionError)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with ignored(ZeroDivisionError, KeyError):
        yield


@contextlib.contextmanager
def logging() -> Iterator[None]:
    try:
        yield
    except ZeroDivisionError as error:
        str(error)


def halved(x: Any) -> Any:
    while x < 10:
        if x < 0:
            raise ZeroDivisionError
        x = x * 1.5
    return x


def around_a_while_in_a_manager_of_its_own(x: Any) -> Any:
    with Swallowing():
        x = halved(x)
    return x


def around_a_while_in_a_generator(x: Any) -> Any:
    with np.errstate(all="ignore"), quiet():
        x = halved(x)
    return x


def around_a_while_in_a_stack(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(ZeroDivisionError))
        x = halved(x)
    return x


def around_a_while_in_a_property(x: Any) -> Any:
    with WITHIN.quiet:
        x = halved(x)
    return x


def around_a_while_in_a_method(x: Any) -> Any:
    with WITHIN.quietly():
        x = halved(x)
    return x


def around_a_while_before_a_break(x: Any) -> Any:
    for _ in range(1):
        try:
            x = halved(x)
        finally:
            break  # noqa: B012
    return x


def around_a_while_before_a_return(x: Any) -> Any:
    try:
        x = halved(x)
    finally:
        return x  # noqa: B012


def around_a_while_in_a_group(x: Any) -> Any:
    try:
        x = halved(x)
    except* ZeroDivisionError:
        x = -x
    return x


def around_a_decorated_while(x: Any) -> Any:
    found = quiet()(halved)(x)
    return x if found is None else found


def of_another_suppressed_kind(x: Any) -> Any:
    with contextlib.suppress(KeyError):
        x = grown(x)
    return x


def suppressed_inside(x: Any) -> Any:
    while x < 10:
        before = x
        x = -x
        with contextlib.suppress(ValueError):
            x = checked(before)
    return x


class Harmless:
    done = False

    def __enter__(self) -> Harmless:
        return self

    def __exit__(self, *error: object) -> None:
        self.done = True


@contextlib.contextmanager
def noting() -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise
    finally:
        pass


LOCK = threading.Lock()


class Within:
    """Whose managers are methods, attributes and items."""

    __slots__ = ("lock", "locks")

    def __init__(self) -> None:
        self.lock, self.locks = threading.RLock(), [LOCK]

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        with self.lock:
            try:
                yield
            except ValueError as error:
                self.locks[:] = self.locks if error else []
                raise

    @staticmethod
    def made() -> Harmless:
        return Harmless()

    def __call__(self, there: bool) -> Any:
        return self.made() if there else contextlib.nullcontext()

    @property
    def quiet(self) -> Any:
        return Swallowing()

    @contextlib.contextmanager
    def quietly(self, really: bool = True) -> Iterator[None]:
        try:
            yield
        except ZeroDivisionError:
            if really:
                return
            raise


WITHIN = Within()


def in_harmless_methods(x: Any) -> Any:
    with WITHIN.timed(), WITHIN.made(), WITHIN(x is None), WITHIN.locks[0]:
        x = x * 1.25
    with threading.Lock(), Harmless() if WITHIN else LOCK, WITHIN.lock:
        x = x * 0.75
        quietly = noting()
        with quietly, WITHIN.timed(), WITHIN(True), contextlib.ExitStack() as stack:
            stack.enter_context(WITHIN.lock)
            stack.enter_context(noting())
            return grown(x)


class Above(Harmless):
    def __exit__(self, *error: object) -> None:
        return super().__exit__(*error)  # type: ignore[func-returns-value]


class AboveSwallowing(Swallowing):
    def __exit__(self, *error: Any) -> Any:
        return super().__exit__(*error)


def around_a_while_in_what_asks_above(x: Any) -> Any:
    with AboveSwallowing():
        x = halved(x)
    return x


def raised_again(x: Any) -> Any:
    try:
        x = grown(x)
    except ValueError:
        LOCK.locked()
        raise
    return x


def in_harmless_managers(x: Any) -> Any:
    with LOCK, contextlib.nullcontext(), np.errstate(all="ignore"), Harmless(), Above():
        x = x * 1.25
        with tempfile.NamedTemporaryFile(), tempfile.TemporaryDirectory():
            x = x * 0.75
            with warnings.catch_warnings(), noting(), td.named_scope("loop"):
                return grown(x)


def inside(x: Any) -> Any:
    while x < 10:
        try:
            x = checked(x)
        except ValueError:
            x = -x
    return x


RAISES_IN = {
    around_a_call: checked,
    around_an_operation: checked,
    around_a_while_in_a_manager_of_its_own: halved,
    around_a_while_in_a_generator: halved,
    around_a_while_in_a_stack: halved,
    around_a_while_in_a_property: halved,
    around_a_while_in_a_method: halved,
    around_a_while_in_what_asks_above: halved,
    around_a_while_before_a_break: halved,
    around_a_while_before_a_return: halved,
    around_a_while_in_a_group: halved,
    around_a_decorated_while: halved,
}


@pytest.mark.parametrize("wrap", [td.jit, td.vmap, lambda f: td.jit(td.grad(f))])
@pytest.mark.parametrize(
    "function",
    [
        around_a_while,
        around_a_for,
        around_a_suppressed_for,
        around_a_for_suppressed_by_another_name,
        around_a_while_in_a_manager_of_its_own,
        around_a_while_in_a_generator,
        around_a_while_in_a_stack,
        around_a_while_in_a_property,
        around_a_while_in_a_method,
        around_a_while_in_what_asks_above,
        around_a_while_before_a_break,
        around_a_while_before_a_return,
        around_a_while_in_a_group,
        around_a_decorated_while,
        around_a_call,
        around_an_operation,
    ],
)
def test_errors_of_loops_are_not_caught_by_what_is_traced(
    function: Callable[[Any], Any], wrap: Callable[..., Any]
) -> None:
    x = np.ones(3, np.float32) if wrap is td.vmap else np.float32(1)
    refused(
        lambda: wrap(function)(x),
        TracerError,
        "is raised when a traced value says so",
        f"may be caught around that, at {__file__}",
        at=RAISES_IN.get(function, function),
    )
    assert np.isfinite(function(np.float32(-1)))  # Python itself catches it


def test_errors_of_jitted_functions_are_not_either() -> None:
    refused(
        lambda: td.jit(around_a_jitted_function)(1.0),
        TracerError,
        "a jitted function), and may be caught around that",
        at=checked,
    )


AS_IN_PYTHON = [
    of_another_kind,
    of_another_suppressed_kind,
    with_an_end,
    in_harmless_managers,
    in_harmless_methods,
    raised_again,
    inside,
    suppressed_inside,
]


@pytest.mark.parametrize("function", AS_IN_PYTHON)
@pytest.mark.parametrize("x", [1.0, -2.0])
def test_loops_with_try_that_are_as_in_python(
    function: Callable[[Any], Any], x: float
) -> None:
    try:
        expected = function(x)
    except ValueError:
        with pytest.raises(ValueError, match="negative"):
            td.jit(function)(x)
        return
    np.testing.assert_allclose(td.jit(function)(x), expected, rtol=1e-6)
    slope = (function(x + 1e-6) - function(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(td.jit(td.grad(function))(x), slope, rtol=1e-4)


def test_who_calls_a_jitted_function_catches() -> None:
    try:
        td.jit(grown)(-1.0)
    except ValueError as error:
        assert str(error) == "negative"


def swallowed(x: Any) -> Any:
    with Swallowing():
        if x < 0:
            raise ZeroDivisionError
        x = x + 100
    return x * 2


def swallowed_by_a_generator(x: Any) -> Any:
    with logging():
        if x < 0:
            raise ZeroDivisionError
        x = x + 100
    return x * 2


class Sometimes:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __getitem__(self, i: int) -> Any:
        if i > 3 or self.x + i > 3:
            raise IndexError
        return self.x * i

    def __next__(self) -> Any:
        if self.x > 0:
            raise StopIteration
        return self.x * 3

    @property
    def twice(self) -> Any:
        if self.x > 0:
            raise AttributeError
        return self.x * 2


def ended_by_an_index(x: Any) -> Any:
    return sum(Sometimes(x), start=x)


def ended_by_a_stop(x: Any) -> Any:
    return next(Sometimes(x), x * 7)  # type: ignore[call-overload]


def without_an_attribute(x: Any) -> Any:
    known = x + 1 if hasattr(Sometimes(x), "twice") else x
    return known * getattr(Sometimes(x), "twice", x * 5)


@pytest.mark.parametrize(
    "function",
    [
        swallowed,
        swallowed_by_a_generator,
        ended_by_an_index,
        ended_by_a_stop,
        without_an_attribute,
    ],
)
def test_what_ends_errors_beside_except(function: Callable[[Any], Any]) -> None:
    points = np.float32([1.0, -1.5, 2.5])
    wanted = np.stack([np.asarray(function(x)) for x in points])
    np.testing.assert_allclose(td.vmap(function)(points), wanted, rtol=1e-6)
    found = [td.jit(function)(x) for x in points]
    np.testing.assert_allclose(np.stack(found), wanted, rtol=1e-6)
