"""Sites report their tables to studies of a real server."""

from __future__ import annotations

import numpy as np
import pytest

import eigenveil
from eigenveil import errors

SITES = {"max_rows": 1000}


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(700, 3))


def test_a_table_is_one_report_that_is_charged_once(study, analyst, table, tmp_path):
    made = study(sites=SITES)
    assert made.mechanism == "discrete-gaussian" and made.enrolment == "token"
    assert made.sites["max_rows"] == 1000 and study().sites is None
    tokens = analyst.site_tokens(made, {"Ärhus": 700, "other": None})
    assert list(tokens) == ["Ärhus", "other"] and len(set(tokens.values())) == 2
    settings = {"site": "Ärhus", "ledger": tmp_path / "site.ledger", "token": tokens["Ärhus"]}
    shown = eigenveil.site_report(made, table, **settings)
    assert (shown.rows, shown.charged, shown.unusable, shown.sent) == (700, 700, 0, None)
    assert not (tmp_path / "site.ledger").exists() and analyst.reports_accepted(made) == 0
    seen = []
    done = eigenveil.site_report(
        made, table, **settings, approve=True, progress=lambda done, total: seen.append((done, total))
    )
    assert done.sent.accepted == 1 and done.acknowledged == 1 and seen[-1] == (700, 700)
    assert 4 <= done.epsilon < 4.001 and 0 < done.delta < 1
    again = eigenveil.site_report(made, table, site="Ärhus", ledger=tmp_path / "site.ledger", approve=True)
    assert (again.charged, again.sent.accepted, again.acknowledged) == (0, 0, 1)
    assert analyst.reports_accepted(made) == 1
    counts = analyst.token_counts(made)
    assert (counts["issued"], counts["spent"], len(counts["sites"])) == (2, 1, 2)
    (entry,) = eigenveil.receipt(tmp_path / "site.ledger").studies
    assert entry["rows"] == 700
    for other in (table + 1, table[::-1], table[:-1]):
        with pytest.raises(errors.LedgerError):
            eigenveil.site_report(made, other, **settings, approve=True)


def test_a_token_that_cannot_be_used_charges_nothing(study, analyst, table, tmp_path):
    made, ledger = study(sites=SITES), tmp_path / "site.ledger"
    tokens = analyst.site_tokens(made, {"north": None, "small": 699})

    def refused(kind, word, **settings):
        settings = {"site": "north", "token": tokens["north"], "ledger": ledger, "approve": True, **settings}
        with pytest.raises(kind, match=word) as refusal:
            eigenveil.site_report(made, settings.pop("rows", table), **settings)
        assert not ledger.exists() and not any(token in str(refusal.value) for token in tokens.values())

    refused(errors.TokenError, "token=", token=None)
    refused(errors.TokenError, "token", token="0" * len(tokens["north"]))
    refused(errors.InputError, "north", token=tokens["small"])
    refused(errors.InputError, "699", token=tokens["small"], site="small")
    refused(errors.InputError, "site", site=" ")
    refused(errors.InputError, "800", min_rows=800)
    refused(errors.InputError, "1001", rows=np.zeros((1001, 3)))
    refused(errors.InputError, "no rows", rows=np.zeros((0, 3)))
    refused(errors.InputError, "3", rows=table[:, :2])
    assert analyst.reports_accepted(made) == 0 and analyst.token_counts(made)["spent"] == 0


def test_a_study_of_sites_and_one_of_rows_are_not_mistaken(study, table, tmp_path):
    sites, rows = study(sites=SITES), study()
    with pytest.raises(errors.InputError):
        eigenveil.report(sites, table, ledger=tmp_path / "rows.ledger")
    with pytest.raises(errors.InputError):
        eigenveil.site_report(rows, table, site="north", ledger=tmp_path / "rows.ledger")
    with eigenveil.Ledger(tmp_path / "device.ledger") as ledger:
        with pytest.raises(errors.InputError):
            ledger.take_part(sites, table[0])
        assert ledger.receipt().studies == []
    for terms in ({}, {"max_rows": 0}, {"max_rows": "many"}, {"max_rows": 10, "rows": 1}):
        with pytest.raises(errors.InputError):
            study(sites=terms)


def test_a_later_table_sends_only_persons_who_were_not_charged(study, analyst, table, tmp_path):
    made = study(sites={**SITES, "rows_per_person": 2})
    tokens = [analyst.site_tokens(made, {"north": None})["north"] for _ in range(2)]
    settings = {"site": "north", "ledger": tmp_path / "site.ledger", "approve": True}
    persons = [f"patient-{number // 3}" for number in range(300)]
    first = eigenveil.site_report(made, table[:300], **settings, token=tokens[0], persons=persons)
    assert (first.charged, first.beyond_cap, first.charged_before, first.sent.accepted) == (100, 100, 0, 1)
    later = [*[f"new-patient-{number}" for number in range(400)], *persons]
    with pytest.raises(errors.TokenError):
        eigenveil.site_report(made, table, **settings, token=tokens[0], persons=later)
    second = eigenveil.site_report(made, table, **settings, token=tokens[1], persons=later)
    assert (second.charged, second.beyond_cap, second.charged_before, second.acknowledged) == (400, 0, 300, 2)
    assert eigenveil.receipt(tmp_path / "site.ledger").studies[0]["rows"] == 500
    plain = [str(number) for number in range(700)]
    settings = {"site": "north", "ledger": tmp_path / "numbers.ledger", "approve": True}
    tokens = [analyst.site_tokens(made, {"north": None})["north"] for _ in range(2)]
    first = eigenveil.site_report(made, table, **settings, token=tokens[0], persons=plain)
    assert (first.charged, first.known_others) == (700, 0)
    with pytest.raises(errors.InputError, match="row 1 .*another spelling"):
        eigenveil.site_report(made, table, **settings, token=tokens[1], persons=[f"{number}.0" for number in plain])
    others = [f"n{number}" for number in plain]
    shown = eigenveil.site_report(made, table, **{**settings, "approve": False}, token=tokens[1], persons=others)
    assert (shown.charged, shown.known_others) == (700, 700)
    for name in ("patient-7", "new-patient-7"):
        assert name.encode() not in (tmp_path / "site.ledger").read_bytes()
    # The ledger knows persons, so a table that does not say whose its rows are could charge somebody twice.
    with pytest.raises(errors.InputError):
        eigenveil.site_report(study(sites=SITES), table, **settings, token=tokens[0])


def test_no_cell_refuses_a_sites_table(study, analyst, tmp_path, caplog):
    pandas = pytest.importorskip("pandas")
    made = study(sites=SITES)
    token = analyst.site_tokens(made, {"north": None})["north"]
    frame = pandas.DataFrame({"a": ["987654 kg"] * 90 + ["1"] * 10, "b": [np.inf, 1.0] * 50, "c": range(100)})
    done = eigenveil.site_report(made, frame, site="north", ledger=tmp_path / "site.ledger", token=token, approve=True)
    assert done.sent.accepted == 1 and done.charged == 100 and done.unusable >= 90
    said = [record.getMessage() for record in caplog.records]
    assert any("a: 90" in line for line in said) and not any("987654" in line for line in said)
