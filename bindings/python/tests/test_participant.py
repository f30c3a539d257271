"""A device and a program with a table take part in studies of a real server."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import eigenveil
from eigenveil import errors

ROW = np.array([1.0, 2.0, 3.0])


def test_a_device_takes_part_once(study, analyst, tmp_path):
    made = study(purpose="To see", last_day="2099-12-31")
    fetched = eigenveil.Study.fetch(made.url, made.id, made.fingerprint.upper())
    fetched.feature_names.append("d")
    fetched.about.clear()
    assert fetched.feature_names == ["a", "b", "c"] and fetched.about["purpose"] == "To see"
    assert list(fetched.about) == ["purpose", "responsible_party", "contact", "last_day"]
    assert fetched.privacy["claim_holds"] and fetched.epsilon == 4 and fetched.is_open
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        first = ledger.take_part(fetched, {"c": 3, "a": 1.0, "b": np.float32(2)})
        again = ledger.take_part(fetched, ROW)
        assert first.new and not again.new and first.report == again.report and first.local_warning is None
        sent = ledger.send()
        assert (sent.accepted, sent.pending, sent.failures) == (1, 0, [])
        assert ledger.take_part(fetched, ROW).state == "acknowledged"
        assert (ledger.send().accepted, analyst.reports_accepted(made)) == (0, 1)
        receipt = ledger.receipt()
        assert "To see" in str(receipt) and 4 <= receipt.spent["epsilon"] < 4.001
    with pytest.raises(errors.InputError, match="closed"):
        ledger.receipt()


def test_a_wrong_fingerprint_and_a_changed_document_are_refused(study):
    made = study()
    with pytest.raises(errors.StudyError) as refused:
        eigenveil.Study.fetch(made.url, made.id, "0" * 64)
    assert refused.value.code == "wrong-fingerprint"
    with pytest.raises(errors.StudyError) as refused:
        eigenveil.Study.fetch(made.url, "f" * 32)
    assert refused.value.code == "study-not-found" and refused.value.values["status"] == 404
    document = json.load(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}"))
    assert eigenveil.Study.from_document(document, made.url).fingerprint == made.fingerprint
    assert eigenveil.Study.from_document(json.dumps(document).encode(), made.url).id == made.id
    # Noise that does not keep the budget: one digit of the canonical bytes.
    for place in range(0, len(document["canonical_params"]), 97):
        digits = list(document["canonical_params"])
        digits[place] = "0" if digits[place] != "0" else "1"
        with pytest.raises(errors.EigenveilError):
            eigenveil.Study.from_document({**document, "canonical_params": "".join(digits)}, made.url)
    for hostile in ["", "[]", "{}", "null", b"\xff\xfe", '{"id": 1e999}', "[" * 100_000]:
        with pytest.raises(errors.EigenveilError):
            eigenveil.Study.from_document(hostile, made.url)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ([1.0, 2.0], "wrong-dimension"),
        ([[1.0, 2.0, 3.0]], "wrong-dimension"),
        (7.0, "wrong-dimension"),
        (np.zeros(1_000_000), "wrong-dimension"),
        (np.array([1j, 2, 3]), "invalid-dtype"),
        (np.array(["2024-01-01"] * 3, dtype="M8[D]"), "invalid-dtype"),
        ({"a": 1, "b": 2}, "wrong-names"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "wrong-names"),
        ({}, "wrong-names"),
    ],
)
def test_a_row_of_another_shape_or_kind_is_not_charged(study, tmp_path, row, code):
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        with pytest.raises(errors.InputError) as refused:
            ledger.take_part(study(), row)
        assert refused.value.code == code
        assert ledger.receipt().studies == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None, 10**400, "x", [2], 1j])
def test_an_unusable_row_takes_part_as_the_zero_row(study, tmp_path, bad):
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        done = ledger.take_part(study(), [1.0, bad, 3.0])
        assert done.new and "not" in done.local_warning


def test_integers_booleans_float32_strides_and_read_only_memory_are_numbers(study, tmp_path):
    frozen = ROW.copy()
    frozen.flags.writeable = False
    rows = [frozen, ROW.astype("f4"), [True, False, True], np.arange(6.0)[::2], ROW.astype(">f8"), [1, "2", b"3"]]
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.set_limits(epsilon_total=100)
        for row in rows:
            assert ledger.take_part(study(), row).local_warning is None


def test_limits_hold_and_say_so(study, tmp_path):
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.set_limits(epsilon_total=5)
        ledger.take_part(study(), ROW)
        with pytest.raises(errors.LedgerError, match="5 in total") as refused:
            ledger.take_part(study(), ROW)
        assert refused.value.code == "budget-exceeded"
        with pytest.raises(errors.InputError):
            ledger.set_limits(epsilon_total=float("nan"))


def test_a_ledger_in_use_lost_or_damaged_is_refused(tmp_path):
    path = tmp_path / "device.ledger"
    with pytest.raises(errors.LedgerError) as refused:
        eigenveil.Ledger(path, existing=True)
    assert refused.value.code == "file"
    with eigenveil.Ledger(path):
        with pytest.raises(errors.LedgerError) as refused:
            eigenveil.Ledger(path)
        assert refused.value.code == "locked"
    (tmp_path / "other").write_bytes(b"no ledger" * 100)
    with pytest.raises(errors.LedgerError):
        eigenveil.Ledger(tmp_path / "other")


def test_threads_share_a_ledger_and_take_part_once(study, tmp_path):
    made, done = study(), []
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        threads = [threading.Thread(target=lambda: done.append(ledger.take_part(made, ROW))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(part.new for part in done) == 1 and len({part.report for part in done}) == 1


def test_columns_that_cannot_be_matched_are_refused_by_name(study, tmp_path):
    pandas = pytest.importorskip("pandas")
    made, cells = study(), np.ones((2, 3))
    for columns, word in [
        (["a", "b", 3], "text"),
        (["a", "b", "b"], "two columns"),
        (["a", "b", "d"], "lacks 'c'"),
        (["A", "b", "c"], "'A'"),
    ]:
        with pytest.raises(errors.InputError, match=word) as refused:
            eigenveil.report(made, pandas.DataFrame(cells, columns=columns), ledger=tmp_path / "rows.ledger")
        assert refused.value.code == "wrong-names"


def _use(use, queue):
    try:
        queue.put(repr(use()))
    except eigenveil.errors.LedgerError as error:
        queue.put(error.code)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_ledger_is_of_no_use_in_a_forked_process(study, tmp_path):
    fork = multiprocessing.get_context("fork")
    made, queue = study(), fork.Queue()
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:

        def child_uses(use):
            child = fork.Process(target=_use, args=(use, queue))
            child.start()
            said = queue.get(timeout=20)
            child.join(20)
            return said

        assert child_uses(lambda: ledger.take_part(made, ROW)) == "file"
        assert ledger.take_part(made, ROW).new
        assert child_uses(ledger.send) == "file"
        assert ledger.send().accepted == 1


def test_requests_work_after_a_fork(study):
    made = study()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if eigenveil.Study.fetch(made.url, made.id).id == made.id else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_offline_and_a_lost_answer_count_once(study, analyst, tmp_path):
    """The first server takes the report and drops the connection instead of answering."""
    made = study()
    relay = socket.create_server(("127.0.0.1", 0))
    host, port = made.url.removeprefix("http://").split(":")

    def serve_once():
        client, _ = relay.accept()
        relay.close()
        with client, socket.create_connection((host, int(port))) as upstream:
            request = b""
            while b"\r\n\r\n" not in request or len(request.split(b"\r\n\r\n", 1)[1]) < 74:
                request += client.recv(65536)
            upstream.sendall(request)
            upstream.recv(65536)

    document = json.load(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}"))
    moved = eigenveil.Study.from_document(document, f"http://127.0.0.1:{relay.getsockname()[1]}")
    once = eigenveil.Connection(retry_for=0, timeout=5)
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.take_part(moved, ROW)
        thread = threading.Thread(target=serve_once)
        thread.start()
        lost = ledger.send(connection=once)
        thread.join()
        assert lost.pending == 1 and lost.failures[0]["retryable"]
        offline = ledger.send(connection=once)
        assert offline.pending == 1 and offline.failures[0]["code"] == "no-answer"
        ledger.accept_move(made)
        assert ledger.send().duplicates == 1
    assert analyst.reports_accepted(made) == 1


def test_tokens(study, analyst, tmp_path):
    made = study(enrolment="token")
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.take_part(made, ROW)
        assert ledger.send().failures[0]["code"] == "token-required"
        (token,) = analyst.tokens(made, 1)
        assert ledger.set_token(made, token)
        assert ledger.send().accepted == 1
        other = study(enrolment="token")
        for wrong in ("no token", token[:-1], 5, b"0" * 64, [token]):
            for use in (lambda: ledger.set_token(made, wrong), lambda: ledger.take_part(other, ROW, token=wrong)):
                with pytest.raises(errors.InputError) as refused:
                    use()
                assert token[:-1] not in str(refused.value)
            with pytest.raises(errors.InputError):
                eigenveil.report(other, [ROW], tokens=[wrong], ledger=tmp_path / "rows.ledger")
        assert len(ledger.receipt().studies) == 1 and not (tmp_path / "rows.ledger").exists()
        ledger.take_part(other, ROW, token=analyst.tokens(other, 1)[0])
        assert ledger.send().accepted == 1
    assert analyst.token_counts(made) == {"issued": 1, "spent": 1}


def test_a_report_is_given_up_before_it_is_acknowledged(study, analyst, tmp_path):
    made = study(enrolment="token")
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.take_part(made, ROW)
        done = ledger.give_up(made.name)
        assert (done.study, done.given_up, done.acknowledged) == (made.id, 1, 0) and done.epsilon >= 4
        assert "may have one already" in str(done)
        assert ledger.take_part(made, ROW).state == "given-up" and not ledger.set_token(made, "0" * 64)
        assert ledger.send().pending == 0 and ledger.receipt().spent["epsilon"] >= 4
        with pytest.raises(errors.StudyError):
            ledger.give_up("nothing")
    path, tokens = tmp_path / "rows.ledger", analyst.tokens(made, 2)
    wrong = ["0" * 64, "1" * 64]
    assert eigenveil.report(made, [ROW, ROW], tokens=wrong, ledger=path).refused == 2
    assert eigenveil.give_up(path, made).given_up == 2
    again = eigenveil.report(made, [ROW, ROW], tokens=tokens, resend_refused=True, ledger=path)
    assert (again.accepted, again.refused, again.given_up) == (0, 0, 2)
    assert analyst.reports_accepted(made) == 0 and "given up: 2 reports" in str(eigenveil.receipt(path))


def test_a_table_is_reported_once_whatever_holds_it(study, analyst, tmp_path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    numbers = np.random.default_rng(1).normal(size=(200, 3))
    named = {name: numbers[:, place] for place, name in enumerate("abc")}
    turned = {name: named[name] for name in "cab"}
    holders = [
        numbers,
        np.asfortranarray(numbers),
        pandas.DataFrame(named),
        pandas.DataFrame(turned),
        polars.DataFrame(turned),
        pyarrow.table(turned),
    ]
    made, seen = study(), []
    for rows in holders:
        done = eigenveil.report(
            made, rows, ledger=tmp_path / "rows.ledger", progress=lambda done, total: seen.append((done, total))
        )
        assert (done.participants, done.acknowledged, done.pending) == (200, 200, 0)
    assert done.prepared == 0 and analyst.reports_accepted(made) == 200
    assert seen[-1] == (400, 400)
    assert eigenveil.receipt(tmp_path / "rows.ledger").studies[0]["rows"] == 200
    with pytest.raises(errors.LedgerError) as refused:
        eigenveil.report(made, numbers + 1, ledger=tmp_path / "rows.ledger")
    assert refused.value.code == "rows-changed" and "--" not in str(refused.value)
    other = study()
    with pytest.raises(errors.LedgerError, match="these rows differ.* same_participants=True") as refused:
        eigenveil.report(other, numbers + 1, ledger=tmp_path / "rows.ledger")
    assert refused.value.code == "other-rows"
    with pytest.raises(errors.LedgerError) as refused:
        eigenveil.report(made, numbers + 1, same_participants=True, ledger=tmp_path / "rows.ledger")
    assert refused.value.code == "rows-changed"
    done = eigenveil.report(other, numbers + 1, same_participants=True, ledger=tmp_path / "rows.ledger")
    assert done.accepted == 200


def test_missing_cells_of_pandas_and_polars_are_missing(study, tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    features = [{"name": name, "observed": 0.8} for name in "abc"]
    frames = [
        pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64"), "b": [1.0, 2.0], "c": [True, False]}),
        polars.DataFrame({"a": [1, None], "b": [1.0, 2.0], "c": [True, False]}),
    ]
    for number, frame in enumerate(frames):
        done = eigenveil.report(study(features=features), frame, ledger=tmp_path / f"{number}.ledger")
        assert (done.accepted, done.unusable) == (2, 0)
        done = eigenveil.report(study(), frame, ledger=tmp_path / f"{number}.ledger")
        assert (done.accepted, done.unusable) == (2, 1)


def test_most_of_20_cells_refuse_a_column_and_nothing_else_does(study, tmp_path, caplog):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "rows.ledger"

    def report(cells, persons=None):
        rows = range(len(cells))
        frame = pandas.DataFrame({"a": cells, "b": rows, "c": rows})
        return eigenveil.report(study(), frame, ledger=path, persons=persons)

    infinite = [np.inf] * 11 + [1.0] * 10
    for cells in (["x"] * 20, ["x"] * 11 + ["1"] * 10, ["x"] * 20 + [None] * 10, infinite):
        with pytest.raises(errors.InputError, match=r"column 1 \(a\)") as refused:
            report(cells)
        assert refused.value.code == "invalid-dtype" and not path.exists()
    sent = [(["x"] * 19, 19), (["987654", "x"] * 10, 10), (["x"] * 19 + ["NA"] * 9, 28), (["x"] * 33, 33)]
    for cells, unusable in [*sent, ([-np.inf] * 19, 19), ([np.inf, 987654.0] * 10, 10), ([np.inf] * 33, 33)]:
        path.unlink(missing_ok=True)
        caplog.clear()
        assert report(cells, persons=list(range(33)) if len(cells) == 33 else None).unusable == unusable
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert any(f"by column: a: {unusable}" in line for line in said) and not any("987654" in line for line in said)
    path.unlink()
    smoker = [{"name": name} for name in ("smoker=no", "smoker=yes", "b")]
    for cells, column in ((["Yes", "No"] * 10, "smoker"), ([True, False] * 10, "smoker")):
        frame = pandas.DataFrame({"smoker": cells, "b": range(20)})
        with pytest.raises(errors.InputError, match='"no", "yes"; they are "(No|false)", "(Yes|true)"'):
            eigenveil.report(study(features=smoker), frame, ledger=path)
    frame = pandas.DataFrame({"b": range(20), "smoker": ["yes", "no"] * 10})
    assert eigenveil.report(study(features=smoker), frame, ledger=path).unusable == 0


def test_a_study_made_again_under_its_name_is_charged_only_by_its_identifier(analyst, tmp_path):
    ledger = tmp_path / "rows.ledger"

    def report(called):
        made = eigenveil.Study.fetch(analyst.url, called)
        return eigenveil.report(made, np.ones((3, 2)), ledger=ledger).prepared

    first = analyst.create_study("made again", dimension=2, epsilon=4)
    assert [report("made again"), report(first.id[:8])] == [3, 0]
    analyst.close(first)
    analyst.delete(first)
    second = analyst.create_study("made again", dimension=2, epsilon=4)
    with pytest.raises(errors.LedgerError) as refused:
        report("made again")
    assert refused.value.code == "already-participated"
    assert first.id in str(refused.value) and second.id in str(refused.value)
    assert len(eigenveil.receipt(ledger).studies) == 1
    # Whoever gives the whole identifier means it.
    assert [report(second.id), report("made again")] == [3, 0]


def test_persons_and_weights(study, analyst, tmp_path):
    numbers = np.random.default_rng(1).normal(size=(6, 3))
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(numbers, columns=list("abc")).assign(who=list("xxyyyz"))
    made = study()
    assert eigenveil.report(made, frame, persons="who", ledger=tmp_path / "persons.ledger").accepted == 3
    with pytest.raises(errors.InputError, match="'who'"):
        eigenveil.report(made, frame, ledger=tmp_path / "other.ledger")
    weighted = study(weights=True)
    with eigenveil.Ledger(tmp_path / "device.ledger") as device:
        with pytest.raises(errors.InputError, match="count by weights"):
            device.take_part(weighted, ROW)
        with pytest.raises(errors.InputError, match="count"):
            device.take_part(made, ROW, weight=0.5)
        assert not device.receipt().studies
        assert "weight" in device.take_part(weighted, ROW, weight=np.nan).local_warning
        assert device.take_part(study(weights=True), ROW, weight=0.5).local_warning is None
    with pytest.raises(errors.InputError, match="count by weights"):
        eigenveil.report(weighted, numbers, ledger=tmp_path / "weights.ledger")
    assert not (tmp_path / "weights.ledger").exists()
    # Whatever the weights are: one of them must not decide about the others.
    given = [(np.full(6, 0.5), 0), (np.full(6, 50.0), 0), ([0.5, "50 %", "0.5", "", 1, -1], 3)]
    for number, (weights, unusable) in enumerate(given):
        done = eigenveil.report(study(weights=True), numbers, weights=weights, ledger=tmp_path / f"{number}.ledger")
        assert (done.accepted, done.unusable) == (6, unusable)


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (np.zeros((0, 3)), "usage"),
        (np.zeros(3), "wrong-dimension"),
        (np.zeros((2, 4)), "wrong-dimension"),
        (np.zeros((1, 1_000_000)), "wrong-dimension"),
        (np.zeros((2, 3, 1)), "wrong-dimension"),
        (np.zeros((2, 3), dtype=complex), "invalid-dtype"),
        (np.array([[b"1", b"2", b"3"]]), "invalid-dtype"),
        ([[1.0, 2.0, 3.0], [1.0, "x"]], "invalid-dtype"),
        (None, "invalid-dtype"),
    ],
)
def test_a_table_of_another_shape_or_kind_is_not_charged(study, tmp_path, rows, code):
    with pytest.raises(errors.InputError) as refused:
        eigenveil.report(study(), rows, ledger=tmp_path / "rows.ledger")
    assert refused.value.code == code


def _at_a_closed_port(made):
    document = json.load(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}"))
    return eigenveil.Study.from_document(document, "http://127.0.0.1:9")


def test_what_is_still_to_be_sent_is_an_exception_that_says_how_many(study, analyst, tmp_path):
    made = study()
    rows, path = np.random.default_rng(1).normal(size=(5, 3)), tmp_path / "rows.ledger"
    with pytest.raises(errors.ServerError, match="call it again") as refused:
        eigenveil.report(_at_a_closed_port(made), rows, ledger=path, connection=eigenveil.Connection(retry_for=0))
    assert refused.value.code == "no-answer" and refused.value.values["pending"] == 5
    with pytest.raises(errors.LedgerError, match="moved=True"):
        eigenveil.report(made, rows, ledger=path)
    assert eigenveil.report(made, rows, ledger=path, moved=True).accepted == 5


def test_reports_that_a_closed_study_does_not_take_are_no_errand(study, analyst, tmp_path):
    made = study()
    rows, path = np.random.default_rng(1).normal(size=(5, 3)), tmp_path / "rows.ledger"
    with pytest.raises(errors.ServerError):
        eigenveil.report(_at_a_closed_port(made), rows, ledger=path, connection=eigenveil.Connection(retry_for=0))
    analyst.close(made)
    with pytest.raises(errors.StudyError, match="never opens again") as refused:
        eigenveil.report(made, rows, ledger=path, moved=True)
    assert refused.value.code == "study-not-open" and refused.value.values["pending"] == 5
    # Where nothing could be sent, there is no ledger either.
    closed = eigenveil.Study.fetch(made.url, made.id)
    with pytest.raises(errors.StudyError) as refused:
        eigenveil.report(closed, rows, ledger=tmp_path / "none.ledger")
    assert refused.value.code == "study-not-open" and not (tmp_path / "none.ledger").exists()


def test_rows_are_reported_with_a_token_each(study, analyst, tmp_path):
    made = study(enrolment="token")
    rows, path = np.random.default_rng(1).normal(size=(5, 3)), tmp_path / "rows.ledger"
    with pytest.raises(errors.TokenError, match="tokens=") as refused:
        eigenveil.report(made, rows, ledger=path)
    assert refused.value.code == "token-required" and not path.exists()
    assert eigenveil.report(made, rows, tokens=analyst.tokens(made, 5), ledger=path).accepted == 5


INTERRUPTED = """
import eigenveil, sys, time, numpy as np
from eigenveil import central
study = eigenveil.Study.from_document(open(sys.argv[1]).read(), "http://127.0.0.1:9")
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
# One step may still end.
time.sleep(1)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before, flush=True)
"""
CALLS = {
    "prepare": "eigenveil.report(study, np.random.default_rng(1).normal(size=(400_000, 3)), ledger=sys.argv[2])",
    "fetch": "eigenveil.Study.fetch(f'http://127.0.0.1:{sys.argv[3]}', study.id)",
    "simulate": "eigenveil.simulate(p=60, k=2, n=50_000_000, epsilon=4)",
    "fit": "eigenveil.LocalDPPCA(2, 1.0).fit(np.random.default_rng(1).normal(size=(400_000, 40)))",
    "plan": "eigenveil.plan(p=400, k=20, spectrum=[0.04] * 20, epsilon=4, n=range(1_000, 200_000))",
    "choices": "import pandas; rows = np.random.default_rng(1).normal(size=(600, 500)); "
    "eigenveil.prepare(pandas.DataFrame(rows).add_prefix('x'), k=2, n=9_000, epsilon=4)",
    "audit": "eigenveil.audit(p=40, epsilon=4, trials=5_000_000)",
    "baseline": "central.fit('dp-gd-reap', np.random.default_rng(1).normal(size=(20_000, 100)), k=2, iterations=100_000)",
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_call_within_half_a_second_and_its_computation(study, tmp_path, call):
    if call == "choices":
        pytest.importorskip("pandas")
    made = study()
    (tmp_path / "study.json").write_bytes(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}").read())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = [tmp_path / "study.json", tmp_path / "rows.ledger", str(silent.getsockname()[1])]
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED.format(call=CALLS[call]), *words], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout.readline() == "ready\n"
        time.sleep(1.0)
        assert child.poll() is None, "the call was over too soon to be interrupted"
        child.send_signal(signal.SIGINT)
        started = time.monotonic()
        assert child.stdout.readline() == "interrupted\n"
        assert time.monotonic() - started < 0.5
        assert float(child.stdout.readline()) < 0.1, "it goes on computing"
        child.wait()
        child.stdout.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_call_that_waits_for_another_ends_with_ctrl_c_and_in_a_fork(study, tmp_path, press_ctrl_c):
    made = study()
    document = json.load(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}"))
    with socket.create_server(("127.0.0.1", 0)) as silent, eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.take_part(eigenveil.Study.from_document(document, f"http://127.0.0.1:{silent.getsockname()[1]}"), ROW)
        once = eigenveil.Connection(timeout=20, retry_for=0)
        sending = threading.Thread(target=ledger.send, kwargs={"connection": once})
        sending.start()
        client, _ = silent.accept()
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            try:
                ledger.close()
                ledger.receipt()
            except errors.LedgerError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and time.monotonic() - started < 5
        pressed = press_ctrl_c(0.2)
        with pytest.raises(KeyboardInterrupt):
            ledger.receipt()
        assert time.monotonic() - pressed[0] < 0.5
        client.close()
        sending.join()
        assert ledger.receipt().studies[0]["state"] == "owed"


@pytest.mark.parametrize("on_thread", [False, True])
def test_a_panic_is_an_exception(on_thread, capfd):
    with pytest.raises(errors.InternalError) as panicked:
        eigenveil._core._panic(on_thread)
    assert panicked.value.code == "internal" and isinstance(panicked.value, Exception)


def test_a_study_is_pickled_and_what_a_process_holds_is_not(study, server, analyst, tmp_path):
    made = study(purpose="To see", enrolment="token", centring=0.7)
    again = pickle.loads(pickle.dumps(made))
    assert repr(again) == repr(made) and again.privacy == made.privacy and again.about == made.about
    assert (again.is_open, again.enrolment, again.name) == (True, "token", made.name)
    assert dataclasses.asdict(made)["about"] == made.about and "_checked" not in dataclasses.asdict(made)
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        assert ledger.take_part(again, ROW).new and not ledger.take_part(made, ROW).new
        for held in (ledger, analyst, server):
            with pytest.raises(TypeError, match="where it is used|its url"):
                pickle.dumps(held)


def test_a_class_whose_objects_others_make_says_who_does():
    classes = [(eigenveil.Study, "Study.fetch"), (eigenveil.Estimate, "Estimate.load"), (eigenveil.Server, "serve")]
    for made, by in classes:
        for given in [(), ("x",), ("x", "y")]:
            with pytest.raises(TypeError, match=by):
                made(*given)
    with pytest.raises(errors.InputError, match="Study.fetch"):
        eigenveil.report("0" * 32, [[1.0]], ledger="rows.ledger")


def test_a_connection_that_is_none_is_refused(study, server, tmp_path):
    made, wrong = study(), {"timeout": 5}
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        for call in (
            lambda: eigenveil.Study.fetch(made.url, made.id, connection=wrong),
            lambda: eigenveil.Analyst(server.url, server.token, connection=wrong),
            lambda: eigenveil.report(made, [ROW], ledger=tmp_path / "rows.ledger", connection=wrong),
            lambda: ledger.send(connection=wrong),
        ):
            with pytest.raises(errors.InputError, match="is a dict; give an eigenveil.Connection"):
                call()


def test_what_is_logged_holds_no_row_and_no_token(study, analyst, tmp_path, caplog):
    caplog.set_level("DEBUG", logger="eigenveil")
    made = study(enrolment="token")
    (token,) = analyst.tokens(made, 1)
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        ledger.take_part(made, [987654.25, np.nan, 1])
        ledger.send(connection=eigenveil.Connection(retry_for=0))
        ledger.set_token(made, token)
        ledger.send()
    said = [record.getMessage() for record in caplog.records]
    assert any("[token-required]" in line for line in said)
    assert "reports: 1 accepted, 0 duplicates, 0 refused, 0 still to be sent" in said
    assert not any("987654" in line or token in line or "finite" in line for line in said)


def test_exceptions_are_pickled_with_their_code():
    error = errors.TokenError("sentence", "token-spent", {"status": 409.0})
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code, again.values) == (errors.TokenError, "sentence", "token-spent", error.values)


def test_killed_devices_are_counted_once(study, analyst, tmp_path):
    """Ten processes take part and send, each killed somewhere, again and again until all is sent."""
    made = study()
    document = tmp_path / "study.json"
    document.write_bytes(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}").read())
    _kill_rounds(made, document, tmp_path, devices=4, rounds=3)
    assert analyst.reports_accepted(made) == 12


DEVICES = """
import eigenveil, sys, pathlib, numpy as np
study = eigenveil.Study.from_document(open(sys.argv[1]).read(), sys.argv[2])
print("ready", flush=True)
for path in sys.argv[3:]:
    with eigenveil.Ledger(path) as ledger:
        ledger.take_part(study, np.ones(study.dimension))
        ledger.send()
