"""Studies of the wines on a real server, and their estimates."""

from __future__ import annotations

import datetime
import os
import pickle
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

import eigenveil
from eigenveil import errors
from eigenveil._command import features_of

N = 20_000


@pytest.fixture(scope="session")
def wine_estimate(analyst, wines, wine_features, tmp_path_factory) -> eigenveil.Estimate:
    """Of 20,000 participants, each with a wine drawn with replacement."""
    names, rows = wines
    study = analyst.create_study("wines", features=wine_features, epsilon=4, centring=0.7, bound_rows="clip", radius=5)
    drawn = rows[np.random.default_rng(3).integers(len(rows), size=N)]
    done = eigenveil.report(study, drawn, ledger=tmp_path_factory.mktemp("wines") / "rows.ledger")
    assert done.accepted == N
    return analyst.estimate(study, 2)


def test_an_estimate_agrees_with_the_wines(wine_estimate, wines):
    estimate, (names, rows) = wine_estimate, wines
    assert list(estimate.feature_names_in_) == names and estimate.n_reports_ == N
    assert len(estimate.warning_codes_) == len(estimate.warnings_)
    assert estimate.verdicts_[0] == "above" and estimate.mean_.shape == (13,)
    assert estimate.components_.shape == (2, 13)
    np.testing.assert_allclose(np.linalg.norm(estimate.components_, axis=1), 1, atol=1e-9)
    prepared = estimate.prepare(rows)
    centred = prepared - prepared.mean(axis=0)
    truth = np.linalg.svd(centred, full_matrices=False)[2][:2]
    error = np.linalg.norm(truth.T @ truth - estimate.components_.T @ estimate.components_)
    # Its square is near that of the expected error, a root mean square; five times as large is not.
    assert error < 2.3 * estimate.expected_error_, (error, estimate.expected_error_)
    np.testing.assert_allclose(
        estimate.transform(rows), (prepared - estimate.mean_) @ estimate.components_.T, atol=1e-12
    )
    # Within four standard errors, and not far below: 78 pairs.
    covariance, known = estimate.covariance(), np.cov(prepared.T, bias=True)
    above = np.triu_indices(13, 1)
    standardised = ((covariance.value - known) / covariance.standard_error)[above]
    assert np.abs(standardised).max() < 5 and 0.5 < standardised.std() < 1.6


def test_correlations_and_regressions_have_intervals_or_reasons(wine_estimate, wines):
    correlation = wine_estimate.correlation()
    assert correlation.value.shape == (13, 13) and (np.diag(correlation.value) == 1).all()
    refused = {(one, other) for one, other, why in correlation.refused if why}
    names = list(wine_estimate.feature_names_in_)
    for i in range(13):
        for j in range(i + 1, 13):
            assert np.isnan(correlation.value[i, j]) == ((names[i], names[j]) in refused)
    assert len(refused) < 78 and correlation.of == wine_estimate.covariance().of == "values"
    try:
        value, error, low, high = wine_estimate.regress("flavanoids", "total_phenols")["total_phenols"]
        assert low < value < high and error > 0
    except errors.EstimateError as refusal:
        # Of a variance, with its feature's name, or of the least eigenvalue of the predictors.
        assert "standard error" in str(refusal)
    for y, x in [("flavanoids", "no such"), ("flavanoids", ["hue", "hue"]), ("hue", "hue")]:
        with pytest.raises(errors.InputError):
            wine_estimate.regress(y, x)


def test_names_decide_the_order(wine_estimate, wines):
    pandas = pytest.importorskip("pandas")
    names, rows = wines
    frame = pandas.DataFrame(rows, columns=names)
    turned = frame[names[::-1]]
    np.testing.assert_array_equal(wine_estimate.transform(turned), wine_estimate.transform(rows))
    with pytest.raises(errors.InputError, match="lacks 'alcohol'"):
        wine_estimate.transform(frame.drop(columns="alcohol"))
    with pytest.raises(errors.InputError, match="cultivar"):
        wine_estimate.transform(frame.assign(cultivar=1))
    with pytest.raises(errors.InputError) as refused:
        wine_estimate.transform(np.full((1, 13), np.nan))
    assert refused.value.code == "row-not-finite"


