"""Simulations, plans, baselines; scikit-learn's own checks."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import EXAMPLES

import eigenveil
from eigenveil import central, errors


def test_import_needs_numpy_only_and_starts_nothing():
    code = """
import sys
for name in ("sklearn", "pandas", "matplotlib", "pyarrow", "polars", "tqdm"):
    sys.modules[name] = None
import threading, eigenveil
assert threading.active_count() == 1, threading.enumerate()
eigenveil.account(epsilon=1)
try:
    eigenveil.LocalDPPCA
except ImportError as error:
    assert "pip install scikit-learn" in str(error)
else:
    raise AssertionError("an estimator without scikit-learn")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_check_estimator():
    sklearn_checks = pytest.importorskip("sklearn.utils.estimator_checks")
    for estimator in (eigenveil.LocalDPPCA(), eigenveil.LocalDPSparsePCA(max_iterations=50)):
        results = sklearn_checks.check_estimator(estimator, on_fail=None, on_skip=None)
        failed = {result["check_name"]: result["exception"] for result in results if result["status"] != "passed"}
        # It asks for an environment variable of SciPy.
        failed.pop("check_array_api_input", None)
        assert not failed and len(results) > 40, failed


def _digits() -> np.ndarray:
    return np.load(EXAMPLES / "digits.npy").astype(float)


def test_a_fit_on_digits_is_as_good_as_simulate_says(tmp_path):
    """50,000 participants, ε = 4; three repeats of each. One of them has a standard deviation of 2.3 %."""
    pytest.importorskip("sklearn")
    digits, n = _digits(), 50_000
    expected = eigenveil.simulate(rows=EXAMPLES / "digits.npy", n=n, k=5, epsilon=4, repeats=3)["error_mean"]
    unit = digits / np.linalg.norm(digits, axis=1, keepdims=True)
    truth = np.linalg.svd(unit, full_matrices=False)[2][:5]
    found = []
    for seed in range(3):
        drawn = digits[np.random.default_rng(seed).integers(len(digits), size=n)]
        fit = eigenveil.LocalDPPCA(5, 4.0, random_state=seed).fit(drawn)
        found.append(np.linalg.norm(truth.T @ truth - fit.components_.T @ fit.components_))
    assert abs(np.mean(found) / expected - 1) < 0.1, (found, expected)


def test_a_seed_repeats_and_threads_do_not_matter():
    pytest.importorskip("sklearn")
    rows = np.random.default_rng(1).normal(size=(3_000, 5)) * [3, 2, 1, 1, 1]
    once, again = (eigenveil.LocalDPPCA(2, 4, random_state=7).fit(rows) for _ in range(2))
    np.testing.assert_array_equal(once.components_, again.components_)
    other = eigenveil.LocalDPPCA(2, 4).fit(rows)
    assert (other.components_ != once.components_).any()
    assert pickle.loads(pickle.dumps(once)).estimate_ == once.estimate_