print("done", flush=True)
"""


def _kill_rounds(made, document: Path, folder: Path, devices: int, rounds: int) -> None:
    random = np.random.default_rng(7)
    for number in range(rounds):
        paths = [folder / f"{number}-{device}.ledger" for device in range(devices)]
        words = [sys.executable, "-c", DEVICES, document, made.url, *paths]
        killed = 0
        while True:
            child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            assert child.stdout.readline() == "ready\n"
            if killed < 3:
                time.sleep(random.uniform(0, 0.012 * devices))
                child.kill()
                killed += 1
            done = child.stdout.readline() == "done\n"
            child.stdout.close()
            child.wait()
            if done:
                break
        for path in paths:
            with eigenveil.Ledger(path, existing=True) as ledger:
                (entry,) = ledger.receipt().studies
                assert entry["state"] == "acknowledged" and ledger.receipt().spent["epsilon"] < 4.001


@pytest.mark.skipif("EIGENVEIL_LONG" not in os.environ, reason="100 rounds of kills take minutes: EIGENVEIL_LONG=1")
def test_a_hundred_rounds_of_kills(study, analyst, tmp_path):
    made = study()
    document = tmp_path / "study.json"
    document.write_bytes(urllib.request.urlopen(f"{made.url}/v1/studies/{made.id}").read())
    _kill_rounds(made, document, tmp_path, devices=10, rounds=100)
    assert analyst.reports_accepted(made) == 1000