def test_an_estimate_survives_pickling_files_and_scikit_learn(wine_estimate, wines, tmp_path):
    _, rows = wines
    assert pickle.loads(pickle.dumps(wine_estimate)) == wine_estimate
    wine_estimate.save(tmp_path / "estimate.json")
    loaded = eigenveil.Estimate.load(tmp_path / "estimate.json")
    assert loaded == wine_estimate and "above the noise floor" in repr(loaded)
    pytest.importorskip("sklearn")
    pipeline = pickle.loads(pickle.dumps(loaded.to_sklearn()))
    np.testing.assert_allclose(pipeline.transform(rows), loaded.transform(rows), atol=1e-12)
    back = loaded.inverse_transform(loaded.transform(rows))
    assert back.shape == (178, 13)
    with pytest.raises(errors.EigenveilError):
        eigenveil.Estimate.from_json("{}")
    broken = loaded.to_json().replace('"p":13', '"p":12', 1)
    with pytest.raises(errors.InputError, match="is inconsistent"):
        eigenveil.Estimate.from_json(broken)


def test_pictures_and_tables(wine_estimate, wines):
    html = wine_estimate._repr_html_()
    assert "<svg" in html and "above" in html
    assert {"scree.svg", "alignment.svg", "correlations.svg"} <= set(wine_estimate.figures())
    pytest.importorskip("pandas")
    frame = wine_estimate.to_frame()
    assert list(frame.index) == ["component1", "component2"] and frame.loc["component1", "verdict"] == "above"
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = wine_estimate.plot_scree()
    shown = axes.lines[0].get_ydata()
    np.testing.assert_array_equal(shown[:2], wine_estimate.explained_variance_)
    assert len(shown) == 13 and max(shown) == shown[0]
    assert len(wine_estimate.plot_loadings(1).patches) == 13
    drawn = wine_estimate.plot_correlations(top=5).images[0].get_array()
    assert drawn.shape == (5, 5) and np.isnan(np.ma.getdata(drawn)[0, 0])
    assert len(wine_estimate.plot_biplot(wines[1]).collections[0].get_offsets()) == 178
    with pytest.raises(errors.InputError):
        wine_estimate.plot_loadings(3)
    with pytest.raises(errors.InputError, match="no rows"):
        wine_estimate.plot_biplot(wines[1][:0])
    matplotlib.pyplot.close("all")