def test_missing_cells_persons_weights_names_and_output():
    pytest.importorskip("sklearn")
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(1)
    rows = random.normal(size=(20_000, 4)) * [3, 2, 1, 1]
    frame = pandas.DataFrame(rows, columns=list("abcd"))
    fit = eigenveil.LocalDPPCA(2, 8, random_state=1).set_output(transform="pandas").fit(frame)
    assert list(fit.estimate_.feature_names_in_) != [] and list(fit.feature_names_in_) == list("abcd")
    assert list(fit.transform(frame).columns) == ["localdppca0", "localdppca1"]
    holes = np.where(random.random(rows.shape) < 0.1, np.nan, rows)
    with pytest.raises(ValueError, match="NaN"):
        eigenveil.LocalDPPCA(2, 8).fit(holes)
    assert eigenveil.LocalDPPCA(2, 8, observed=0.9, random_state=1).fit(holes).verdicts_[0] == "above"
    weighted = eigenveil.LocalDPPCA(2, 8, mean_weight=0.5, random_state=1).fit(rows, weights=np.full(len(rows), 0.5))
    assert weighted.verdicts_[0] == "above"
    persons = eigenveil.LocalDPPCA(2, 8, random_state=1).fit(rows, persons=np.arange(len(rows)) // 2)
    assert persons.estimate_.n_reports_ == len(rows) // 2
    for wrong in [{"weights": np.ones(3)}, {"persons": np.ones(3)}, {"persons": [None] * len(rows)}]:
        with pytest.raises(errors.InputError):
            eigenveil.LocalDPPCA(2, 8).fit(rows, **wrong)
    for settings in [{"epsilon": -1}, {"epsilon": 17}, {"n_components": 9}, {"center": [1, 2]}]:
        with pytest.raises(ValueError):
            eigenveil.LocalDPPCA(**settings).fit(rows)
    for settings, said in (
        ({"mechanism": "none"}, "'mechanism': .*double-cap"),
        ({"calibration": "x"}, "'calibration': .*analytic"),
        ({"centring": True}, "'centring': .* true, expected a number"),
        ({"mean_weight": 0.5}, "give weights"),
    ):
        with pytest.raises(errors.InputError, match=said):
            eigenveil.LocalDPPCA(**settings).fit(rows)
    for penalty in ("x", None, True):
        with pytest.raises(errors.InputError, match="lambda .*a number"):
            eigenveil.LocalDPSparsePCA(penalty=penalty).fit(rows)


def test_an_estimate_of_a_frame_has_its_names():
    pytest.importorskip("sklearn")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(_scaled(2_000)[:, :3], columns=list("abc"))
    fit = eigenveil.LocalDPPCA(1, 4, random_state=1).fit(frame)
    scores = fit.transform(frame)
    assert list(fit.estimate_.feature_names_in_) == list("abc")
    for transform in (fit.estimate_.transform, fit.estimate_.to_sklearn().transform):
        np.testing.assert_allclose(transform(frame[list("cba")]), scores, atol=1e-12)
        with pytest.raises(errors.InputError, match="lacks 'a'"):
            transform(frame.rename(columns={"a": "z"}))
    # No study may have these names.
    for name in ("", " ", "a\nb", "x" * 201):
        other = eigenveil.LocalDPPCA(1, 4, random_state=1).fit(frame.rename(columns={"a": name}))
        assert list(other.estimate_.feature_names_in_) == ["x1", "x2", "x3"]
        np.testing.assert_array_equal(other.components_, fit.components_)


def test_constants_with_names_go_to_the_columns_of_these_names():
    pytest.importorskip("sklearn")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(_scaled(2_000)[:, :3], columns=list("abc"))
    center = pandas.Series([3.0, 2.0, 1.0], index=list("cba"))

    def prepared(rows, **constants):
        return eigenveil.LocalDPPCA(1, 4, bound_rows="clip", radius=50, **constants).fit(rows).estimate_.prepare(rows)

    for name in ("center", "scale"):
        known = prepared(frame, **{name: np.array([1.0, 2.0, 3.0])})
        for given in (center, dict(center)):
            np.testing.assert_array_equal(prepared(frame, **{name: given}), known)
        # Rows without names are in order, and so is what goes with them.
        np.testing.assert_array_equal(prepared(frame.to_numpy(), **{name: center[::-1]}), known)
        for other in (center.rename({"a": "z"}), center[:2], center.reset_index(drop=True), {"a": 1.0}):
            with pytest.raises(errors.InputError) as refused:
                prepared(frame, **{name: other})
            assert refused.value.code == "wrong-names"


def _scaled(n: int = 20_000) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, 6)) * [4, 3, 1, 1, 1, 1] + 1


