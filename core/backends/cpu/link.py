"""A Plan made executable: steps become commands, and kernels machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from treadle.backends.cpu import families, routines
from treadle.backends.cpu.cost import worth_sharing
from treadle.backends.cpu.gemm.arguments import Word, operands
from treadle.backends.cpu.loops import LoopCommands
from treadle.backends.cpu.order.schedule import order_scratch
from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.executor import (
    Call,
    Function,
    Program,
    ProgramBuilder,
    Scaled,
    Slot,
)
from treadle.backends.cpu.run.host import address_of, host_call, meaning
from treadle.backends.cpu.sources import (
    launch_source,
    product_source,
    tile_source,
)
from treadle.errors import InternalError
from treadle.ir.filled import filled_with, sizes_in
from treadle.late import number
from treadle.plan.steps import (
    Branch,
    Buffer,
    CallsStep,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    OrderStep,
    Place,
    Plan,
    ProductStep,
    Step,
)


class Bound:
    """A linked plan whose sizes were open, for given ones (see `Linked.bind`)."""

    sizes: Sequence[Any] = ()

    def __init__(
        self,
        program: Program,
        constants: list[int],
        linked: Linked,
        given: tuple[Sequence[int], Mapping[int, np.ndarray]],
    ) -> None:
        self.program, self.constants = program, constants
        self.failures = linked.failures
        self.plan, self.spans = linked.plan, linked.spans
        self._linked, self._given = linked, given

    @cached_property
    def walked(self) -> Bound:
        """The same program step by step."""
        linked = self._linked
        return linked.walked.bind(*self._given) if linked.shortened else self

    def bind(self, values: Sequence[int], constants: Mapping[int, np.ndarray]) -> Bound:
        raise InternalError("a program for given sizes has no open ones")


class Linked(LoopCommands):
    """A plan with its kernels loaded and its command buffer built.

    Slots: the arena, the program's inputs, its outputs, the constants (a call fills
    these), the pointers that loops exchange, then what the executor adds.

    shortens: whether loops over few numbers are one function each.
    failures: why calls of host functions failed, by thread.
    """

    def __init__(
        self,
        plan: Plan,
        shortens: bool = True,
        failures: dict[int, BaseException] | None = None,
    ) -> None:
        self.plan = plan
        self.shortens = shortens
        self.failures = {} if failures is None else failures
        self._keep: list[Any] = [plan.constants]
        bases = {"input": 1, "output": 1 + len(plan.inputs)}
        bases["constant"] = bases["output"] + len(plan.outputs)
        bases["slot"] = bases["constant"] + len(plan.constants)
        self._bases = bases
        self.builder = ProgramBuilder(slots=bases["slot"] + plan.slots)
        self.spans: list[tuple[int, Sequence[Step]]] = []
        """Where the commands of steps begin that do work."""
        self.loops, self.around = {}, []
        self._sized_hosts: dict[int, HostStep] = {}
        self._sources: dict[str, native.Source] = {}
        self._commands(plan.steps)
        # Last of all: they may still be compiled, on other threads.
        sources = list(self._sources.values())
        kernels = native.load(sources) if sources else {}
        self.program: Program = self.builder.build(kernels, plan.most_threads)
        self.constants = [c.ctypes.data for c in plan.constants]
        hosts = sizes_in([meaning(s) for s in self._sized_hosts.values()])
        self.sizes = [*self.program.sizes, *hosts]

    @cached_property
    def walked(self) -> Linked:
        """The same program step by step."""
        return Linked(self.plan, False, self.failures) if self.shortened else self

    def bind(self, values: Sequence[int], constants: Mapping[int, np.ndarray]) -> Bound:
        """The same program with numbers for `sizes`, and with some other constants."""
        keep: list[Any] = [*constants.values()]
        words = {}
        for at, step in self._sized_hosts.items():
            what = filled_with(meaning(step), self.sizes, values)
            call = host_call(what, self.failures)
            keep.append(call)
            words[at] = address_of(call)
        own = values[: len(self.program.sizes)]
        addresses = list(self.constants)
        for i, value in constants.items():
            addresses[i] = value.ctypes.data
        program = self.program.bind(own, words, keep)
        return Bound(program, addresses, self, (values, constants))

    def at(self, place: Place) -> Slot:
        """A place as an operand of the executor."""
        b, offset, dynamic = place
        parts = tuple([Scaled(self.loops[loop], n) for loop, n in dynamic])
        if b.home == "arena":
            return Slot(0, offset + b.offset, parts)
        return Slot(self._bases[b.home] + b.index, offset, parts)

    def slot_of(self, b: Buffer) -> int:
        return self._bases["slot"] + b.index

    # Commands

    def _commands(self, steps: Sequence[Step]) -> None:
        group: list[NestStep] = []
        for step in steps:
            if group and not (
                isinstance(step, NestStep) and step.position == group[0].position
            ):
                self._group(group)
                group = []
            if isinstance(step, NestStep):
                group.append(step)
            else:
                self._command(step)
        if group:
            self._group(group)

    def _group(self, steps: Sequence[NestStep]) -> None:
        self.spans.append((self.builder.command_count, steps))
        calls = [self._nest_call(step) for step in steps]
        several = len(steps) > 1 and self.strands == 1
        if several and worth_sharing([step.launch for step in steps]):
            self.builder.group(calls)
            return
        for call in calls:
            self.builder.call(*call)

    def _command(self, step: Step) -> None:
        if not isinstance(step, Loop | Branch):
            self.spans.append((self.builder.command_count, [step]))
        if isinstance(step, ProductStep):
            kernel, words, tasks = self._product_call(step)
            self.builder.call(kernel, words, tasks)
        elif isinstance(step, CopyStep):
            to, tasks = self.at(step.writes[0]), self.strands if self.strands > 1 else 0
            if step.reads:
                self.builder.copy(to, self.at(step.reads[0]), step.nbytes, tasks)
            else:
                self.builder.fill_zero(to, step.nbytes, tasks)
        elif isinstance(step, OrderStep):
            source = families.order.source(step.itemsize, step.length, step.count)
            self.builder.call(self._called(source), self._order_words(step), step.tasks)
        elif isinstance(step, CallsStep):
            kernel = self._called(routines.source(step.call.script, step.call.times))
            words = routines.words(step, self.at, self._own(step))
            self.builder.call(kernel, words, step.tasks)
        elif isinstance(step, HostStep):
            self._host(step)
        elif isinstance(step, Loop):
            self._loop(step)
        elif isinstance(step, Branch):
            self._branch(step)
        else:
            raise InternalError(f"no command for {type(step).__name__}")

    def _nest_call(self, step: NestStep) -> Call:
        launch = step.launch
        words: list[Any] = [*launch.outer, *launch.mid, launch.inner]
        if step.scratch is not None:
            # Each task has an equal share.
            share = step.scratch.buffer.nbytes // step.tasks
            words += [self.at(step.scratch), share]
        words += self._operands(step.places, launch)
        return self._called(launch_source(launch)), words, step.tasks

    def _operands(self, places: Sequence[Place | None], launch: Any) -> list[Any]:
        words: list[Any] = []
        for place, binding in zip(places, launch.bindings, strict=True):
            words.append(binding.offset if place is None else self.at(place))
            words += binding.strides
        return words

    def _product_call(self, step: ProductStep) -> Call:
        words: list[Any] = list(step.words.words)
        words[Word.A], words[Word.B] = operands(step, self.at)
        words[Word.C] = self.at(step.c)
        if step.scratch is not None:
            words[Word.SCRATCH] = self.at(step.scratch)
        words[Word.OWN : Word.OWN_STRIDE + 1] = self._own(step)
        launch = step.product.epilogue
        if launch is not None:
            words[Word.EPILOGUE] = self._called(tile_source(launch))
            words[Word.EPILOGUE_ARGS] = len(words)
            words += [1, *launch.outer, launch.inner]
            words += self._operands(step.places, launch)
        return self._called(product_source(step.product)), words[1:], step.words.tasks

    def _called(self, source: native.Source) -> Function:
        """A kernel in a command: it will be loaded."""
        self._sources[source.key] = source
        return Function(source.key)

    def _own(self, step: Step) -> list[Any]:
        """Where slot 0 has its memory, and how far it is from one to the next."""
        return [self.at(step.own.place), step.own.stride] if step.own else [0, 0]

    def _order_words(self, step: OrderStep) -> list[Any]:
        assert step.scratch is not None
        places = [step.reads[0], step.writes[0], step.scratch]
        nbytes = number(order_scratch, (step.length, step.itemsize))
        sizes = [step.rows, step.length, step.count]
        return [*sizes, *map(self.at, places), nbytes]

    def _host(self, step: HostStep) -> None:
        call = host_call(meaning(step), self.failures)
        self._keep.append(call)
        places = [self.at(p) for p in (*step.reads, *step.writes)]
        at = self.builder.host(address_of(call), places, step.call.op.name)
        if sizes_in(meaning(step)):
            self._sized_hosts[at] = step
