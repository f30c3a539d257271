"""A server for notebooks and tests: the real one, as a process of its own."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from typing import NoReturn

from ._analyst import Analyst
from .errors import ServerError

_log = logging.getLogger("eigenveil")
_STOP_WITHIN = 15.0


class Server:
    """A server that this process started. Made by :func:`serve`.

    Attributes
    ----------
    url : str
        Where it listens.
    token : str
        The operator's.
    data : str
        Its folder.
    """

    url: str
    token: str
    data: str
    _temporary: bool

    def __init__(self, process: subprocess.Popen[str] | None = None, *_: object, **own: str | bool) -> None:
        if not isinstance(process, subprocess.Popen):
            raise TypeError("a server is started by eigenveil.serve(); one that runs already is Analyst(url, token)")
        self._process, self._owner = process, os.getpid()
        vars(self).update(own)
        atexit.register(self.stop)

    def analyst(self) -> Analyst:
        """Its operator."""
        return Analyst(self.url, self.token)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def stop(self) -> None:
        """Stops it, as SIGTERM does: what was acknowledged is on the disk. In a forked process it does nothing."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        _end(self._process)
        _log.info("stopped the server at %s", self.url)
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Server is a process that this one started, and is not pickled: pass its url")

    def __repr__(self) -> str:
        return f"Server({self.url!r}, data={self.data!r})"


def serve(data: str | os.PathLike[str] | None = None, *, listen: str = "127.0.0.1:0") -> Server:
    """Starts a server as a process of its own; use it in ``with``, or call :meth:`Server.stop`.

    It ends with the process that started it, also if that is killed: a temporary folder then stays. Raises
    ``ServerError`` if it cannot start; the sentence says why.

    Parameters
    ----------
    data : path, optional
        Its folder, made if it is not there. By default a temporary one, which is removed at the end.
    listen : str
        Address and port; by default a free port, for this machine only.

    Examples
    --------
    >>> import eigenveil
    >>> with eigenveil.serve() as server:
    ...     server.analyst().studies()
    []
    """
    where = tempfile.mkdtemp(prefix="eigenveil-") if data is None else os.fspath(data)
    code = "import sys, eigenveil.__main__ as program; sys.exit(program.serve_a_parent())"
    words = [sys.executable, "-c", code, "serve", "--data", where, "--listen", listen, "--json"]
    log = tempfile.TemporaryFile("w+")
    # A group of its own: Ctrl-C in a notebook is not for the server.
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            process.wait(_STOP_WITHIN)
            log.seek(0)
            why = log.read().strip().removeprefix("error: ")
            raise ServerError(why or "the server ended without a word", "cannot-start")
        said = json.loads(line)
        with open(said["token_file"], encoding="utf-8") as file:
            token = file.read().strip()
        _log.info("started a server at %s with its data in %s", said["listening"], where)
        return Server(process, url=said["listening"], token=token, data=where, _temporary=data is None)
    except BaseException:
        _end(process)
        if data is None:
            shutil.rmtree(where, ignore_errors=True)
        raise
    finally:
        log.close()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
