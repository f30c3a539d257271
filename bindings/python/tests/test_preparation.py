"""Preparations on a real server: from columns to a study's features."""

from __future__ import annotations

import numpy as np
import pytest

import eigenveil
from eigenveil import errors

COLUMNS = {"size": "number 0 10", "smokes": "yes-no", "town": "categories Rome|Milan"}


@pytest.fixture
def rows() -> np.ndarray:
    rng = np.random.default_rng(1)
    town = rng.integers(3, size=6000)
    return np.column_stack(
        [rng.normal(4, 1, 6000), rng.random(6000) < 0.3, town == 0, town == 1],
    ).astype(float)


def test_features_come_from_two_rounds_of_answers(analyst, rows, tmp_path):
    first = analyst.create_preparation("first", COLUMNS, epsilon=2)
    assert (first.mechanism, first.delta, first.dimension) == ("randomised-response", 0.0, 4)
    assert first.feature_names == ["size", "smokes", "town=Rome", "town=Milan"]
    done = eigenveil.report(first, rows[:3000], ledger=tmp_path / "first.ledger")
    assert done.accepted == 3000
    found = analyst.prepare(first)
    assert found["people"] == [3000] and len(found["features"]) == 4
    second = analyst.create_second_round("second", first)
    with pytest.raises(errors.LedgerError, match="one of the rounds"):
        eigenveil.report(second, rows[:3000], ledger=tmp_path / "first.ledger")
    eigenveil.report(second, rows[3000:], ledger=tmp_path / "second.ledger")
    found = analyst.prepare(second)
    size = found["columns"][0]
    assert found["people"] == [3000, 3000]
    # A spread of 1 around 4, with 2,000 answers of an information of 0.46 each.
    assert abs(size["mean"] - 4) < 5 * size["mean_error"] and 0.7 < size["deviation"] < 1.5
    description, answers = found["features"][3]["description"], found["columns"][2]["answers"]
    assert description.startswith(f"Center and scale are estimated from {answers} people's answers")
    study = analyst.create_study("main", features=found, epsilon=2)
    assert "preparation" in study.about["features"][0]["description"]
    # Whoever prepared is charged for both, if that is allowed.
    eigenveil.report(study, rows[:3000], ledger=tmp_path / "first.ledger")
    receipt = eigenveil.receipt(tmp_path / "first.ledger")
    assert receipt.spent["epsilon"] == pytest.approx(4, abs=1e-4)
    with pytest.raises(errors.EigenveilError):
        analyst.create_second_round("third", second)
    with pytest.raises(errors.EigenveilError):
        analyst.prepare(study)


def test_a_second_round_is_like_the_first(analyst, tmp_path):
    told = {"purpose": "How sizes differ", "responsible_party": "Institute", "contact": "a@example.org"}
    first = analyst.create_preparation("of tokens", {"size": "number 0 10"}, epsilon=2, enrolment="token", **told)
    with pytest.raises(errors.EigenveilError, match="nobody has answered"):
        analyst.create_second_round("too early", first)
    tokens = analyst.tokens(first, 40)
    eigenveil.report(first, np.full((40, 1), 4.0), ledger=tmp_path / "first.ledger", tokens=tokens)
    second = analyst.create_second_round("and second", first, contact="b@example.org")
    assert (second.enrolment, second.epsilon) == ("token", 2.0)
    assert {key: second.about[key] for key in told} == {**told, "contact": "b@example.org"}


def test_a_text_that_is_not_listed_is_another_category(analyst, tmp_path, caplog):
    pandas = pytest.importorskip("pandas")
    study = analyst.create_preparation("towns", {"town": "categories Rome|Milan"}, epsilon=1)
    towns = pandas.DataFrame({"town": ["Turin"] * 30 + ["Rome"]})
    done = eigenveil.report(study, towns, ledger=tmp_path / "towns.ledger")
    assert done.accepted == 31
    assert "30 of 31 rows have none of the study's categories" in caplog.text


def test_cells_that_are_answered_for_at_random_are_told(analyst, tmp_path, caplog):
    study = analyst.create_preparation("codes", {"size": "number 0 10", "smokes": "yes-no"}, epsilon=1)
    rows = np.array([[1.0, 1.0], [np.nan, 2.0], [3.0, 2.0]])
    eigenveil.report(study, rows, ledger=tmp_path / "codes.ledger")
    assert '"size": 1 of 3 rows have no usable value and are answered for at random' in caplog.text
    assert '"smokes": 2 of 3 rows have neither 0 nor 1' in caplog.text


def test_columns_that_cannot_be_asked_about_are_refused(analyst):
    for kind in ["number 3 1", "number 1", "number 0 inf", "categories A", "ordinal"]:
        with pytest.raises(errors.InputError):
            analyst.create_preparation("wrong", {"x": kind}, epsilon=1)
    with pytest.raises(errors.InputError, match="at most 10"):
        analyst.create_preparation("many", {"x": "categories " + "|".join("abcdefghijk")}, epsilon=1)