def test_the_life_of_a_study(analyst):
    study = analyst.create_study("a life", dimension=3, epsilon=1, draft=True)
    assert not study.is_open and study.feature_names is None
    # By its name, and by what its identifier begins with.
    assert analyst.open("a life").is_open and analyst.reports_accepted(study.id[:31]) == 0
    assert not analyst.close(study.id).is_open
    with pytest.raises(errors.EstimateError):
        analyst.estimate("a life", 1)
    other = analyst.create_study("a life", dimension=3, epsilon=1)
    with pytest.raises(errors.InputError, match=f"2 studies(.|\n)*{study.id}"):
        analyst.delete("a life")
    analyst.delete(study)
    assert analyst.study("a life").id == other.id
    with pytest.raises(errors.StudyError):
        analyst.study(study.id)
    with pytest.raises(errors.InputError) as refused:
        eigenveil.LocalDPPCA(2, 17.0).fit(np.ones((5, 3)))
    assert refused.value.values["field"] == "epsilon"
    for settings in [
        {"dimension": 3, "epsilon": 17},
        {"dimension": 3, "epsilon": float("nan")},
        {"epsilon": 1},
        {"dimension": 3, "epsilon": 1, "bound_rows": "other"},
        {"dimension": 2, "features": ["a", "b", "c"], "epsilon": 1},
        {"features": ["a", "a"], "epsilon": 1},
    ]:
        with pytest.raises(errors.EigenveilError):
            analyst.create_study("refused", **settings)
    assert all(known["name"] != "refused" for known in analyst.studies())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mechanism": "double_cap"}, "'mechanism': .*\"double_cap\"; the mechanisms are double-cap, .*discrete-gaussian"),
        ({"mechanism": 5}, "'mechanism': .* 5, expected a string"),
        ({"calibration": "x"}, "'calibration': .*analytic or as-published"),
        ({"enrolment": "tokens"}, "'enrolment': .*\"tokens\"; it must be open or token"),
        ({"bound_rows": "other"}, "'bound_rows': .*other, expected one of normalize, clip, require"),
        ({"bound_rows": "clip", "radius": "x"}, "'radius': .*\"x\", expected a number"),
        ({"name": 3}, "'name': .* 3, expected a string"),
        ({"purpose": 5}, "'purpose': .* 5, expected a string"),
        ({"contact": ["x"]}, "'contact': .*sequence, expected a string"),
        ({"features": None, "dimension": 2.5}, "'dimension': .* 2.5, expected a whole number"),
        ({"centring": True}, "'centring': .* true, expected a number"),
        ({"epsilon": "abc"}, "'epsilon': .*\"abc\", expected a number"),
        ({"epsilon": None}, "^missing field epsilon"),
        ({"delta": np.ones(2)}, "'delta': .*sequence, expected a number"),
        ({"draft": "no"}, "'draft': .*\"no\", expected a boolean"),
        ({"weights": 0.5}, "'weights': .* 0.5, expected a boolean"),
        ({"mean_weight": 0.5}, "mean_weight is 0.5, .*give weights"),
        ({"k": None}, "k is None; .*'auto'"),
        ({"k": 10**30}, "whole number of at least 1, or \"auto\""),
        ({"last_day": "31.3.2099"}, "'last_day': .*\"31.3.2099\"; .*2027-03-31"),
        ({"features": "abc"}, "features is 'abc'; give a list"),
        ({"features": 5}, "features is 5; give a list"),
        ({"features": ["a", 1]}, "feature 2 has no name"),
        ({"features": [{"center": 1}]}, "feature 1 has no name"),
        ({"features": [{"name": "a", "center": "x"}, "b"]}, "center of feature 1 is 'x'; .* a number"),
    ],
)
def test_a_study_with_a_wrong_word_or_kind_is_refused_by_its_name(analyst, settings, said):
    with pytest.raises(errors.InputError, match=said):
        analyst.create_study(**{"name": "refused", "features": ["a", "b"], "epsilon": 1, **settings})


def test_features_and_days_of_any_kind(analyst):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    columns = {"name": ["a", "b"], "center": [1, None], "reason": ["x", "y"]}
    made = [table(columns) for table in (pandas.DataFrame, polars.DataFrame, pyarrow.table)]
    for features in (*made, [{"name": "a", "center": np.float32(1)}, "b"]):
        assert features_of(features) == [{"name": "a", "center": 1.0}, {"name": "b"}]
    for names in (columns["name"], np.array(columns["name"]), pyarrow.array(columns["name"]), polars.Series(["a", "b"])):
        assert features_of(names) == [{"name": "a"}, {"name": "b"}]
    for day in ("2099-03-31", datetime.date(2099, 3, 31), pandas.Timestamp("2099-03-31 12:00")):
        study = analyst.create_study("days", features=made[0], epsilon=1, last_day=day)
        assert study.about["last_day"] == "2099-03-31" and "features" not in study.about
    # What participants read about them, of a row with gaps.
    told = pandas.DataFrame({"name": ["a", "b"], "label": ["Age", None], "unit": ["years", ""], "center": [1, 2]})
    study = analyst.create_study("told", features=told, epsilon=1)
    assert study.about["features"] == [{"label": "Age", "unit": "years"}, {}]
    again = pickle.loads(pickle.dumps(study))
    assert again.about == study.about and again.fingerprint == study.fingerprint
    with pytest.raises(errors.StudyError, match="the label of feature 1 has 101 bytes"):
        analyst.create_study("told", features=[{"name": "a", "label": "x" * 101}, "b"], epsilon=1)


def test_what_an_estimate_or_tokens_cannot_be_asked_is_said_before_the_server_is(analyst, study):
    made = study(enrolment="token")
    for count in (-1, 2.5, 10**9):
        with pytest.raises(errors.InputError, match="^count is"):
            analyst.tokens(made, count)
    for asked, said in (
        ({"timeout": float("inf")}, "timeout is inf s; .*from 0 to"),
        ({"timeout": 1e300}, r"timeout is 1e\+300 s"),
        ({"timeout": -1}, "timeout is -1 s"),
        ({"sparse": {"lamda": 1}}, "'sparse': unknown field lamda, expected one of lambda"),
        ({"sparse": {"lambda": "x"}}, "lambda is \"x\"; it must be a number .*, auto, cv or path"),
        ({"sparse": {"refit": "no"}}, "'sparse': .*\"no\", expected a boolean"),
        ({"sparse": "no"}, "'sparse': .*\"no\", expected True or a dict"),
        ({"moment": 1}, "'moment': .* 1, expected a boolean"),
    ):
        with pytest.raises(errors.InputError, match=said):
            analyst.estimate(made, 1, **asked)
    with pytest.raises(errors.InputError, match="the study is a int"):
        analyst.study(5)


