"""The command line: ``python -m eigenveil …`` or ``eigenveil …`` is the program of the Rust workspace."""

from __future__ import annotations

import signal
import sys

from . import _core


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    # Ctrl-C ends a command, as it does without Python around it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    code = _core.run_line(["eigenveil", *sys.argv[1:]])
    sys.stdout.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
