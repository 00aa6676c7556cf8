"""Tracebacks show the user's lines; errors keep their types."""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import data, errors, nn, optim, rng, spellings
from treadle.api import keywords

X = tnp.ones((3, 2))
S = tnp.array(2.0)


class Mine(Exception):
    """A user's own error, which takes two arguments."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)


def broken(*args: Any) -> Any:
    raise Mine("this", "that")


def custom(kind: Any, *rules: Any) -> Any:
    f = kind(lambda x: x)
    (f.defjvp if kind is td.custom_jvp else f.defvjp)(*rules)
    return f


UNDER: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: td.jit(f)(X),
    "method": lambda f: type(
        "A", (), {"f": td.jit(lambda self, x: f(x), static=0)}
    )().f(X),
    "lower": lambda f: td.jit(f).lower(X),
    "jit.trace": lambda f: td.jit(f).trace(X),
    "grad": lambda f: td.grad(f)(S),
    "value_and_grad": lambda f: td.value_and_grad(f)(S),
    "vjp": lambda f: td.vjp(f, X),
    "jvp": lambda f: td.jvp(f, (X,), (X,)),
    "linearize": lambda f: td.linearize(f, X),
    "jacfwd": lambda f: td.jacfwd(f)(X),
    "jacrev": lambda f: td.jacrev(f)(X),
    "hessian": lambda f: td.hessian(f)(X),
    "linear_transpose": lambda f: td.linear_transpose(f, X),
    "vmap": lambda f: td.vmap(f)(X),
    "scan": lambda f: td.scan(lambda c, x: f(x), 0.0, X),
    "map": lambda f: td.map(f, X),
    "while_loop": lambda f: td.while_loop(lambda x: x.sum() < 9, f, X),
    "fori_loop": lambda f: td.fori_loop(0, 3, lambda i, x: f(x), X),
    "cond": lambda f: td.cond(True, f, f, X),
    "switch": lambda f: td.jit(lambda i: td.switch(i, [f, f], X))(0),
    "associative_scan": lambda f: td.associative_scan(lambda a, b: f(a), X),
    "remat": lambda f: td.remat(f)(X),
    "eval_shape": lambda f: td.eval_shape(f, X),
    "trace": lambda f: td.trace(f)(X),
    "custom_jvp": lambda f: td.jvp(custom(td.custom_jvp, f), (S,), (S,)),
    "custom_vjp": lambda f: td.grad(
        custom(td.custom_vjp, lambda x: (x, None), lambda _, ct: f(ct))
    )(S),
    "pure_callback": lambda f: td.pure_callback(f, td.ShapeDtype((3, 2)), X),
    "io_callback": lambda f: td.jit(lambda x: td.io_callback(f, None, x))(X),
    "debug.callback": lambda f: td.debug.callback(f, X),
    "nested": lambda f: td.jit(td.grad(lambda x: td.vmap(td.remat(f))(x).sum()))(X),
    "disable_jit": lambda f: without_jit(lambda: td.jit(td.vmap(f))(X)),
}


def without_jit(run: Callable[[], Any]) -> None:
    with td.disable_jit():
        run()


def files(error: BaseException) -> set[str]:
    return {frame.filename for frame in traceback.extract_tb(error.__traceback__)}


@pytest.mark.parametrize("under", UNDER)
def test_a_user_s_own_error(under: str) -> None:
    with pytest.raises(Mine) as caught:
        UNDER[under](broken)
    assert files(caught.value) == {__file__}
    assert caught.traceback[-1].name == "broken"
    assert caught.value.args == ("this", "that")


@pytest.mark.parametrize("under", ["jit", "grad", "vmap", "scan", "nested"])
def test_an_error_of_the_library_s(under: str) -> None:
    def wrong(x: Any) -> Any:
        return (x @ tnp.ones((7, 8))).sum()

    with pytest.raises(ValueError) as caught:
        UNDER[under](wrong)
    assert files(caught.value) == {__file__}
    assert caught.traceback[-1].name == "wrong"


def test_a_wrong_call_ends_at_its_line() -> None:
    mistakes: list[Callable[[], Any]] = [
        lambda: td.grad(3),  # type: ignore[arg-type]
        lambda: td.vmap(td.numpy.sin)(2.0),
        lambda: td.vjp(lambda x: x, S)[1](X),
        lambda: td.value_and_grad(lambda m: m(X).sum())(nn.Linear(4, 5, key=KEY)),
        lambda: td.debug.print("{} {}", X),
    ]
    for mistake in mistakes:
        with pytest.raises((TypeError, ValueError, IndexError)) as caught:
            mistake()
        assert files(caught.value) == {__file__}


KEY = rng.key(0)


def test_what_led_to_an_error() -> None:
    def wrapping(x: Any) -> Any:
        try:
            return td.vmap(lambda x: x @ X)(x)
        except ValueError as error:
            raise KeyError("wrapped") from error

    with pytest.raises(KeyError) as caught:
        td.jit(wrapping)(X)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert files(caught.value) == files(cause) == {__file__}


def test_iteration_ends_as_itself() -> None:
    for wrap in (td.jit, td.grad, lambda f: td.vmap(td.grad(f))):
        with pytest.raises(StopIteration):
            wrap(lambda x: next(iter(())))(tnp.ones(3) if wrap is not td.grad else S)


def test_numpy_s_errors_end_at_the_user_s_line() -> None:
    with pytest.raises(np.linalg.LinAlgError) as caught:
        td.jit(lambda x: x + np.linalg.inv(np.zeros((2, 2))))(S)
    assert files(caught.value) == {__file__}


def fault(error: Exception) -> Callable[..., Any]:
    """A function that raises as if it stood in the library."""
    names: dict[str, Any] = {"error": error}
    source = "def inside(*args):\n    raise error"
    exec(compile(source, errors.__file__, "exec"), names)
    return names["inside"]


@pytest.mark.parametrize("error", [KeyError("x"), errors.InternalError("\n  at x:1")])
def test_a_fault_of_the_library_keeps_every_frame(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        td.vmap(fault(error))(X)
    assert {errors.__file__, td.api.vmap.__file__} < files(caught.value)


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_TRACEBACK", "full")
    with pytest.raises(Mine) as caught:
        UNDER["vmap"](broken)
    assert td.api.vmap.__file__ in files(caught.value)


def test_every_public_transform_is_a_boundary() -> None:
    names = {
        name
        for name, value in vars(td).items()
        if getattr(value, "__module__", "").startswith("treadle.api.")
        and callable(value)
        and not isinstance(value, type)
        and not hasattr(value, "boundary")
    }
    policies = {n for n in names if n.endswith("saveable")}
    assert names - policies == {
        "ShapeDtype",
        "ambients",
        "clear_caches",
        "current_transform",
        "default_device",
        "disable_jit",
        "effects_barrier",
        "live_arrays",
    }


def test_lines_of_pythons_own_library_are_not_the_users() -> None:
    def f(x: Any) -> Any:
        return functools.singledispatch(tnp.linalg.det)(x)

    line = f.__code__.co_firstlineno + 1
    with pytest.raises(ValueError, match=f"{__file__}:{line}"):
        f(X)
    with pytest.raises(ValueError, match=f"{__file__}:{line}"):
        td.jit(f)(X)


KEYWORDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "dim": (lambda x: nn.softmax(x, dim=0), "`dim` is `axis` here"),
    "over lines": (
        lambda x: tnp.concatenate(
            [x, x],
            dim=1,  # type: ignore[call-arg]
        ),
        "It is concatenate(arrays, axis=0, dtype=None): `dim` is `axis` here",
    ),
    "method": (lambda x: (x * 2).var(unbiased=False), "`unbiased` is `ddof` here"),
    "place": (lambda x: tnp.sum(input=x), "`input` is `x` here, and goes by its place"),
    "out": (lambda x: tnp.add(x, x, out=x), "take what is returned"),
    "class": (lambda x: data.Loader(x, 2, num_workers=3), "`num_workers` is `workers`"),
    "optimizer": (lambda x: optim.adamw(lr=0.1), "`lr` is `learning_rate` here"),
    "reduction": (lambda x: nn.squared_error(x, x, reduction="mean"), "`.mean()`"),
    "transform": (lambda x: td.vmap(broken, in_dims=1), "`in_dims` is `in_axes` here"),
    "starred": (
        lambda x: td.cond(True, tnp.sin, tnp.cos, operand=x),
        "`operand` is `*operands` here, and goes by its place",
    ),
    "structures": (
        lambda x: td.tree.transpose(
            outer_treedef=td.tree.structure([x]),  # type: ignore[call-arg]
            inner_treedef=None,
            pytree_to_transpose=[x],
        ),
        "`outer_treedef` is `outer` here",
    ),
    "treedef": (
        lambda x: td.tree.unflatten(treedef=td.tree.structure(x), leaves=[x]),
        "`treedef` is `structure` here",
    ),
    "f": (lambda x: td.tree.map(f=tnp.sin, tree=x), "`f` is `function` here"),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_that_is_called_otherwise(name: str) -> None:
    function, remedy = KEYWORDS[name]
    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        td.jit(function)(X)
    assert remedy in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("function", "remedy"),
    [
        (lambda: td.vmap(broken, in_dims=1), "`in_dims` is `in_axes` here"),
        (
            lambda: td.remat(broken, static_argnums=1),
            "`static_argnums` is `static` here",
        ),
        (lambda: td.grad(broken, has_axu=True), "`has_axu` is `has_aux` here"),
    ],
    ids=["vmap", "remat", "grad"],
)
def test_a_keyword_of_a_transform(function: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        function()
    assert remedy in caught.value.__notes__[0]


class Sized:
    size = 3


SIZED = Sized()
OF_PYTHON: dict[str, tuple[Any, str]] = {
    "size": (lambda x: x.size(0), "all elements; `x.shape` has the length of each"),
    "shape": (lambda x: (x * 2).shape(), "`x.shape[0]`"),
    "T": (lambda x: x.T(), "`x.T` of an array is no method"),
    "dtype": (lambda x: x.dtype(), "write `x.dtype`"),
    "json": (lambda x: json.dumps({"loss": td.stop_gradient(x)}), "`x.tolist()`"),
    "none of ours": (lambda x: SIZED.size(0), ""),
    "a number": (lambda x: len(())(x), ""),
}


@pytest.mark.parametrize("name", OF_PYTHON)
@pytest.mark.parametrize("transform", [td.jit, td.grad], ids=["jit", "grad"])
@pytest.mark.filterwarnings("ignore:.*not callable:SyntaxWarning")
def test_pythons_errors_about_arrays(name: str, transform: Any) -> None:
    function, remedy = OF_PYTHON[name]
    with pytest.raises(TypeError, match=r"not callable|not JSON") as caught:
        transform(function)(X)
    notes = getattr(caught.value, "__notes__", [])
    assert remedy in notes[0] if remedy else not notes


def test_a_users_function_says_nothing_of_its_keywords() -> None:
    def sum(x: Any) -> Any:
        return x

    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        td.jit(lambda x: sum(x, dim=0))(X)  # type: ignore[call-arg]
    assert not hasattr(caught.value, "__notes__")


def test_an_error_that_nobody_catches_is_shown_with_the_keyword(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[BaseException] = []
    monkeypatch.setattr(
        sys, "excepthook", lambda kind, error, trace: shown.append(error)
    )
    keywords.show_remedies()
    once = sys.excepthook
    keywords.show_remedies()
    assert sys.excepthook is once
    for function in (
        lambda: tnp.sum(X, dim=1),
        lambda: (X * 2).var(unbiased=False),
        lambda: json.dumps(X),
    ):
        try:
            function()
        except TypeError as error:
            sys.excepthook(TypeError, error, error.__traceback__)
    notes = [error.__notes__[0] for error in shown]  # type: ignore[attr-defined]
    assert "`dim` is `axis` here" in notes[0]
    assert "`unbiased` is `ddof` here" in notes[1]
    assert "`x.tolist()`" in notes[2]
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert len(shown) == 4


def test_pythons_own_guess_does_not_hide_ours() -> None:
    said = "sum() got an unexpected keyword argument 'axes'. Did you mean 'axis'?"
    assert spellings.unknown_keyword(TypeError(said)) == "axes"
