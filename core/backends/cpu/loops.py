"""Loops and branches as commands."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.executor import Indirect, ProgramBuilder, Slot
from treadle.backends.cpu.run.repeat import ENDLESS, repeat, repeating
from treadle.backends.cpu.run.whole import Words, is_small
from treadle.plan.steps import (
    Branch,
    Buffer,
    CallsStep,
    CopyStep,
    Loop,
    NestStep,
    OrderStep,
    Place,
    ProductStep,
    Step,
    While,
)

_CALLING = NestStep, ProductStep, CopyStep, OrderStep, CallsStep
"""Steps that are calls of native functions."""


def _only_calls(steps: Sequence[Step]) -> bool:
    return all(isinstance(step, _CALLING) for step in steps)


class LoopCommands:
    """Adds the commands of loops and branches to a program.

    loops: the slots that hold iterations. around: the loops whose commands are being
      made, outermost first.
    shortens: whether loops over few numbers are one function each; shortened: whether
      any is.
    """

    builder: ProgramBuilder
    loops: dict[Loop, int]
    around: list[Loop]
    shortens: bool
    shortened = False

    @abstractmethod
    def at(self, place: Place) -> Slot:
        """A place as an operand of the executor."""

    @abstractmethod
    def slot_of(self, b: Buffer) -> int:
        """The slot of a pointer that loops exchange."""

    @abstractmethod
    def _commands(self, steps: Sequence[Step]) -> None: ...

    @property
    def strands(self) -> int:
        """Those of the loop whose commands are being made; 1 if there is none."""
        return self.around[-1].strands if self.around else 1

    def _loop(self, step: Loop) -> None:
        self.around.append(step)
        if isinstance(step, While):
            self._until(step)
        else:
            self._counted(step)
        self.around.pop()

    def _counted(self, step: Loop) -> None:
        swaps = self._point(step)
        index = self.loops[step] = self.builder.slot()
        if self._is_whole(self.around):
            self._whole(Words(step, index, self.at, swaps), step.count)
            for a, b in swaps if step.count % 2 else ():
                self.builder.swap(a, b)
            return
        with repeating(self.builder, _only_calls(step.body)) as made:
            with self.builder.loop(step.count, index):
                with self.builder.recording() as body:
                    self._commands(step.body)
                for a, b in swaps:
                    self.builder.swap(a, b)
            made.append(
                lambda: repeat(step.count, index, body, swaps, strands=step.strands)
            )

    def _until(self, step: While) -> None:
        swaps, flag = self._point(step), self.at(step.flag)
        end = self.builder.label()
        if self._is_whole(self.around):
            self._whole(Words(step, None, self.at, swaps), ENDLESS)
            # Which buffers hold the last values depends on how often it ran.
            self.builder.jump_unless(Indirect(flag, "bool"), end)
            for a, b in swaps:
                self.builder.swap(a, b)
            self.builder.place(end)
            return
        calls = _only_calls([*step.test, *step.body])
        with repeating(self.builder, calls) as made:
            start = self.builder.label()
            self.builder.place(start)
            with self.builder.recording() as test:
                self._commands(step.test)
            self.builder.jump_unless(Indirect(flag, "bool"), end)
            with self.builder.recording() as body:
                self._commands(step.body)
            for a, b in swaps:
                self.builder.swap(a, b)
            self.builder.jump(start)
            self.builder.place(end)
            made.append(lambda: repeat(ENDLESS, None, body, swaps, test, flag))

    def _is_whole(self, loops: Sequence[Loop]) -> bool:
        return self.shortens and is_small(loops)

    def _whole(self, words: Words, count: int) -> None:
        """Calls a loop of few numbers, which is one function."""
        self.shortened = True
        kernel = native.load([words.source])[words.source.key]
        self.builder.call(kernel, [count, *words.roots])

    def _point(self, step: Loop) -> list[tuple[int, int]]:
        """Points a loop's slots; gives those that each iteration exchanges."""
        for b, place in step.slots:
            self.builder.set(self.slot_of(b), self.at(place))
        return [(self.slot_of(a), self.slot_of(b)) for a, b in step.swaps]

    def _branch(self, step: Branch) -> None:
        kind = {"bool": "bool", "int32": "i32", "int64": "i64"}[step.dtype.name]
        index = Indirect(self.at(step.index), kind)
        end = self.builder.label()
        last = len(step.branches) - 1
        labels = [self.builder.label() for _ in step.branches]
        for i, label in enumerate(labels[:-1]):
            # Indices below 0 take the first branch, those beyond the end the last.
            self.builder.jump_if_less(index, i + 1, label)
        self.builder.jump(labels[last])
        for label, steps in zip(labels, step.branches, strict=True):
            self.builder.place(label)
            self._commands(steps)
            self.builder.jump(end)
        self.builder.place(end)
