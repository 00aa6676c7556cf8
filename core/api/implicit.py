"""Functions that an equation defines: their derivatives are those of the equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from treadle import dtypes, tree
from treadle.api.args import as_results, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.carry import flatten_checked
from treadle.api.linear import linearize
from treadle.arraytype import ArrayType
from treadle.control.custom import custom_jvp
from treadle.control.graphs import nonzero, rewire
from treadle.control.linear_solve import linear_solve
from treadle.control.ways import explore
from treadle.errors import StructureError, at, user_source
from treadle.ir.graph import Graph, Var
from treadle.ir.walk import call_graph
from treadle.ops.arithmetic import neg
from treadle.ops.cast import convert
from treadle.ops.movement import instantiate
from treadle.trace.op import Zero
from treadle.trace.value import typeof
from treadle.transforms.jvp import jvp_flat
from treadle.transforms.transpose import transpose_graph

_ANOTHER = (
    "{what}: {name} must give what {like} is\n  {like}: {wanted}\n  given: {found}{at}"
)


class Vectors:
    """What is solved for: a pytree of floating or complex arrays.

    what: who solves, for messages.
    like: how messages name the value that says of which structure and types they are.
    function: gives vectors for vectors: numbers take the types of what it gives.
    """

    def __init__(
        self, what: str, like: str, value: Any, function: Callable[[Any], Any]
    ) -> None:
        self.what, self.like = what, like
        leaves, self.form = flatten_checked(value, f"{like} of {what}")
        self.leaves = as_results(leaves)
        self.types = [typeof(x) for x in self.leaves]
        if any([t.weak for t in self.types]):
            self.types = self._settled(function)
            pairs = zip(self.leaves, self.types, strict=True)
            self.leaves = [convert(x, dtype=t.dtype) for x, t in pairs]
        for path, t in zip(tree.paths(self.form), self.types, strict=True):
            if not dtypes.is_differentiable(t.dtype):
                inside = f" at {tree.key_name(path)}" if path else ""
                raise TypeError(
                    f"{what} solves for floating or complex arrays, and {like}{inside} "
                    f"is {t}{at(user_source())}\nMake it `.astype(float)`."
                )

    def _settled(self, function: Callable[[Any], Any]) -> list[ArrayType]:
        """The types in which numbers are what the function gives for them."""
        graph, _ = explore(
            lambda *x: tree.leaves(function(self.form.unflatten(x))),
            self.types,
            lambda: tree.LEAF,
        )
        found = graph.out_types
        if len(found) != len(self.types):
            return [t.strong() for t in self.types]
        return [
            b.strong() if a.weak and a.shape == b.shape else a.strong()
            for a, b in zip(self.types, found, strict=True)
        ]

    def flat(self, value: Any, name: str) -> list[Any]:
        """The leaves of a vector that a function of the user's gave.

        Raises:
          StructureError, TypeError: if it is something else.
        """
        leaves, form = flatten_checked(value, f"what {name} gives")
        if form != self.form:
            raise StructureError(self._another(name, self.form, form))
        found = [typeof(x) for x in leaves]
        fits = [
            a.shape == b.shape
            and dtypes.promote((a.dtype, a.weak), (b.dtype, False))[0] == b.dtype
            for a, b in zip(found, self.types, strict=True)
        ]
        if not all(fits):
            raise TypeError(self._another(name, self.types, found))
        return [
            convert(x, dtype=t.dtype) for x, t in zip(leaves, self.types, strict=True)
        ]

    def _another(self, name: str, wanted: Any, found: Any) -> str:
        return _ANOTHER.format(
            what=self.what,
            name=name,
            like=self.like,
            wanted=wanted,
            found=found,
            at=at(user_source()),
        )


class _Staged:
    """Functions of the user's, traced, as graphs that take what any of them closes
    over: ``(*consts, *args)``."""

    def __init__(self) -> None:
        self.consts: list[Any] = []
        self._made: list[tuple[Graph, list[Any]]] = []

    def add(
        self, function: Callable[..., Sequence[Any]], types: Sequence[ArrayType]
    ) -> None:
        """Traces one of flat arrays."""
        self.put(*explore(function, types, lambda: tree.LEAF))

    def put(self, graph: Graph, captured: list[Any]) -> None:
        """Takes one that was traced: its first inputs are what it closes over."""
        known = set(map(id, self.consts))
        self.consts += [x for x in captured if id(x) not in known]
        self._made.append((graph, captured))

    def graphs(self) -> list[Graph]:
        """All of them, with all consts."""
        return [self._whole(*made) for made in self._made]

    def _whole(self, graph: Graph, captured: list[Any]) -> Graph:
        n = len(captured)
        own = dict(zip(map(id, captured), graph.inputs[:n], strict=True))
        consts = [own.get(id(x)) or Var(typeof(x)) for x in self.consts]
        inputs = [*consts, *graph.inputs[n:]]
        return Graph(inputs, graph.equations, graph.outputs, graph.name)


class _Aux:
    """What a solver gives beside the solution."""

    def __init__(self, has_aux: bool) -> None:
        self.has_aux = has_aux
        self.form: tree.Structure | None = None

    def split(self, out: Any, vectors: Vectors, name: str) -> list[Any]:
        """The leaves of a solution, and those of aux."""
        if not self.has_aux:
            return vectors.flat(out, name)
        if not isinstance(out, tuple) or len(out) != 2:
            raise TypeError(
                f"{vectors.what}: with has_aux=True, {name} must return a pair "
                f"(solution, aux){at(user_source())}"
            )
        aux, self.form = flatten_checked(out[1], f"the aux of {name}")
        return [*vectors.flat(out[0], name), *aux]

    def join(self, outs: Sequence[Any], vectors: Vectors) -> Any:
        """The pytrees that the leaves stand for."""
        n = len(vectors.types)
        out = vectors.form.unflatten(as_results(outs[:n]))
        if self.form is None:
            return out
        return out, self.form.unflatten(as_results(outs[n:]))


T = TypeVar("T")
Aux = TypeVar("Aux")


@overload
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Callable[[Callable[[T], T], T], T],
    transpose_solve: Callable[[Callable[[T], T], T], T] | None = None,
    symmetric: bool = False,
    has_aux: Literal[False] = False,
) -> T: ...
@overload
def custom_linear_solve(
    matvec: Callable[[T], T],
    b: T,
    solve: Callable[[Callable[[T], T], T], tuple[T, Aux]],
    transpose_solve: Callable[[Callable[[T], T], T], tuple[T, Any]] | None = None,
    symmetric: bool = False,
    *,
    has_aux: Literal[True],
) -> tuple[T, Aux]: ...
@boundary
def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """x with ``matvec(x) = b``, whose derivatives do not go through the solver.

    Forward and reverse mode, of any order, solve the linear equation that belongs to
    the derivative, by the same solver or the transposed one.

    Args:
      matvec: linear, from a pytree of arrays like `b` to another one. It may close over
        what is differentiated.
      b: a pytree of floating or complex arrays.
      solve: ``(matvec, b) -> x``; need not be differentiable.
      transpose_solve: ``(vecmat, ct) -> x``, the same for the transposed function;
        needed in reverse mode.
      symmetric: True if `matvec` is its own transpose: `solve` serves both.
      has_aux: if True, the solvers return (x, aux), and so does this.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def jacobi(matvec, b):
    ...     step = lambda i, x: x + 0.2 * (b - matvec(x))
    ...     return td.fori_loop(0, 100, step, tnp.zeros_like(b))
    >>> def solution(a, b):
    ...     return td.custom_linear_solve(lambda x: a * x, b, jacobi, symmetric=True)
    >>> td.grad(lambda a: solution(a, tnp.array([8.0]))[0])(4.0)
    Array(-0.5, dtype=float32)
    """
    for function in (matvec, solve):
        check_function("custom_linear_solve", function)
    name = name_of(matvec)
    vectors = Vectors("custom_linear_solve", "b", b, matvec)
    form, types = vectors.form, vectors.types
    graph, captured = explore(
        lambda *x: vectors.flat(matvec(form.unflatten(x)), name),
        types,
        lambda: form,
        name=name,
    )
    aux, staged = _Aux(has_aux), _Staged()

    def solver(of: Callable[..., Any], product: Callable[[Any], Any]) -> None:
        def flat(*right: Any) -> list[Any]:
            out = of(product, form.unflatten(as_results(right)))
            return aux.split(out, vectors, name_of(of))

        staged.add(flat, types)

    solver(solve, matvec)
    staged.put(graph, captured)
    if transpose_solve is not None and not symmetric:
        back = _turned(graph, len(captured))

        def vecmat(ct: Any) -> Any:
            given = vectors.flat(ct, "the argument of vecmat")
            return form.unflatten(as_results(call_graph(back, [*captured, *given])))

        solver(transpose_solve, vecmat)
        staged.put(back, captured)
    graphs = staged.graphs()
    outs = linear_solve(
        *staged.consts,
        *vectors.leaves,
        graph=graphs[0],
        matvec=graphs[1],
        turned=tuple(graphs[:2] if symmetric else graphs[2:]),
        n_consts=len(staged.consts),
        name=name,
    )
    return aux.join(outs, vectors)


def _turned(graph: Graph, n_consts: int) -> Graph:
    """The transpose of a graph in what is not constant."""
    types = graph.in_types[n_consts:]
    linear = (False,) * n_consts + (True,) * len(types)
    back, kept = transpose_graph(graph, linear, (True,) * len(types))
    numbers = iter(range(len(types)))
    outputs = [next(numbers) if k else t for k, t in zip(kept, types, strict=True)]
    return rewire(back, range(len(back.inputs)), outputs)


@overload
def custom_root(
    f: Callable[[T], T],
    initial_guess: T,
    solve: Callable[[Callable[[T], T], T], T],
    tangent_solve: Callable[[Callable[[T], T], T], T],
    has_aux: Literal[False] = False,
) -> T: ...
@overload
def custom_root(
    f: Callable[[T], T],
    initial_guess: T,
    solve: Callable[[Callable[[T], T], T], tuple[T, Aux]],
    tangent_solve: Callable[[Callable[[T], T], T], T],
    has_aux: Literal[True],
) -> tuple[T, Aux]: ...
@boundary
def custom_root(
    f: Callable[[Any], Any],
    initial_guess: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    tangent_solve: Callable[[Callable[[Any], Any], Any], Any],
    has_aux: bool = False,
) -> Any:
    """x with ``f(x) = 0``, whose derivatives are those of the equation.

    What `f` closes over may be differentiated, in forward and reverse mode, of any
    order; the solver need not be differentiable.

    Args:
      f: from a pytree of arrays to one like it.
      initial_guess: where the solver starts: a pytree of floating or complex arrays.
      solve: ``(f, initial_guess) -> x``.
      tangent_solve: ``(g, y) -> x`` solves ``g(x) = y``, where `g` is linear: the
        derivative of `f` at the root. It must be linear in `y`, and differentiable:
        ``y / g(1.0)`` for a number, `td.custom_linear_solve` for what iterates.
      has_aux: if True, `solve` returns (x, aux), and so does this.

    >>> import treadle as td
    >>> def newton(f, x):
    ...     step = lambda i, x: x - f(x) / td.jvp(f, (x,), (1.0,))[1]
    ...     return td.fori_loop(0, 20, step, x)
    >>> def root(a):
    ...     divide = lambda g, y: y / g(1.0)
    ...     return td.custom_root(lambda x: x * x - a, 1.0, newton, divide)
    >>> td.value_and_grad(root)(4.0)
    (Array(2., dtype=float32), Array(0.25, dtype=float32))
    """
    for function in (f, solve, tangent_solve):
        check_function("custom_root", function)
    vectors = Vectors("custom_root", "initial_guess", initial_guess, f)
    form, types = vectors.form, vectors.types
    aux, staged, n = _Aux(has_aux), _Staged(), len(types)

    def flat_solve(*guess: Any) -> list[Any]:
        out = solve(f, form.unflatten(as_results(guess)))
        return aux.split(out, vectors, name_of(solve))

    def flat_tangent(*values: Any) -> list[Any]:
        _, g = linearize(f, form.unflatten(values[:n]))
        out = tangent_solve(g, form.unflatten(as_results(values[n:])))
        return vectors.flat(out, name_of(tangent_solve))

    name = name_of(f)
    staged.add(lambda *x: vectors.flat(f(form.unflatten(x)), name), types)
    staged.add(flat_solve, types)
    staged.add(flat_tangent, [*types, *types])
    value, solver, tangent = staged.graphs()

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        outs = solved(primals)
        consts, moving = primals[:-n], tangents[:-n]
        _, right = jvp_flat(
            lambda *consts: call_graph(value, [*consts, *outs[:n]]), consts, moving
        )
        zeros = [Zero(typeof(x).strong()) for x in outs]
        if not any(nonzero(right)):
            return outs, zeros
        given = [*consts, *outs[:n], *map(instantiate, right)]
        found = call_graph(tangent, given)
        return outs, [*map(neg, found), *zeros[n:]]

    def solved(args: Sequence[Any]) -> list[Any]:
        return custom_jvp(
            *args, graph=solver, rule=rule, n_consts=0, name=f"the root of {name}"
        )

    return aux.join(solved([*staged.consts, *vectors.leaves]), vectors)
