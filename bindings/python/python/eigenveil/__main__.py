"""The command line: ``python -m eigenveil …`` or ``eigenveil …`` is the program of the Rust workspace."""

from __future__ import annotations

import os
import signal
import sys
import threading

from . import _core


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    # Ctrl-C ends a command, as it does without Python around it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = _core.run_line(["eigenveil", *sys.argv[1:]])
    sys.stdout.flush()
    return code


def serve_a_parent() -> int:
    """As :func:`main`, until standard input ends: its other end is of a process that may be killed at any time."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
    return main()


if __name__ == "__main__":
    sys.exit(main())