def test_a_pipeline_is_what_a_fitted_pca_is():
    pandas, decomposition = pytest.importorskip("pandas"), pytest.importorskip("sklearn.decomposition")
    frame = pandas.DataFrame(_scaled(), columns=list("abcdef"))
    fit = eigenveil.LocalDPPCA(2, 4, centring=0.5, center=0.0, bound_rows="clip", radius=5, random_state=1).fit(frame)
    estimate = fit.estimate_
    pipeline = pickle.loads(pickle.dumps(estimate.to_sklearn()))
    prepared = estimate.prepare(frame)
    known = decomposition.PCA(2).fit(prepared)
    np.testing.assert_allclose(pipeline[-1].singular_values_, known.singular_values_, rtol=0.05)
    np.testing.assert_allclose(pipeline[-1].noise_variance_, known.noise_variance_, rtol=0.2)
    np.testing.assert_allclose(pipeline[-1].get_covariance(), known.get_covariance(), atol=0.02)
    assert abs(pipeline.score(frame) - known.score(prepared)) < 0.1
    assert pipeline.n_features_in_ == 6 and list(pipeline.feature_names_in_) == list("abcdef")
    assert list(pipeline[:-1].get_feature_names_out()) == list("abcdef")
    assert list(pipeline.get_feature_names_out()) == ["pca0", "pca1"]
    scores = pipeline.transform(frame)
    np.testing.assert_allclose(scores, estimate.transform(frame), atol=1e-12)
    np.testing.assert_allclose(pipeline[-1].inverse_transform(scores), estimate.inverse_transform(scores))
    plain = eigenveil.LocalDPPCA(2, 4, random_state=1).fit(_scaled()).estimate_.to_sklearn()
    assert plain.n_features_in_ == 6 and not hasattr(plain, "feature_names_in_")


def test_what_a_pipeline_does_not_know_is_nan():
    pytest.importorskip("sklearn")
    rows = _scaled(2_000)
    # Nobody knows the variance of all features: no reports of double-cap show it, and clip does not fix it.
    unknown = eigenveil.LocalDPPCA(2, 4, bound_rows="clip", radius=5, random_state=1).fit(rows).estimate_.to_sklearn()
    assert np.isnan(unknown[-1].noise_variance_) and np.isnan(unknown[-1].get_covariance()).any()
    # A component below the noise floor has the variance of the rest; scikit-learn's own formula divides by 0 there.
    one = np.random.default_rng(0).normal(size=(2_000, 6)) * [4, 1, 1, 1, 1, 1]
    for seed in range(3):
        below = eigenveil.LocalDPPCA(3, 2, random_state=seed).fit(one).estimate_
        assert "below" in below.verdicts_ and np.isfinite(below.to_sklearn().score(one))
    # All directions are components, or none are.
    every = eigenveil.LocalDPPCA(6, 4, random_state=1).fit(rows).estimate_.to_sklearn()
    assert every[-1].noise_variance_ == 0
    assert eigenveil.LocalDPPCA(2, 4, random_state=1).fit(rows).estimate_.k_shares_ is None
    chosen = eigenveil.LocalDPPCA("auto", 4, random_state=1).fit(rows).estimate_
    assert 0 <= chosen.k_shares_["same"] <= 1 and "would choose k = " in chosen._repr_html_()
    none = eigenveil.LocalDPPCA("auto", 0.1, random_state=1).fit(rows[:300]).estimate_.to_sklearn()
    assert none[-1].noise_variance_ == 1 / 6 and none.transform(rows).shape == (2_000, 0)


def test_sparse_finds_the_features():
    pytest.importorskip("sklearn")
    random = np.random.default_rng(1)
    rows = random.normal(size=(20_000, 20))
    rows[:, :4] += 5 * random.normal(size=(20_000, 1))
    fit = eigenveil.LocalDPSparsePCA(1, 4, penalty=0.05, random_state=1).fit(rows)
    assert list(fit.support_) == [0, 1, 2, 3] and fit.converged_
    assert fit.estimate_.support_ == ["x1", "x2", "x3", "x4"] and fit.expected_error_ < 0.5
    shrunk = eigenveil.LocalDPSparsePCA(1, 4, penalty=0.05, random_state=1, refit=False).fit(rows).estimate_
    assert np.isnan([shrunk.expected_error_, *shrunk.alignments_]).all() and shrunk.expected_error_range_ is None
    assert "error not known: the components are not refitted" in repr(shrunk)


