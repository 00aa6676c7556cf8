"""The checkpoints of a run: saved in the background, the latest and the best kept."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

from treadle.checkpoint import commit, look, orbax_format, places, provenance, store
from treadle.checkpoint import manifest as manifests
from treadle.checkpoint.ending import Ending
from treadle.checkpoint.items import Items, as_json
from treadle.checkpoint.keep import Due, Keep, Saved
from treadle.checkpoint.manifest import DamagedError
from treadle.checkpoint.places import Place
from treadle.checkpoint.restore import How, restore
from treadle.checkpoint.save import Pending, take, write_items
from treadle.checkpoint.steps import Steps, whole
from treadle.checkpoint.store import Storage

T = TypeVar("T")


class Manager:
    """Keeps the checkpoints of a training run in one directory, a folder for each step.

    Saving returns as soon as the leaves are copied; the disk is written to in the
    background. Use it as a context manager: leaving it, also by an exception, SIGTERM
    or SIGHUP, waits until the last save is complete.

    Steps hold one pytree, or several `Items`.

    Plain Orbax reads the directory as that of its ``CheckpointManager``. Whatever else
    lies there, under a number too, is left alone.

    Args:
      directory: made with the first save; or a URL as ``s3://bucket/run``.
      max_to_keep: how many of the latest steps are kept; None for all.
      keep_best: how many of the best steps are kept besides.
      best_metric: which of the metrics tells how good a step is.
      mode: whether the best is the smallest ("min") or the largest ("max").
      keep_every_steps, keep_every_seconds: the multiples of a number of steps, and one
        step in so much time, are kept besides.
      keep: a function from all steps (a `Saved` each) to those that are kept besides.
      save_interval_steps, save_on_steps, save_interval_seconds, save_when: if one is
        given, only these steps are saved: the multiples of a number; some steps; the
        first one so much time after the last that was saved; those for which a function
        of the step and of the last one (a `Saved`, or None) says so.
      save_on_preemption: at SIGTERM or SIGHUP the step that is under way is finished:
        the next `save` is due, completed, and ends the program.
      metadata: of the whole run; anything that JSON holds. See `metadata`.
      step_prefix, step_format_fixed_length: how steps are named, as in Orbax's options:
        "ckpt" and 4 name step 7 ``ckpt_0007``. Steps of other lengths are found, too.
      storage: as in `save`: compression, chunk_bytes, file_bytes, max_bytes_in_flight.

    >>> with Manager("run", max_to_keep=2) as manager:
    ...     for step in range(4):
    ...         saved = manager.save(step, {"w": step}, {"loss": (step - 1) ** 2})
    >>> manager.all_steps(), manager.best_step(), manager.restore()
    ([1, 2, 3], 1, {'w': 3})
    """

    def __init__(
        self,
        directory: Place,
        *,
        max_to_keep: int | None = 3,
        keep_best: int = 1,
        best_metric: str = "loss",
        mode: Literal["min", "max"] = "min",
        keep_every_steps: int | None = None,
        keep_every_seconds: float | None = None,
        keep: Callable[[Sequence[Saved]], Iterable[int]] | None = None,
        save_interval_steps: int | None = None,
        save_on_steps: Iterable[int] = (),
        save_interval_seconds: float | None = None,
        save_when: Callable[[int, Saved | None], bool] | None = None,
        save_on_preemption: bool = False,
        metadata: Mapping[str, Any] | None = None,
        step_prefix: str | None = None,
        step_format_fixed_length: int | None = None,
        **storage: Unpack[Storage],
    ) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max', not {mode!r}")
        if max_to_keep is not None:
            max_to_keep = whole("max_to_keep", max_to_keep, least=1)
        if keep_every_steps is not None:
            keep_every_steps = whole("keep_every_steps", keep_every_steps, least=1)
        self._keep = Keep(keep_every_steps, keep_every_seconds, keep)
        interval = save_interval_steps
        if interval is not None:
            interval = whole("save_interval_steps", interval, 1)
        some = frozenset(save_on_steps)
        self._due = Due(interval, some, save_interval_seconds, save_when)
        self._storage = store.check_storage(storage)
        self._metadata = as_json("metadata", dict(metadata or {}))
        self.directory = places.absolute(directory)
        self._steps = Steps(self.directory, step_prefix, step_format_fixed_length)
        self.max_to_keep = max_to_keep
        self.keep_best = whole("keep_best", keep_best, least=0)
        self.best_metric, self.mode = best_metric, mode
        self._pending: Pending | None = None
        self._last: Saved | None = None
        self._ending = Ending(save_on_preemption)

    def save(
        self,
        step: int,
        tree: Any,
        metrics: Mapping[str, Any] | None = None,
        force: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Starts to save a pytree, or `Items`, as `step`, and says whether it did.

        It waits for the previous save first, and raises if that failed.

        Args:
          metrics: numbers that tell how good the step is.
          force: saves although the step is not due, or is saved already.
          metadata: of this step; anything that JSON holds.

        Returns:
          False if the step is not due, as the manager's options say.

        Raises:
          FileExistsError: if the step is saved already, or something that is not a
            checkpoint has its name.
          OSError: if the previous save failed.
          RuntimeError: in a forked process, where TensorStore does not work.
          SystemExit: when this is the last one, with ``save_on_preemption=True``.
        """
        store.check_process("save a checkpoint")
        step = whole("step", step, least=0)
        if not (force or self.preempted or self._is_due(step)):
            return False
        numbers = self._check_metrics(metrics)
        about = as_json("metadata", dict(metadata or {}))
        self.wait()
        path = self.path(step)
        commit.check_replaceable(path)
        exists = commit.exists(path)
        if exists and not force and not self.preempted:
            raise FileExistsError(
                f"step {step} is saved already in {self.directory}; pass force=True "
                "to replace it"
            )
        if not exists or force:
            items = (
                tree if isinstance(tree, Items) else Items({orbax_format.ITEM: tree})
            )
            taken = take(items, copy=True)
            # Asked here, not in the background: Python forgets a Ctrl-C that ended the
            # program if what is imported at its end compiles something.
            author = provenance.of_this_process()

            def fill(made: str) -> None:
                write_items(made, taken, self._storage, about, author, numbers)

            def work() -> None:
                commit.sweep(self.directory)
                self._write_root()
                commit.into(path, fill, overwrite=force)
                self._clean()

            self._pending = Pending(work, path)
            self._last = Saved(step, time.time(), numbers or {})
        if self._ending.noted is not None:
            self.wait()
            raise SystemExit(128 + self._ending.noted)
        return True

    @property
    def preempted(self) -> bool:
        """Whether the process was asked to end, with ``save_on_preemption=True``: the
        next `save` will be the last."""
        return self._ending.noted is not None

    def _is_due(self, step: int) -> bool:
        def latest() -> Saved | None:
            if self._last is None and (steps := self.all_steps()):
                self._last = self._saved_at(steps[-1])
            return self._last

        return self._due.of(step, latest, time.time())

    def _write_root(self) -> None:
        path = os.path.join(self.directory, orbax_format.ROOT)
        if self._metadata and self.metadata() != self._metadata:
            places.make_folder(os.path.dirname(path))
            content = {"internal_metadata": {}, "custom_metadata": self._metadata}
            manifests.write_json(path, content)

    def metadata(self, step: int | None = None) -> dict[str, Any]:
        """The metadata of a step; without one, those of the whole run, as they are in
        the folder.

        Raises:
          FileNotFoundError: if there is no such step.
          DamagedError: if they are damaged.
        """
        if step is not None:
            return look.metadata(self.path(step))
        try:
            found = manifests.read_json(os.path.join(self.directory, orbax_format.ROOT))
        except FileNotFoundError:
            return {}
        return dict(found.get("custom_metadata") or {})

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
            step = whole("step", step, least=0)
        self.wait()
        steps = self.all_steps()
        if step is None and not steps:
            raise FileNotFoundError(
                f"no step is saved in {self.directory}{self._steps.hint()}"
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
                look.verify(self.path(earlier), item=item)
            except (DamagedError, FileNotFoundError, ValueError):
                continue
            return earlier
        return None

    def path(self, step: int) -> str:
        """The folder of a step."""
        return self._steps.path(step)

    def delete(self, step: int) -> None:
        """Deletes a step.

        Raises:
          FileNotFoundError: if there is no such step.
        """
        self.wait()
        if step not in self._steps.folders():
            raise FileNotFoundError(f"step {step} is not in {self.directory}")
        commit.discard(self.path(step))

    def all_steps(self) -> list[int]:
        """The steps whose checkpoints are complete, in ascending order."""
        return sorted(self._steps.folders())

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
            self._ending.end()

    def __enter__(self) -> Manager:
        commit.sweep(self.directory)
        self._ending.begin()
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
        return [self._saved_at(step) for step in self.all_steps()]

    def _saved_at(self, step: int) -> Saved:
        return Saved(step, commit.written(self.path(step)), self.metrics(step))

    def _clean(self) -> None:
        """Deletes the steps that are not to be kept."""
        if self.max_to_keep is None:
            return
        kept = {
            *self.all_steps()[-self.max_to_keep :],
            *self._ranked()[: self.keep_best],
            *(self._keep.of(self._saved()) if self._keep != Keep() else ()),
        }
        for step, name in self._steps.folders().items():
            if step not in kept:
                commit.discard(os.path.join(self.directory, name))
