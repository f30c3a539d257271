"""The notebook runs as it is committed."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.filterwarnings("default")
def test_first_hour():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    for needed in ("sklearn", "pandas", "matplotlib", "ipykernel"):
        pytest.importorskip(needed)
    notebook = nbformat.read(Path(__file__).parents[1] / "first-hour.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    local = float(said.split("local")[1].split()[0])
    assert local < 0.6 and "claim holds: True" in said
    assert any("text/html" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