def test_every_baseline_runs_and_states_its_privacy():
    rows = np.random.default_rng(1).normal(size=(5_000, 6)) * [4, 3, 1, 1, 1, 1]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    truth = np.linalg.svd(unit, full_matrices=False)[2][:2]
    for algorithm in central.algorithms():
        name = algorithm["name"]
        if not algorithm["neighbours"]:
            fit = central.fit(name, rows, k=2, seed=1)
            assert fit.privacy_ is None
        else:
            own = {"neighbours": algorithm["neighbours"][-1], "calibration": algorithm["calibrations"][0]}
            fit = central.fit(name, rows, k=2, epsilon=2.0, seed=1, **own)
            assert fit.privacy_["claim_holds"] == (own["calibration"] == "accounted"), name
            assert fit.privacy_["guarantee"]
        assert fit.components_.shape == (2, 6) and fit.n == 5_000
    pca = central.fit("pca", rows, k=2)
    np.testing.assert_allclose(pca.components_.T @ pca.components_, truth.T @ truth, atol=1e-9)
    for wrong in [{"k": 7}, {"k": 2, "epsilon": -1.0}, {"k": 2, "no_such": 1}, {"k": 2, "neighbours": "x", "epsilon": 1.0}]:
        with pytest.raises(errors.InputError):
            central.fit("analyze-gauss", rows, **wrong)
    with pytest.raises(errors.InputError, match="analyze-gauss"):
        central.fit("no such", rows, k=2)


def test_prepare_plans_with_public_rows(wines, analyst):
    pandas = pytest.importorskip("pandas")
    names, rows = wines
    prepared = eigenveil.prepare(pandas.DataFrame(rows, columns=names), k=2, n=20_000, epsilon=4)
    assert [feature["name"] for feature in prepared["features"]] == names
    assert prepared["chosen"]["error"] < 1
    study = analyst.create_study("prepared", features=prepared, epsilon=4)
    assert study.feature_names == names
    rows = np.where(np.arange(rows.size).reshape(rows.shape) == 30, np.nan, rows)
    prepared = eigenveil.prepare(pandas.DataFrame(rows, columns=names), k=2, n=20_000, epsilon=4)
    assert prepared["features"][4]["observed"] == pytest.approx(1 - 1 / len(rows), abs=1e-3)
    assert prepared["features"][0]["observed"] == 1 and "no correlations" in " ".join(prepared["warnings"])


