"""The notebooks run as they are committed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import eigenveil

ROOT = Path(__file__).parents[3]


def _cells(path: Path, folder: Path) -> list:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    for needed in ("sklearn", "pandas", "matplotlib", "ipykernel"):
        pytest.importorskip(needed)
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook.cells


def _said(cells: list) -> str:
    return "".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))


@pytest.mark.filterwarnings("default")
def test_first_hour(tmp_path):
    cells = _cells(ROOT / "bindings/python/first-hour.ipynb", tmp_path)
    said = _said(cells)
    local = float(said.split("local")[1].split()[0])
    assert local < 0.6 and "claim holds: True" in said
    assert any("text/html" in output.get("data", {}) for cell in cells for output in cell.get("outputs", []))


@pytest.mark.filterwarnings("default")
def test_the_notebook_of_an_estimates_page(tmp_path):
    """It stands beside the estimate's document, with its moment or without."""
    rows = np.random.default_rng(1).normal(size=(20_000, 4)) * [3, 2, 1, 1]
    for settings, word in [({}, "[["), ({"observed": 0.9}, "moment")]:
        fit = eigenveil.LocalDPPCA(2, 8, random_state=1, **settings).fit(rows)
        fit.estimate_.save(tmp_path / "estimate.json")
        assert word in _said(_cells(ROOT / "server/src/pages/assets/estimate.ipynb", tmp_path))
