"""The checkpoints of a run: saved in the background, the latest and the best kept."""

from __future__ import annotations

import math
import operator
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

from treadle.checkpoint import commit, orbax_format, store
from treadle.checkpoint.keep import Keep, Saved
from treadle.checkpoint.manifest import DamagedError
from treadle.checkpoint.restore import How, restore, verify
from treadle.checkpoint.save import Pending, check_compression, into, snapshot, write

ENDING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""The signals that ask a process to end; a system may lack the second."""
_LENGTH = "step_format_fixed_length"

T = TypeVar("T")


class Manager:
    """Keeps the checkpoints of a training run in one directory, a folder for each step.

    Saving returns as soon as the leaves are copied; the disk is written to in the
    background. Use it as a context manager: leaving it, also by an exception, SIGTERM
    or SIGHUP, waits until the last save is complete.

    Plain Orbax reads the directory as that of its ``CheckpointManager``. Whatever else
    lies there, under a number too, is left alone.

    Args:
      directory: made with the first save.
      max_to_keep: how many of the latest steps are kept; None for all.
      keep_best: how many of the best steps are kept besides.
      best_metric: which of the metrics tells how good a step is.
      mode: whether the best is the smallest ("min") or the largest ("max").
      keep_every_steps, keep_every_seconds: the multiples of a number of steps, and one
        step in so much time, are kept besides.
      keep: a function from all steps (a `Saved` each) to those that are kept besides.
      save_interval_steps: other steps than its multiples are not saved.
      save_on_steps: steps that are saved although they are no multiples.
      compression: a level of zstd, from 1 (fast) to 22 (small); None for none.
      step_prefix, step_format_fixed_length: how steps are named, as in Orbax's options:
        "ckpt" and 4 name step 7 ``ckpt_0007``. Steps of other lengths are found, too.

    >>> with Manager("run", max_to_keep=2) as manager:
    ...     for step in range(4):
    ...         saved = manager.save(step, {"w": step}, {"loss": (step - 1) ** 2})
    >>> manager.all_steps(), manager.best_step(), manager.restore()
    ([1, 2, 3], 1, {'w': 3})
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int | None = 3,
        keep_best: int = 1,
        best_metric: str = "loss",
        mode: Literal["min", "max"] = "min",
        keep_every_steps: int | None = None,
        keep_every_seconds: float | None = None,
        keep: Callable[[Sequence[Saved]], Iterable[int]] | None = None,
        save_interval_steps: int = 1,
        save_on_steps: Iterable[int] = (),
        compression: int | None = None,
        step_prefix: str | None = None,
        step_format_fixed_length: int | None = None,
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max', not {mode!r}")
        if max_to_keep is not None:
            max_to_keep = _whole("max_to_keep", max_to_keep, least=1)
        keep_best = _whole("keep_best", keep_best, least=0)
        if keep_every_steps is not None:
            keep_every_steps = _whole("keep_every_steps", keep_every_steps, least=1)
        self._keep = Keep(keep_every_steps, keep_every_seconds, keep)
        self._on_steps = frozenset(save_on_steps)
        self._compression = check_compression(compression)
        save_interval_steps = _whole("save_interval_steps", save_interval_steps, 1)
        length = step_format_fixed_length
        self._digits = 1 if length is None else _whole(_LENGTH, length, least=1)
        self._prefix = "" if step_prefix is None else f"{step_prefix}_"
        if step_prefix == "" or os.path.basename(self._prefix) != self._prefix:
            raise ValueError(f"step_prefix is part of a name, not {step_prefix!r}")
        self.directory = os.path.abspath(os.fspath(directory))
        self.max_to_keep, self.keep_best = max_to_keep, keep_best
        self.best_metric, self.mode = best_metric, mode
        self.save_interval_steps = save_interval_steps
        self._pending: Pending | None = None
        self._old_handlers: dict[signal.Signals, Any] = {}

    def save(
        self,
        step: int,
        tree: Any,
        metrics: Mapping[str, Any] | None = None,
        force: bool = False,
    ) -> bool:
        """Starts to save a pytree as `step`, and says whether it did.

        It waits for the previous save first, and raises if that failed.

        Args:
          metrics: numbers that tell how good the step is.
          force: saves although the step is not due, or is saved already.

        Returns:
          False if the step is not due: no multiple of `save_interval_steps`, and none
          of `save_on_steps`.

        Raises:
          FileExistsError: if the step is saved already, or something that is not a
            checkpoint has its name.
          OSError: if the previous save failed.
          RuntimeError: in a forked process, where TensorStore does not work.
        """
        store.check_process("save a checkpoint")
        step = _whole("step", step, least=0)
        due = step % self.save_interval_steps == 0 or step in self._on_steps
        if not due and not force:
            return False
        numbers = self._check_metrics(metrics)
        self.wait()
        path = self.path(step)
        commit.check_replaceable(path)
        if not force and os.path.lexists(path):
            raise FileExistsError(
                f"step {step} is saved already in {self.directory}; pass force=True "
                "to replace it"
            )
        taken = snapshot(tree, copy=True)

        def fill(made: str) -> None:
            item = os.path.join(made, orbax_format.ITEM)
            os.mkdir(item)
            write(item, taken, self._compression)
            orbax_format.write_step(made, numbers)

        def work() -> None:
            commit.sweep(self.directory)
            into(path, fill, overwrite=force)
            self._clean()

        self._pending = Pending(work, path)
        return True

    @overload
    def restore(
        self,
        template: None = None,
        step: int | None = None,
        *,
        fall_back: bool = True,
        **how: Unpack[How],
    ) -> Any: ...
    @overload
    def restore(
        self,
        template: T,
        step: int | None = None,
        *,
        fall_back: bool = True,
        **how: Unpack[How],
    ) -> T: ...
    def restore(
        self,
        template: Any = None,
        step: int | None = None,
        *,
        fall_back: bool = True,
        **how: Unpack[How],
    ) -> Any:
        """The pytree of a step; without `step`, of the latest.

        If the latest is damaged, the one before it is restored, with a warning, unless
        `fall_back` is false. See `treadle.checkpoint.restore` for the other arguments.

        Raises:
          FileNotFoundError: if there is no such step.
          StructureError: if the template does not fit.
          DamagedError: if the step is damaged; it names the latest intact one.
        """
        if step is not None:
            step = _whole("step", step, least=0)
        self.wait()
        steps = self.all_steps()
        if step is None and not steps:
            raise FileNotFoundError(
                f"no step is saved in {self.directory}{self._hint()}"
            )
        if step is not None and step not in steps:
            raise FileNotFoundError(
                f"step {step} is not in {self.directory}; there are {steps}"
            )
        wanted = steps[-1] if step is None else step
        try:
            return self._restore(wanted, template, how)
        except DamagedError as error:
            if step is None and wanted not in self.all_steps():
                # Another process has saved later ones, and deleted it meanwhile.
                return self.restore(template, fall_back=fall_back, **how)
            before = self._intact_before(wanted, how.get("item"))
            text = f"step {wanted} cannot be restored: {error}"
            if before is None:
                raise DamagedError(f"{text}\nNo earlier step is intact.") from error
            if step is not None or not fall_back:
                raise DamagedError(
                    f"{text}\nStep {before} is intact: restore(step={before})"
                ) from error
            warnings.warn(f"{text}\nStep {before} is restored instead.", stacklevel=2)
            return self._restore(before, template, how)

    def _restore(self, step: int, template: Any, how: How) -> Any:
        try:
            return restore(self.path(step), template, **how)
        except FileNotFoundError as error:
            raise DamagedError(str(error)) from error

    def _intact_before(self, step: int, item: str | None) -> int | None:
        for earlier in reversed([s for s in self.all_steps() if s < step]):
            try:
                verify(self.path(earlier), item=item)
            except (DamagedError, FileNotFoundError, ValueError):
                continue
            return earlier
        return None

    def _hint(self) -> str:
        """What to do if there are steps, but under names with a prefix."""
        for name in _names_in(self.directory):
            named = re.fullmatch(r"(.+)_[0-9]+", name)
            path = os.path.join(self.directory, name)
            if named and not self._prefix and orbax_format.is_checkpoint(path):
                return f"; for {name!r} use Manager(…, step_prefix={named[1]!r})"
        return ""

    def path(self, step: int) -> str:
        """The folder of a step."""
        name = self._folders().get(step, self._name(step))
        return os.path.join(self.directory, name)

    def _name(self, step: int) -> str:
        return f"{self._prefix}{step:0{self._digits}}"

    def _folders(self) -> dict[int, str]:
        """The names of the folders that are steps."""
        found: dict[int, str] = {}
        for name in _names_in(self.directory):
            if not re.fullmatch(f"{re.escape(self._prefix)}[0-9]+", name):
                continue
            step = int(name.removeprefix(self._prefix))
            # Of two folders for one step, the one that a save would write counts.
            if (step not in found or name == self._name(step)) and (
                orbax_format.is_checkpoint(os.path.join(self.directory, name))
            ):
                found[step] = name
        return found

    def all_steps(self) -> list[int]:
        """The steps whose checkpoints are complete, in ascending order."""
        return sorted(self._folders())

    def latest_step(self) -> int | None:
        """The last complete step; None if there is none."""
        return max(self.all_steps(), default=None)

    def best_step(self) -> int | None:
        """The step with the best metric, the latest if several; None if none has it."""
        ranked = self._ranked()
        return ranked[0] if ranked else None

    def metrics(self, step: int) -> dict[str, float]:
        """The metrics that were saved with a step; none if they are damaged."""
        return orbax_format.read_metrics(self.path(step))

    def wait(self) -> None:
        """Returns when the save that is under way is complete.

        Raises:
          OSError: or whatever else made it fail.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.wait()

    def close(self) -> None:
        """Waits, and stops handling signals."""
        try:
            self.wait()
        finally:
            while self._old_handlers:
                signal.signal(*self._old_handlers.popitem())

    def __enter__(self) -> Manager:
        commit.sweep(self.directory)
        # The default action would end the process in the middle of a save. Whoever has
        # a handler, or ignores the signal, keeps to that.
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._old_handlers[number] = signal.signal(number, _exit)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception:
            # A failed save is logged; it must not hide why the block was left.
            if error is None:
                raise

    def _check_metrics(
        self, metrics: Mapping[str, Any] | None
    ) -> dict[str, float] | None:
        if metrics is None:
            return None
        numbers = {}
        for name, value in metrics.items():
            try:
                numbers[str(name)] = float(value)
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"the metric {name!r} is {value!r}; metrics are numbers"
                ) from error
        if self.keep_best and self.best_metric not in numbers:
            raise ValueError(
                f"the metrics {sorted(numbers)} lack the best_metric "
                f"{self.best_metric!r}: add it, name another one in "
                "Manager(best_metric=…), or pass keep_best=0"
            )
        return numbers

    def _ranked(self) -> list[int]:
        """The steps that have the metric, the best first."""
        sign = 1 if self.mode == "min" else -1
        found = []
        for step in self.all_steps():
            value = self.metrics(step).get(self.best_metric, math.nan)
            if not math.isnan(value):
                found.append((sign * value, -step))
        return [-step for _, step in sorted(found)]

    def _saved(self) -> list[Saved]:
        """The steps in ascending order, as policies see them."""
        return [
            Saved(step, commit.written(self.path(step)), self.metrics(step))
            for step in self.all_steps()
        ]

    def _clean(self) -> None:
        """Deletes the steps that are not to be kept."""
        if self.max_to_keep is None:
            return
        kept = {
            *self.all_steps()[-self.max_to_keep :],
            *self._ranked()[: self.keep_best],
            *(self._keep.of(self._saved()) if self._keep != Keep() else ()),
        }
        for step, name in self._folders().items():
            if step not in kept:
                commit.discard(os.path.join(self.directory, name))


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def _whole(name: str, value: Any, least: int) -> int:
    """A number of steps or checkpoints, of any type that counts.

    Raises:
      ValueError: if it is none.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(
            f"{name} is a whole number and at least {least}, not {value!r}"
        ) from None
    return number


def _exit(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