def test_prepare_counts_persons_and_encodes_two_values():
    pandas = pytest.importorskip("pandas")
    visits = np.arange(160)
    frame = pandas.DataFrame({"who": visits // 4, "a": visits % 7, "b": visits % 11, "sex": np.where(visits % 3, "f", "m")})
    given = {"k": 1, "n": 20_000, "epsilon": 4, "one_hot": "sex"}
    with pytest.warns(eigenveil.EigenveilWarning, match='1 for "m", 0 for "f"'):
        by_name = eigenveil.prepare(frame, persons="who", **given)
    assert [feature["name"] for feature in by_name["features"]] == ["a", "b", "sex=m|f"]
    assert "40 persons" in by_name["columns"][0]["reason"] and by_name["columns"][0]["scale_factor"] > 1
    with pytest.warns(eigenveil.EigenveilWarning):
        assert eigenveil.prepare(frame.drop(columns="who"), persons=frame["who"], **given) == by_name
    with pytest.warns(eigenveil.EigenveilWarning) as told:
        eigenveil.prepare(frame, **given)
    assert any("of which each fills a few rows" in str(warning.message) for warning in told)
    with pytest.raises(errors.InputError, match="row 10 does not say whose it is"):
        eigenveil.prepare(frame, persons=np.where(visits == 9, "", "a"), **given)


def test_errors_of_commands_name_arguments_and_not_flags():
    with pytest.raises(errors.InputError) as refused:
        eigenveil.plan(p=10, k=2, spectrum=[0.3, 0.2], epsilon=4, target_error=0.3, delta=1e-6, mechanism="double-cap")
    assert "delta" in str(refused.value) and "--" not in str(refused.value)
    with pytest.raises(errors.InputError, match="^unknown field no_such_flag, expected one of p, "):
        eigenveil.plan(epsilon=4, n=1_000, no_such_flag=1)
    with pytest.raises(errors.InputError, match="`n`, the participants expected: .* `target_error`"):
        eigenveil.plan(p=10, k=2, spectrum=[0.3, 0.2], epsilon=4)
    with pytest.raises(errors.InputError, match="^invalid value for 'p': .* 4.5"):
        eigenveil.plan(p=4.5, k=2, spectrum=[0.3, 0.2], epsilon=4, n=1_000)
    with pytest.raises(errors.InputError, match="^unknown field no_such, expected one of model, "):
        eigenveil.simulate(p=5, k=1, n=2_000, epsilon=1, no_such=1)
    with pytest.raises(errors.InputError, match="^invalid value for 'p': .* 4.5"):
        eigenveil.audit(p=4.5, epsilon=1)
    with pytest.raises(errors.InputError, match="^give `epsilon`, or `sigma` and `sensitivity`$"):
        eigenveil.account()
    with pytest.raises(errors.InputError, match="^`radius` 3 is not used with `bound_rows` normalize"):
        eigenveil.simulate(p=5, k=1, n=2_000, epsilon=1, radius=3)
    for wrong in [{"model": "haystack", "spike": 3}, {"drop": "a"}, {"title": "t"}, {"calibration": "as-published"}]:
        with pytest.raises(errors.InputError, match=list(wrong)[-1]):
            eigenveil.simulate(p=5, k=1, n=2_000, epsilon=1, **wrong)
    with pytest.raises(errors.InputError, match="`calibration` has no effect"):
        central.fit("pca", _scaled(200), k=1, calibration="accounted")
    with pytest.raises(errors.InputError, match="refit is not used without sparse=True"):
        eigenveil.simulate(p=5, k=1, n=2_000, epsilon=1, refit=True)
    with pytest.raises(errors.InputError, match="leave epsilon out"):
        central.fit("pca", _scaled(200), k=1, epsilon=1.0)
    with pytest.raises(errors.InputError, match="^`delta` has no effect: .* finite `epsilon`"):
        central.fit("analyze-gauss", _scaled(200), k=1, delta=1e-6)
    with pytest.raises(errors.InputError, match="penalty is -1; .* at least 0"):
        central.sparse_components([[2.0, 1.0], [1.0, 4.0]], k=1, penalty=-1)
    with pytest.warns(eigenveil.EigenveilWarning):
        eigenveil.simulate(p=5, k=1, n=2_000, epsilon=12)


def test_a_sweep_of_rows_in_a_file_and_its_figure(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("a;b;c\n1;2;0\n3;1;0\n2;3;1\n")
    settings = {"n": [200, 300], "k": 1, "epsilon": 8, "delimiter": ";", "header": "yes", "keep": "a, b"}
    found = eigenveil.simulate(rows=rows, plot=tmp_path / "sweep.svg", title="Three rows", **settings)["rows"]
    assert [(own["n"], own["p"]) for own in found] == [(200, 2), (300, 2)]
    assert "Three rows" in (tmp_path / "sweep.svg").read_text(encoding="utf-8")
    centred = eigenveil.simulate(p=6, k=1, n=300, epsilon=4, bound_rows="clip", radius=9, centring=True, spike=9)
    assert centred["centring"] == pytest.approx(0.5**0.5) and centred["p"] == 6


def test_rows_that_are_given_for_a_file_or_a_number_are_not_in_a_message():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = np.array([[987654.25, 2.0], [3.0, 4.0]])
    named = pandas.DataFrame(rows, columns=["987654.25", "2"])
    for given in (rows, rows[0], rows.tolist(), named, polars.from_pandas(named), named["2"], {"a": 987654.25}, 9876.5):
        calls = [
            lambda given=given: eigenveil.simulate(rows=given, n=1_000, k=1, epsilon=4),
            lambda given=given: eigenveil.simulate(p=4, n=1_000, k=1, epsilon=4, plot=given),
            lambda given=given: eigenveil.plan(pilot=given, n=1_000, epsilon=4),
        ]
        if np.ndim(given) == 2:
            calls.append(lambda given=given: eigenveil.plan(spectrum=given, p=4, k=1, n=1_000, epsilon=4))
        for call in calls:
            with pytest.raises(errors.InputError, match="give the path of a file|where a number") as refused:
                call()
            assert "9876" not in str(refused.value)


def test_statistics_are_refused_in_the_words_of_python():
    pytest.importorskip("sklearn")
    rows = _scaled(2_000)
    none = eigenveil.LocalDPPCA(1, 4, observed=0.9).fit(rows).estimate_
    for ask in (none.covariance, none.correlation, lambda: none.covariance_, lambda: none.regress("x1", "x2")):
        with pytest.raises(errors.InputError, match="moment=True"):
            ask()
    hidden = eigenveil.LocalDPPCA(1, 4, bound_rows="clip", radius=5).fit(rows).estimate_
    with pytest.raises(errors.EstimateError) as refused:
        hidden.regress("x1", "x2")
    for why in (str(refused.value), hidden.correlation().refused[0][2]):
        assert "with centring" in why and "--" not in why


def test_sequences_of_any_kind_are_flags():
    flags = {"p": 10, "k": 2, "epsilon": 4, "n": 1_000, "mechanism": "double-cap"}
    known = eigenveil.plan(spectrum=[0.3, 0.2], **flags)
    assert eigenveil.plan(spectrum=(share for share in (0.3, 0.2)), **flags) == known
    assert eigenveil.plan(spectrum=[0.3, 0.2], **{**flags, "n": 1e3, "p": np.float64(10)}) == known
    pandas = pytest.importorskip("pandas")
    assert eigenveil.plan(spectrum=pandas.Series([0.3, 0.2]), **flags) == known


def test_a_count_that_is_none_is_called_so():
    pytest.importorskip("sklearn")
    rows = _scaled(200)
    for k in ("all", -1, 1.5):
        with pytest.raises(errors.InputError, match='whole number.* or "auto"'):
            eigenveil.LocalDPPCA(k).fit(rows)
    for call in (
        lambda: eigenveil.LocalDPPCA(random_state=2**64).fit(rows),
        lambda: central.fit("pca", rows, k=-1),
        lambda: central.fit("analyze-gauss", rows, k=1, epsilon=1.0, seed=-1),
        lambda: central.fit("dp-gd-reap", rows, k=1, iterations=-1),
        lambda: central.sparse_components([[2.0, 1.0], [1.0, 4.0]], k=-1, penalty=0.1),
        lambda: central.sparse_components([[2.0, 1.0], [1.0, 4.0]], k=1, penalty=0.1, threads=-1),
    ):
        with pytest.raises(errors.InputError, match="a whole number"):
            call()


def test_a_file_that_is_no_estimate(tmp_path):
    pytest.importorskip("sklearn")
    estimate = eigenveil.LocalDPPCA(1, 4).fit(_scaled(200)).estimate_
    estimate.save(tmp_path / "estimate.json")
    for content in (b"", b"\xff\xfe\x00", (tmp_path / "estimate.json").read_bytes()[:500], b'{"a": 1}'):
        (tmp_path / "other.json").write_bytes(content)
        with pytest.raises(errors.InputError) as refused:
            eigenveil.Estimate.load(tmp_path / "other.json")
        assert refused.value.code == "malformed-json"
    with pytest.raises(FileNotFoundError):
        eigenveil.Estimate.load(tmp_path / "no.json")
    for touch in (eigenveil.Estimate.load, estimate.save):
        with pytest.raises(IsADirectoryError):
            touch(tmp_path)


def test_a_plan_from_a_pilot(analyst):
    pytest.importorskip("sklearn")
    rows = np.random.default_rng(1).normal(size=(20_000, 6)) * [4, 3, 1, 1, 1, 1]
    pilot = eigenveil.LocalDPPCA(2, 4, random_state=1).fit(rows).estimate_
    planned = eigenveil.plan(pilot=pilot, epsilon=4, n=100_000)
    assert planned["p"] == 6 and 0 < planned["rows"][0]["error"] < pilot.expected_error_


def test_sites_stand_between_single_rows_and_a_curator():
    planned = eigenveil.plan(
        p=40, k=2, spectrum=[0.3, 0.2, 0.05], epsilon=1, delta=1e-7, sites=10, rows=100_000, mechanism="double-cap"
    )["rows"]
    assert [row.get("sites") for row in planned] == [None, 10, 1]
    errors = [row["error"] for row in planned]
    assert errors[0] > errors[1] > errors[2]
    found = eigenveil.simulate(p=10, k=1, n=3_000, sites=[1, 30], epsilon=4, spike=20)["rows"]
    assert found[0]["error_mean"] < found[1]["error_mean"] and found[1]["sites"] == 30
