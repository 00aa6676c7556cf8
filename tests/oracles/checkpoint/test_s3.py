"""Checkpoints on a server that speaks S3."""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from tests.checkpoint.trees import assert_same, training_state
from treadle.checkpoint import (
    DamagedError,
    Items,
    Json,
    Manager,
    places,
    restore,
    save,
    verify,
)

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    # The server looks at the condition of a writing, and then writes: a store does both
    # at once.
    put, one_by_one = S3Response.put_object, threading.Lock()

    def put_object(self: S3Response) -> object:
        with one_by_one:
            return put(self)

    S3Response.put_object = put_object
    made = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    made.start()
    host, port = made.get_host_and_port()
    url = f"http://{host}:{port}"
    request = urllib.request.Request(f"{url}/bucket", method="PUT")
    urllib.request.urlopen(request).close()
    yield url
    made.stop()
    S3Response.put_object = put


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": server}).items():
        monkeypatch.setenv(name, value)
    return "s3://bucket"


def test_one(bucket: str) -> None:
    save(f"{bucket}/models/a", training_state(3))
    assert_same(restore(f"{bucket}/models/a", training_state(0)), training_state(3))
    with pytest.raises(FileExistsError):
        save(f"{bucket}/models/a", 1)
    save(f"{bucket}/models/a", {"x": 1}, overwrite=True)
    assert restore(f"{bucket}/models/a") == {"x": 1}
    with pytest.raises(FileNotFoundError, match="no commit_success"):
        restore(f"{bucket}/models")


def test_a_run_that_keeps_some(bucket: str) -> None:
    with Manager(f"{bucket}/run", max_to_keep=1, keep_every_steps=3) as manager:
        for step in range(6):
            items = Items(model={"w": np.full(9, step)}, config=Json({"step": step}))
            manager.save(step, items, {"loss": (step - 1) ** 2})
    again = Manager(f"{bucket}/run")
    assert again.all_steps() == [0, 1, 3, 5]
    assert (again.latest_step(), again.best_step()) == (5, 1)
    assert again.restore(item="config", step=3) == {"step": 3}
    data = next(n for n in places.below(f"{bucket}/run/5") if "/model/d/" in n)
    places.write(f"{bucket}/run/5/{data}", b"")
    with pytest.raises(DamagedError):
        verify(f"{bucket}/run/5")


KILLED = """
import os, sys
from treadle.checkpoint import objects, save
objects.publish = lambda *_, **__: os._exit(9)
save(sys.argv[1], {"x": 2}, overwrite=True)
"""


def test_killed_before_the_commit(bucket: str) -> None:
    save(f"{bucket}/killed/1", {"x": 1})
    for step in (1, 2):
        path = f"{bucket}/killed/{step}"
        done = subprocess.run([sys.executable, "-c", KILLED, path])
        assert done.returncode == 9
    manager = Manager(f"{bucket}/killed")
    assert manager.all_steps() == [1] and manager.restore() == {"x": 1}
    assert places.names(f"{bucket}/killed") == ["1", "2"]
    with manager:
        assert places.names(f"{bucket}/killed") == ["1"]
        manager.save(2, {"x": 2})
    assert manager.restore() == {"x": 2}


WRITER = """
import sys
import numpy as np
from treadle.checkpoint import save
try:
    save(sys.argv[1], {"x": np.full(200_000, int(sys.argv[2]))})
except FileExistsError:
    sys.exit(3)
"""


def test_two_writers(bucket: str) -> None:
    path = f"{bucket}/both"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(n)]) for n in (1, 2)
    ]
    codes = [writer.wait() for writer in writers]
    assert sorted(codes) == [0, 3]
    verify(path)
    assert (np.asarray(restore(path)["x"]) == codes.index(0) + 1).all()


def test_a_server_that_is_not_there(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    places._check_reachable.cache_clear()
    with pytest.raises(OSError, match=r"s3://elsewhere.*cannot be reached"):
        restore("s3://elsewhere/a")


def test_no_bucket(bucket: str) -> None:
    with pytest.raises(OSError, match=r"could not write|cannot be reached"):
        save("s3://nothing/a", {"x": 1})


class Refusing(BaseHTTPRequestHandler):
    """Answers as Amazon's server does to who may not come in."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_without_credentials(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=refusing.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{refusing.server_port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    message = r"s3://private.*cannot be reached.*403.*AWS_ACCESS_KEY_ID"
    for work in (
        lambda: restore("s3://private/a"),
        lambda: save("s3://private/a", {"x": 1}),
        lambda: Manager("s3://private/run").all_steps(),
    ):
        with pytest.raises(OSError, match=message):
            work()
    refusing.shutdown()
    refusing.server_close()
