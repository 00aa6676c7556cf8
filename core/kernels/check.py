"""The rules that every nest obeys, checked between passes and in tests."""

from __future__ import annotations

from typing import get_args

import numpy as np

from treadle.errors import InternalError
from treadle.ir import scalar
from treadle.ir.scalar import SCALARS
from treadle.kernels.lower import is_running
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, STRIDED, Instr, Nest
from treadle.trace.lowering import Accumulate, Combine

_STORES = ("store", "store_add", "store_mul", "store_max", "store_min")
_REDUCTIONS, _RUNNING = get_args(Combine), get_args(Accumulate)


def check(nest: Nest) -> None:
    """Raises InternalError if the nest breaks a rule, naming the instruction."""
    if nest.axis not in ("inner", "mid"):
        raise InternalError(f"nest axis is {nest.axis!r}, not 'inner' or 'mid'")
    if nest.axis == "inner" and nest.mid:
        raise InternalError(f"a row nest has {nest.mid} mid dimensions; it may have 0")
    for k, operand in enumerate(nest.operands):
        if operand.inner not in (BROADCAST, CONTIGUOUS, PAIRED, STRIDED):
            raise InternalError(f"operand {k}: inner class {operand.inner}")
        if operand.mid and nest.axis == "inner":
            raise InternalError(f"operand {k} varies along mid in a row nest")
        if operand.kind not in ("array", "index"):
            raise InternalError(f"operand {k}: kind {operand.kind!r}")
    depends: list[bool] = []
    swept: list[bool] = []
    for i, instr in enumerate(nest.body):
        problem = _problem(nest, i, instr, depends, swept)
        if problem:
            raise InternalError(f"instruction {i} of a nest, {instr}: {problem}")


def _problem(
    nest: Nest, i: int, instr: Instr, depends: list[bool], swept: list[bool]
) -> str:
    """What is wrong with instruction i, or nothing; appends its two properties.

    depends: varies along inner. swept: varies along the loop that reductions run over.
    """
    if any(not 0 <= a < i for a in instr.args):
        return "an argument does not come before it"
    if any(nest.body[a].name in _STORES for a in instr.args):
        return "an argument is a store"
    if not isinstance(instr.dtype, np.dtype):
        return f"dtype {instr.dtype!r} is not a numpy.dtype"
    varies = any(depends[a] for a in instr.args)
    sweeps = any(swept[a] for a in instr.args)
    problem = ""
    if instr.name == "load" or instr.name in _STORES:
        problem = _access_problem(nest, instr, depends, swept)
        if not problem:
            operand = nest.operands[instr.attr]
            varies = varies or operand.inner != BROADCAST
            sweeps = sweeps or operand.mid
    elif instr.name.startswith("reduce_"):
        problem = _reduction_problem(nest, instr)
        varies, sweeps = varies and nest.axis == "mid", False
    elif instr.name == "const":
        problem = "a constant has arguments" if instr.args else ""
    else:
        problem = _elementwise_problem(nest, instr)
    depends.append(varies)
    swept.append(sweeps)
    return problem


def _access_problem(
    nest: Nest, instr: Instr, depends: list[bool], swept: list[bool]
) -> str:
    if not isinstance(instr.attr, int) or not 0 <= instr.attr < len(nest.operands):
        return "attr is not the number of an operand"
    operand = nest.operands[instr.attr]
    stores = instr.name in _STORES
    indices = instr.args[1:] if stores else instr.args
    if stores and not instr.args:
        return "a store without a value"
    if len(indices) != operand.gathers:
        return f"{len(indices)} indices for an operand with {operand.gathers}"
    if any(nest.body[a].dtype.kind not in "iu" for a in indices):
        return "an index is not an integer"
    if operand.dtype != instr.dtype:
        return f"the operand is {operand.dtype}"
    if not stores:
        return ""
    value = instr.args[0]
    if nest.body[value].dtype != operand.dtype:
        return f"the value is {nest.body[value].dtype}"
    if operand.kind == "index":
        return "a store to an index"
    placed = operand.inner != BROADCAST or any(depends[a] for a in indices)
    if depends[value] and not placed:
        return "an elem-level value is stored where all of inner share one place"
    placed = operand.mid or any(swept[a] for a in indices)
    if nest.axis == "mid" and swept[value] and not placed:
        return "a mid-level value is stored where all of mid share one place"
    return ""


def _reduction_problem(nest: Nest, instr: Instr) -> str:
    name = instr.name.removeprefix("reduce_")
    if name not in _REDUCTIONS:
        return "no such reduction"
    if len(instr.args) != 1:
        return "a reduction has one argument"
    dtype = nest.body[instr.args[0]].dtype
    if name.startswith("arg"):
        return "" if instr.dtype.kind in "iu" else "the index is not an integer"
    if dtype != instr.dtype:
        return f"the argument is {dtype}"
    if name in ("and", "or") and dtype.kind not in "biu":
        return f"not defined for {dtype}"
    return ""


def _elementwise_problem(nest: Nest, instr: Instr) -> str:
    dtypes = [nest.body[a].dtype for a in instr.args]
    if not dtypes:
        return "an operation has no arguments"
    if is_running(instr):
        if instr.name.removeprefix("running_") not in _RUNNING:
            return "no such running reduction"
        if any(other.name.startswith("reduce_") for other in nest.body):
            return "a running reduction beside a reduction"
    found = SCALARS.get(instr.name)
    if found is None and not is_running(instr):
        return "no such instruction"
    result = found.result if found else "same"
    if result == "bool" and instr.dtype != np.bool_:
        return "a predicate's dtype is bool"
    if instr.name == scalar.SELECT:
        if len(dtypes) != 3 or dtypes[0] != np.bool_:
            return "select takes a bool and two values"
        dtypes = dtypes[1:]
    if instr.name == scalar.CALL:
        names = tuple([d.name for d in dtypes])
        return "" if names == instr.attr.operands else "not what its code takes"
    if len(set(dtypes)) > 1:
        return f"arguments of different dtypes: {', '.join(map(str, dtypes))}"
    if instr.name == scalar.BITCAST and dtypes[0].itemsize != instr.dtype.itemsize:
        return f"{dtypes[0]} has another size"
    if result == "same" and dtypes[0] != instr.dtype:
        return f"the arguments are {dtypes[0]}"
    return ""
