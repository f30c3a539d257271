"""A server that all tests share, and the wines."""

from __future__ import annotations

import csv
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import eigenveil

EXAMPLES = Path(__file__).parents[3] / "examples" / "data"


@pytest.fixture(scope="session")
def server() -> Iterator[eigenveil.Server]:
    with eigenveil.serve() as server:
        yield server


@pytest.fixture(scope="session")
def analyst(server: eigenveil.Server) -> eigenveil.Analyst:
    return server.analyst()


_numbers = itertools.count()


@pytest.fixture
def study(analyst: eigenveil.Analyst) -> Callable[..., eigenveil.Study]:
    """Creates a study of three features (or others) under a name of its own."""

    def create(**settings: object) -> eigenveil.Study:
        if "dimension" not in settings:
            settings.setdefault("features", ["a", "b", "c"])
        settings.setdefault("epsilon", 4)
        return analyst.create_study(f"study {next(_numbers)}", **settings)  # type: ignore[arg-type]

    return create


@pytest.fixture
def press_ctrl_c() -> Iterator[Callable[[float], list[float]]]:
    """Presses Ctrl-C after so many seconds; when it did is in the list. SIGINT is ignored in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press_after(seconds: float) -> list[float]:
        pressed: list[float] = []

        def press() -> None:
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(seconds, press).start()
        return pressed

    yield press_after
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def wines() -> tuple[list[str], np.ndarray]:
    """Names and numbers (178 × 13) of the wines, without the cultivar."""
    with open(EXAMPLES / "wine.csv", newline="") as file:
        names, *rows = csv.reader(file)
    return names[:-1], np.array(rows, dtype=float)[:, :-1]


@pytest.fixture(scope="session")
def wine_features() -> list[dict[str, object]]:
    with open(EXAMPLES / "wine_features.csv", newline="") as file:
        return [{**line, "center": float(line["center"]), "scale": float(line["scale"])} for line in csv.DictReader(file)]
