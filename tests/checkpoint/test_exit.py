"""However a program ends, a step is complete or it is not there."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from treadle.checkpoint import Manager, restore, save_async

START = """
import os, signal, sys, threading, time
import numpy as np
from treadle.checkpoint import Manager, commit, save, save_async, store

directory, size = sys.argv[1], int(sys.argv[2])
# Who runs the tests in the background of a shell, or under nohup, has these ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def tree(step):
    return {"a": np.full(size, step), "b": [np.full(size, step)] * 3, "step": step}

def soon(number):
    threading.Timer(0.2, os.kill, (os.getpid(), number)).start()

def slowly(write):
    def slow(*args):
        time.sleep(0.5)
        write(*args)
    return slow
"""


def start(body: str, directory: Path, size: int = 1000) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + body, str(directory), str(size)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_steps(directory: Path) -> list[int]:
    """Every step that is there is whole, and is what was saved."""
    manager = Manager(directory)
    for step in manager.all_steps():
        found = manager.restore(step=step)
        assert found["step"] == step
        for array in (found["a"], *found["b"]):
            assert (np.asarray(array) == step).all()
    return manager.all_steps()


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.slow),
        pytest.param("raise KeyError('bug')", 1, marks=pytest.mark.slow),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -signal.SIGINT),
    ],
    ids=["end", "exit", "exception", "interrupt"],
)
def test_a_save_without_a_manager_is_not_lost(
    tmp_path: Path, ending: str, code: int
) -> None:
    body = "store.write = slowly(store.write)\n"
    body += "save_async(directory, tree(1))\n" + ending
    process = start(body, tmp_path / "a")
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == code, errors
    assert restore(tmp_path / "a")["step"] == 1


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.slow),
        pytest.param("raise KeyError('bug')", 1, marks=pytest.mark.slow),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", 128 + signal.SIGTERM),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGHUP); time.sleep(5)",
            128 + signal.SIGHUP,
            marks=pytest.mark.slow,
        ),
        ("soon(signal.SIGINT); manager.wait()", -signal.SIGINT),
    ],
    ids=["end", "exit", "exception", "terminate", "hang-up", "interrupt"],
)
def test_a_save_of_a_manager_is_not_lost(
    tmp_path: Path, ending: str, code: int
) -> None:
    body = "store.write = slowly(store.write)\n"
    body += "with Manager(directory) as manager:\n"
    body += f"    manager.save(1, tree(1))\n    {ending or 'pass'}\n"
    process = start(body, tmp_path)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == code, errors
    assert check_steps(tmp_path) == [1]


def test_a_save_at_exit_is_not_lost(tmp_path: Path) -> None:
    body = "import atexit\natexit.register(lambda: save_async(directory, tree(1)))"
    process = start(body, tmp_path / "a")
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors
    assert restore(tmp_path / "a")["step"] == 1


@pytest.mark.parametrize(
    "begin",
    ["save_async(directory + '/1', tree(1))", "Manager(directory).save(1, tree(1))"],
)
def test_a_save_of_a_daemon_thread_is_not_lost(tmp_path: Path, begin: str) -> None:
    body = "store.write = slowly(store.write)\n"
    body += f"thread = threading.Thread(target=lambda: {begin}, daemon=True)\n"
    body += "thread.start(); thread.join()"
    process = start(body, tmp_path)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors
    assert Manager(tmp_path).all_steps() == [1]
    assert Manager(tmp_path).restore()["step"] == 1


FORK = """
manager = Manager(directory)
manager.save(1, tree(1))
manager.wait()
store.write = slowly(store.write)
manager.save(2, tree(2))
child = os.fork()
if child == 0:
    signal.alarm(20)
    refused = 0
    for call in (
        lambda: save(directory + "/a", tree(1)),
        lambda: save_async(directory + "/a", tree(1)),
        lambda: Manager(directory).save(3, tree(1)),
        lambda: Manager(directory).restore(),
        lambda: manager.save(3, tree(1)),
        lambda: manager.wait(),
    ):
        try:
            call()
        except RuntimeError as error:
            refused += "in a forked process" in str(error) and "spawn" in str(error)
    os._exit(refused)
assert os.waitpid(child, 0)[1] == 6 << 8
manager.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    process = start(FORK, tmp_path)
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == 0, errors
    assert check_steps(tmp_path) == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_several_at_once(tmp_path: Path) -> None:
    saving = [save_async(tmp_path / str(i), {"i": i}) for i in range(5)]
    for each in saving:
        each.wait()
    assert [restore(tmp_path / str(i))["i"] for i in range(5)] == list(range(5))


RUN = """
with Manager(directory, max_to_keep=2) as manager:
    first = (manager.latest_step() or 0) + 1
    for step in range(first, 10**6):
        manager.save(step, tree(step), {"loss": step % 7})
        if step == first:
            manager.wait()
            print(flush=True)
"""

REPLACE = """
save(directory, tree(0), overwrite=True)
print(flush=True)
for step in range(10**6):
    save(directory, tree(step), overwrite=True)
"""


def kill_during(body: str, directory: Path, delay: float) -> None:
    process = start(body, directory, size=20_000)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)


def killed_runs(directory: Path, count: int) -> None:
    """Runs that are killed and resumed: no step is lost, none is half there."""
    choose = random.Random(count)
    latest = 0
    for _ in range(count):
        kill_during(RUN, directory, choose.uniform(0, 0.2))
        steps = check_steps(directory)
        assert steps[-1] > latest
        latest = steps[-1]
    with Manager(directory, max_to_keep=2) as manager:
        manager.save(10**6, {"step": 0})
    assert all(name.name.isdecimal() for name in directory.iterdir())


def killed_replacements(path: Path, count: int) -> None:
    """A checkpoint that is being replaced is the old one or the new one."""
    choose = random.Random(count)
    for _ in range(count):
        kill_during(REPLACE, path, choose.uniform(0, 0.2))
        found = restore(path)
        for array in (found["a"], *found["b"]):
            assert (np.asarray(array) == found["step"]).all()


def test_killed_runs(tmp_path: Path) -> None:
    killed_runs(tmp_path, 3)


def test_killed_replacements(tmp_path: Path) -> None:
    killed_replacements(tmp_path / "a", 3)


@pytest.mark.slow
def test_many_killed_runs(tmp_path: Path) -> None:
    killed_runs(tmp_path, 60)


@pytest.mark.slow
def test_many_killed_replacements(tmp_path: Path) -> None:
    killed_replacements(tmp_path / "a", 60)


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs a small file system")
@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        manager = Manager(disk, max_to_keep=None)
        manager.save(1, {"x": np.ones(500_000)})
        manager.wait()
        manager.save(2, {"x": np.ones(800_000)})
        with pytest.raises(OSError, match="could not write"):
            manager.wait()
        assert manager.all_steps() == [1]
        assert np.asarray(manager.restore()["x"]).all()
        assert [p.name for p in disk.iterdir()] == ["1"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
