"""The tables that every binding reads."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from pathlib import Path

import numpy as np
import pytest

import eigenveil
from eigenveil import _rows, errors

TABLES = Path(__file__).parents[2] / "conformance"
CELLS = json.loads((TABLES / "cells.json").read_text(encoding="utf-8"))
PERSONS = json.loads((TABLES / "persons.json").read_text(encoding="utf-8"))
STUDIES = json.loads((TABLES / "studies.json").read_text())
UPLOADS = json.loads((TABLES / "uploads.json").read_text())
ANSWERS = [case for case in json.loads((TABLES / "answers.json").read_text()) if not case["batch"]]


def test_cells(caplog):
    frames = [pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow")]
    frames = [frames[0].DataFrame, frames[1].DataFrame, frames[2].table]
    for case in CELLS:
        names = [f"a={category}" for category in case.get("categories", [])] or ["a"]
        wanted = case["is"] if isinstance(case["is"], list) else [case["is"]] * len(names)
        wanted = [np.nan if isinstance(number, str) else number for number in wanted]
        unread = case["is"] == "unreadable" or ("categories" in case and sum(wanted) == 0)
        for frame in frames:
            caplog.clear()
            read = _rows.table(frame({"b": [1.0], "a": [case["cell"]]}), expected=[*names, "b"])
            found = _rows.ordered(read, [*names, "b"], "study X", reports=True)
            np.testing.assert_array_equal(found, [[*wanted, 1.0]], case["cell"])
            assert bool(caplog.records) == unread, case


def test_persons(study, tmp_path):
    pandas, made = pytest.importorskip("pandas"), study(dimension=2)
    for number, case in enumerate(PERSONS):
        rows = np.ones((len(case["labels"]), 2))
        for labels in (case["labels"], pandas.Series(case["labels"], dtype=object)):
            path = tmp_path / f"{number} {type(labels).__name__}"
            if "refused" in case:
                with pytest.raises(errors.InputError, match=f"row {case['refused']} ") as refused:
                    eigenveil.report(made, rows, persons=labels, ledger=path)
                assert refused.value.code == "wrong-persons" and not path.exists()
            else:
                done = eigenveil.report(made, rows, persons=labels, ledger=path)
                assert done.participants == max(case["persons"]) + 1, case


@pytest.mark.parametrize("case", STUDIES, ids=lambda case: case["name"])
def test_studies(case, tmp_path):
    try:
        study = eigenveil.Study.from_document(json.dumps(case["document"]), "http://localhost", case.get("pinned"))
    except errors.EigenveilError as error:
        assert error.code == case["code"]
        return
    assert case["code"] is None
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        try:
            assert ledger.take_part(study, np.ones(study.dimension)).new
            refused = None
        except errors.EigenveilError as error:
            refused = error.code
        assert refused == case["take_part"]


class _Answering(http.server.BaseHTTPRequestHandler):
    """Answers every report as `case` says, and has one study."""

    case: dict = {}
    document: dict = {}
    posts = 0

    def do_GET(self):
        document = self.document
        summary = {key: document.get(key) for key in ("id", "name", "state", "fingerprint", "reports_accepted", "created_at_ms")}
        summary["dimension"] = document["params"]["preprocessing"]["dimension"]
        summary |= {key: document["privacy"][key] for key in ("mechanism", "epsilon", "delta")}
        body = json.dumps(document if "/studies/" in self.path else {"studies": [summary]}).encode()
        self.send_response_only(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        type(self).posts += 1
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response_only(self.case["status"])
        for name, value in self.case["headers"].items():
            self.send_header(name, value)
        body = self.case["body"].encode()
        if self.case["status"] != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def answering():
    with http.server.HTTPServer(("127.0.0.1", 0), _Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case["name"])
def test_answers(case, answering, tmp_path):
    _Answering.case = case
    study = eigenveil.Study.from_document(STUDIES[0]["document"], answering)
    once = eigenveil.Connection(retry_for=0)
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.take_part(study, np.ones(study.dimension))
        sent = ledger.send(connection=once)
        (expected,) = case["expect"]
        found = {"accepted": sent.accepted, "duplicate": sent.duplicates, "pending": sent.pending, "refused": sent.refused}
        assert [name for name, count in found.items() if count] == [expected.split(":")[0]]
        assert [failure["code"] for failure in sent.failures] == ([case["error"]] if case["error"] else [])
        state = ledger.receipt().studies[0]["state"]
        if expected.startswith("refused:"):
            assert state["refused"]["code"] == expected.split(":")[1]


def _batch_of_one(**counts):
    receipt = {"accepted": 0, "duplicates": 0, "refused": [], **counts}
    return {"status": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(receipt)}


@pytest.mark.parametrize("case", UPLOADS, ids=lambda case: case["name"])
def test_uploads(case, answering, tmp_path):
    document, rows = STUDIES[0]["document"], np.ones((3, 2))
    path, once = tmp_path / "rows.ledger", eigenveil.Connection(retry_for=0)

    def kept():
        return {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    if case["earlier"] is not None:
        refused = _batch_of_one(refused=[{"index": 0, "code": case["earlier"], "detail": "No."}])
        _Answering.case = {"status": 503, "headers": {}, "body": ""} if case["earlier"] == "pending" else refused
        there = eigenveil.Study.from_document(document, "http://127.0.0.1:9" if "elsewhere" in case else answering)
        with contextlib.suppress(errors.ServerError):
            eigenveil.report(there, rows, ledger=path, connection=once)
    before = kept()
    _Answering.case, _Answering.posts = _batch_of_one(accepted=1), 0
    _Answering.document = {**document, **case["study"]}
    if "called" in case:
        study = eigenveil.Study.fetch(answering, case["called"])
    else:
        study = eigenveil.Study.from_document(_Answering.document, answering)
    try:
        eigenveil.report(study, rows, ledger=path, connection=once, **case["ask"])
        code = None
    except errors.EigenveilError as error:
        code = error.code
    # So small an upload has one report a request.
    assert (code, _Answering.posts) == (case["refused"], case["sent"])
    if code is not None:
        assert kept() == before
