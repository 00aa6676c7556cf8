"""The `treadle` command begins here, outside of the package: importing that takes a
while, in which Ctrl-C must not give a traceback."""

from __future__ import annotations

import importlib
import signal
import sys

_INTERRUPTED = 130


def main() -> int:
    """Runs the command line, and returns the exit status."""
    try:
        cli = importlib.import_module("treadle.recipes.cli")
    except KeyboardInterrupt:
        print("treadle: interrupted", file=sys.stderr)
        return _INTERRUPTED
    status: int = cli.main()
    # All is saved: from here on Ctrl-C ends the process, and interrupts no ending.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status