def test_a_wrong_token_is_refused_and_not_shown(server):
    with pytest.raises(errors.TokenError) as refused:
        eigenveil.Analyst(server.url, "s3cret").create_study("x", dimension=3, epsilon=1)
    assert refused.value.code == "forbidden" and "s3cret" not in str(refused.value)
    with pytest.raises(errors.InputError) as refused:
        eigenveil.Analyst(server.url, "two words s3cret")
    assert "s3cret" not in str(refused.value)


def test_a_server_keeps_its_data_and_says_why_it_cannot_start(tmp_path):
    with eigenveil.serve(tmp_path / "data") as server:
        server.analyst().create_study("kept", dimension=3, epsilon=1)
        with pytest.raises(errors.ServerError) as refused:
            eigenveil.serve(tmp_path / "data")
        assert "data" in str(refused.value)
        url = server.url
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{url}/v1/studies", timeout=2)
    with eigenveil.serve(tmp_path / "data") as server:
        assert [known["name"] for known in server.analyst().studies()] == ["kept"]


FORKS = """
import eigenveil, os, sys
with eigenveil.serve() as server:
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    print(os.path.exists(server.data), server.analyst().create_study("after", dimension=3, epsilon=1).is_open)
print(os.path.exists(server.data))
"""


def test_a_child_that_ends_leaves_the_server_of_its_parent():
    said = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert said.stdout.split() == ["True", "True", "False"], said


ENDS = """
import eigenveil, os, signal, sys
server = eigenveil.serve(sys.argv[1])
print(server.url, flush=True)
os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_ends_with_a_process_that_is_killed(tmp_path, by):
    said = subprocess.run([sys.executable, "-c", ENDS, tmp_path / "data", str(int(by))], capture_output=True, text=True)
    assert said.returncode == -by and said.stdout.startswith("http://"), said
    # Its folder is locked until it has ended.
    until = time.monotonic() + 20
    while True:
        try:
            with eigenveil.serve(tmp_path / "data") as server:
                assert server.analyst().studies() == []
                return
        except errors.ServerError:
            assert time.monotonic() < until, "it is still there"
            time.sleep(0.05)


class _FreezesTheServer:
    """Stops the server as soon as it has taken the request for an estimate."""

    def __init__(self, core, pid):
        self._core, self._pid = core, pid

    def __getattr__(self, name):
        return getattr(self._core, name)

    def request_estimate(self, *request):
        number = self._core.request_estimate(*request)
        os.kill(self._pid, signal.SIGSTOP)
        return number


def test_ctrl_c_does_not_wait_for_a_server_that_does_not_answer(press_ctrl_c):
    with eigenveil.serve() as server:
        analyst = server.analyst()
        study = analyst.create_study("frozen", dimension=3, epsilon=4)
        analyst._core = _FreezesTheServer(analyst._core, server.pid)
        pressed = press_ctrl_c(0.5)
        try:
            with pytest.raises(KeyboardInterrupt):
                analyst.estimate(study, 1)
            assert time.monotonic() - pressed[0] < 1
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_connection_does_not_show_its_proxy():
    assert "s3cret" not in repr(eigenveil.Connection(proxy="http://user:s3cret@proxy.example:3128"))


def test_the_command_line():
    run = [sys.executable, "-m", "eigenveil"]
    said = subprocess.run([*run, "--version"], capture_output=True, text=True)
    assert said.stdout == f"eigenveil {eigenveil.__version__}\n"
    assert subprocess.run([*run, "account"], capture_output=True).returncode == 2
    account = subprocess.run([*run, "account", "--epsilon", "4", "--json"], capture_output=True, text=True)
    assert account.returncode == 0 and '"epsilon":4.0' in account.stdout
