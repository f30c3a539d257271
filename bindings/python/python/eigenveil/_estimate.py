"""An estimate: components with verdicts, and what follows from them."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from . import _core, _rows
from ._request import read_json
from ._rows import Floats
from .errors import InputError

_Answer = TypeVar("_Answer")


class Intervals(NamedTuple):
    """Values with their standard errors and 95 % intervals; NaN where a value is refused, and why it is.

    ``of`` says what they are numbers of: under ``"normalize"`` of directions, and not of values, whose correlations may
    lie outside the intervals.
    """

    value: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    refused: list[tuple[str, str, str]]
    of: str


class Estimate(_rows.Copies):
    """The estimated principal subspace of a study, with its accuracy.

    Made by :meth:`Analyst.estimate`, by the ``fit`` of :class:`LocalDPPCA`, or by :meth:`load`.

    Attributes
    ----------
    components_ : array of k × p
        Unit vectors; the loading of largest magnitude is positive.
    explained_variance_, explained_variance_ratio_ : array of k
        With the noise removed, in squared units of the prepared rows; NaN where unknown. The ratio is unknown if the
        total variance is unknown (``double-cap`` with ``"clip"`` or ``"require"`` and no private centring); the
        variance is then the component's excess over the other directions, a lower bound without a standard error.
    mean_ : array of p, or None
        Of the prepared rows, in a study with private centring.
    feature_names_in_ : array of p str
    n_features_in_, n_components_, n_reports_ : int
    k_is_open_ : bool
        Whether no gap says where the components end (``k="auto"``): then k is a guess, and the upper end of the error's
        range is the cautious number.
    k_shares_ : dict, or None
        How firm k is: the shares of such studies of the same people that would choose ``one_fewer``, the ``same`` and
        ``one_more``; None for a fixed k.
    verdicts_ : list of str
        ``"above"``, ``"at"`` or ``"below"`` the noise floor.
    groups_ : list of dict
        Components that cannot be told apart: ``first`` and ``last`` (from 1), ``verdict``, ``alignment``, …
    alignments_, alignment_errors_ : array of k
        Squared cosine with the true component, and its standard error; NaN where it is not known, as of a component
        that is not above the noise.
    expected_error_ : float
        Expected ‖V̂V̂ᵀ − VVᵀ‖; ``expected_error_range_`` contains it in nine of ten cases. NaN and None without
        components and for a sparse estimate without ``refit``, and so are the alignments.
    warnings_, warning_codes_ : list of str
        Sentences, and their stable codes.
    privacy_ : dict
        What one report promises; ``privacy_["sentence"]`` in words.
    eigenvalues_ : array of p
        The noisy spectrum, noise included.
    floor_ : dict
    support_ : list of str, or None
        The features that a sparse estimate selected.
    sites_ : dict, or None
        Of a study of sites: ``sites``, a line for each, with ``verdict`` (``None`` where it is not compared),
        ``one_of_several`` (nobody can tell which of these differs), ``means`` and ``moments`` beside the others, and
        ``movement`` of the components without it; ``intervals`` of each component's variance by target; ``rows``,
        ``error_of_rows``, ``error_of_sites``, ``robust``, …
    """

    def __init__(self, core: _core.Estimate | None = None, *_: object, **__: object) -> None:
        if not isinstance(core, _core.Estimate):
            raise TypeError("an estimate is made by Analyst.estimate, LocalDPPCA.fit or Estimate.load")
        self._core = core
        self._document, self._derived = read_json(core.to_json()), read_json(core.derived())
        document, derived = self._document, self._derived
        components = document["components"]
        self.n_features_in_, self.n_components_, self.n_reports_ = (int(document[key]) for key in ("p", "k", "n"))
        loadings = np.array([component["loadings"] for component in components], dtype=np.float64)
        self.components_: Floats = loadings.reshape(self.n_components_, self.n_features_in_)
        self.explained_variance_ = _numbers(derived["variance"])
        self.explained_variance_errors_ = _numbers(derived["variance_se"])
        self.explained_variance_ratio_ = _numbers(component["explained_variance_ratio"] for component in components)
        self.mean_ = None if document["mean"] is None else _numbers(document["mean"])
        self.feature_names_in_ = np.array(derived["names"], dtype=object)
        self.k_is_open_ = bool(document["k_is_open"])
        self.k_shares_: dict[str, float] | None = document.get("k_shares")
        self.verdicts_: list[str] = [component["verdict"] for component in components]
        self.groups_: list[dict[str, Any]] = document["groups"]
        self.alignments_ = _numbers(derived["alignment"])
        self.alignment_errors_ = _numbers(derived["alignment_se"])
        self.expected_error_ = float(_numbers([document["expected_error"]])[0])
        found = document["expected_error_range"]
        self.expected_error_range_ = None if found is None else (float(found[0]), float(found[1]))
        self.eigenvalues_ = _numbers(document["eigenvalues"])
        self.floor_: dict[str, Any] = document["floor"]
        sparse = document["sparse"]
        self.support_ = None if sparse is None else [str(derived["names"][row]) for row in sparse["support"]]
        self.sites_: dict[str, Any] | None = document.get("sites")
        self.warnings_: list[str] = document["warnings"]
        self.warning_codes_: list[str] = document["warning_codes"]
        self.privacy_: dict[str, Any] = document["privacy"]
        # The arrays are shared with other objects.
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @classmethod
    def from_json(cls, text: str) -> Estimate:
        """Reads an estimate from the text of an ``estimate.json``."""
        return cls(_core.Estimate.from_json(text.encode()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Estimate:
        """From an ``estimate.json``, as the command line and the server's pages write it.

        Raises ``OSError`` if the file cannot be opened, and ``InputError`` if it is not an estimate.
        """
        with open(path, "rb") as file:
            return cls(_core.Estimate.from_json(file.read()))

    def to_json(self) -> str:
        """The document."""
        return self._core.to_json()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the document."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    def to_dict(self) -> dict[str, Any]:
        """The document, as Python reads its JSON."""
        return read_json(self.to_json())

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (Estimate.from_json, (self.to_json(),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Estimate) and self._document == other._document

    __hash__ = None  # type: ignore[assignment]

    def _table(self, rows: Any) -> Floats:
        names = self._derived["names"] if self._derived["named"] else None
        values = _rows.ordered(_rows.table(rows, expected=names), names, "the estimate")
        if values.shape[1] != self.n_features_in_:
            sentence = f"the table has {values.shape[1]} columns; the estimate has {self.n_features_in_} features"
            raise InputError(sentence, "wrong-dimension")
        return values

    def transform(self, rows: Any) -> Floats:
        """Scores of rows on the components, n × k: of the rows as the study prepares them, less the mean if it is
        known. Columns are matched by name. Nothing is sent anywhere."""
        return self._core.transform(self._table(rows))

    def inverse_transform(self, scores: Any) -> Floats:
        """The prepared rows nearest to these scores, n × p."""
        found = _rows.floats(scores, "the scores")
        if found.ndim != 2 or found.shape[1] != self.n_components_:
            sentence = f"the scores have shape {found.shape}; they must be n × {self.n_components_}"
            raise InputError(sentence, "wrong-dimension")
        back: Floats = found @ self.components_
        return back if self.mean_ is None else back + self.mean_

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, np.dtype[np.object_]]:
        """``component1``, …"""
        return np.array([f"component{j + 1}" for j in range(self.n_components_)], dtype=object)

    def to_frame(self) -> Any:
        """A pandas frame: one row per component, with variance, alignment, verdict, group and loadings."""
        pandas = _package("pandas")
        groups = [None if group is None else f"{group[0]}–{group[1]}" for group in self._derived["group"]]
        columns = {
            "verdict": self.verdicts_,
            "group": groups,
            "variance": self.explained_variance_,
            "variance_se": self.explained_variance_errors_,
            "explained": self.explained_variance_ratio_,
            "alignment": self.alignments_,
            "alignment_se": self.alignment_errors_,
        }
        frame = pandas.DataFrame(columns, index=self.get_feature_names_out())
        loadings = pandas.DataFrame(self.components_, index=frame.index, columns=list(self.feature_names_in_))
        return pandas.concat([frame, loadings], axis=1)

    def to_sklearn(self) -> Any:
        """A scikit-learn pipeline that transforms as this does: the study's preparation, then a fitted ``PCA``.

        The attributes of the ``PCA`` are estimates for the prepared rows, with the noise of the reports removed, and
        around 0 without private centring. ``noise_variance_`` is the mean variance outside the components; where the
        estimate does not know it, it is NaN, and so are ``get_covariance`` and ``score``.
        """
        pipeline, preprocessing = _package("sklearn.pipeline"), _package("sklearn.preprocessing")
        from ._fitted import PCA

        pca = PCA(n_components=self.n_components_)
        pca.components_ = self.components_
        pca.mean_ = np.zeros(self.n_features_in_) if self.mean_ is None else self.mean_
        pca.explained_variance_ = self.explained_variance_
        pca.explained_variance_ratio_ = self.explained_variance_ratio_
        pca.n_components_, pca.n_features_in_, pca.n_samples_ = self.n_components_, self.n_features_in_, self.n_reports_
        pca.singular_values_ = np.sqrt(self.explained_variance_ * (self.n_reports_ - 1))
        pca.noise_variance_ = self._variance_outside()
        prepared = preprocessing.FunctionTransformer(self.prepare, feature_names_out="one-to-one")
        prepared.n_features_in_ = self.n_features_in_
        if self._derived["named"]:
            prepared.feature_names_in_ = self.feature_names_in_
        return pipeline.Pipeline([("prepare", prepared), ("pca", pca)])

    def _variance_outside(self) -> float:
        """Mean variance of the directions outside the components; NaN if it is unknown or not positive."""
        directions = self.n_features_in_ - self.n_components_
        if directions == 0:
            return 0.0
        total: float | None = self._document["total_variance"]
        rest = np.nan if total is None else total - float(self.explained_variance_.sum())
        return rest / directions if rest > 0 else np.nan

    def prepare(self, rows: Any) -> Floats:
        """The rows as the study prepares them, n × p: less its centers, over its scales, within the unit ball."""
        return self._core.prepare(self._table(rows))

    @property
    def covariance_(self) -> Floats:
        """Covariance (with private centring) or second moment E[xxᵀ] of the prepared rows, p × p: projected.

        The covariance matrix that a population can have and that is nearest to :meth:`covariance`, for whatever needs a
        covariance matrix. It is biased: to average over studies, use :meth:`covariance`, which has standard errors. If
        the reports do not show variances, the diagonal is NaN and nothing is projected.
        """
        return self._statistics(self._core.covariance)[0]

    def covariance(self) -> Intervals:
        """The unbiased covariance or second moment, with standard errors and 95 % intervals; unlike :attr:`covariance_`
        it is not always positive semidefinite."""
        _, raw, errors = self._statistics(self._core.covariance)
        half = 1.959963984540054 * errors
        return Intervals(raw, errors, raw - half, raw + half, [], self._described())

    def _described(self) -> str:
        """What the numbers of the moment describe."""
        normalized = self._document["params"]["preprocessing"]["norm"]["kind"] == "normalize"
        return "directions" if normalized else "values"

    def correlation(self) -> Intervals:
        """Correlations of all pairs of features, p × p, with 95 % intervals; ``refused`` says why there is none.

        Under ``"normalize"`` they are those of directions (``of``), not of values. Two categories of one variable have
        none.
        """
        (value, error, low, high), refused = self._statistics(self._core.correlations)
        names = self._derived["names"]
        refusals = [(names[i], names[j], why) for i, j, why in refused]
        return Intervals(value, error, low, high, refusals, self._described())

    def _statistics(self, statistic: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """The result of a statistic of the moment; ``InputError`` without a moment."""
        if "mean_report" not in self._document:
            none = "Studies with missing cells or weights, and fits with more than 1,000 features, have none"
            ask = "ask for one with Analyst.estimate(study, moment=True)"
            raise InputError(f"this estimate has no moment; {ask}. {none}", "invalid-request")
        return statistic(*arguments)

    def regress(self, y: str, x: str | Sequence[str]) -> dict[str, tuple[float, float, float, float]]:
        """The best linear prediction of one feature by others, in units of the prepared rows: for each predictor value,
        standard error, lower and upper end of the 95 % interval.

        Raises ``EstimateError`` if the predictors' covariance is not known well enough.
        """
        predictors = [x] if isinstance(x, str) else list(x)
        return dict(zip(predictors, self._statistics(self._core.regress, y, predictors), strict=True))

    def figures(self) -> dict[str, str]:
        """The pictures of the server's pages as SVG, by file name: ``scree.svg``, ``alignment.svg``, …"""
        return dict(self._core.figures())

    def plot_scree(self, ax: Any = None) -> Any:
        """The variance of each component, noise removed, and the noise floor, as in ``scree.svg``; returns the axes."""
        ax = _axes(ax)
        shown = self.explained_variance_
        rest = self._document["variances"][len(shown) :]
        values = np.concatenate([shown, np.array(rest, dtype=np.float64)])
        counted = np.arange(1, len(values) + 1)
        ax.plot(counted, values, "o-", markersize=4, label="variance")
        if (floor := self.floor_.get("variance")) is not None:
            ax.axhline(floor["threshold"], linestyle="--", color="0.4", label="a component counts above")
            ax.axhline(floor["edge"], linestyle=":", color="0.6", label="hidden by the noise below")
        bound = "at least, " if self._derived["variances_are_lower_bounds"] else ""
        ax.set(xlabel="component", ylabel=f"variance, {bound}noise removed")
        ax.legend()
        return ax

    def plot_loadings(self, component: int = 1, top: int = 20, ax: Any = None) -> Any:
        """The loadings of one component (from 1), the largest first, by matplotlib; returns the axes."""
        place = self._place(component)
        loadings, group = self.components_[place], self._derived["group"][place]
        stands = f"{self.verdicts_[place]} the noise floor"
        if group is not None:
            stands += f", as one of {group[0]}–{group[1]}: a single direction of them is arbitrary"
        order = np.argsort(-np.abs(loadings))[:top][::-1]
        ax = _axes(ax)
        ax.barh([str(self.feature_names_in_[row]) for row in order], loadings[order])
        ax.axvline(0, color="0.4", linewidth=0.8)
        ax.set(xlabel=f"loading on component {component} ({stands})")
        return ax

    def plot_correlations(self, top: int = 24, ax: Any = None) -> Any:
        """The correlations of the ``top`` features that have the largest ones, as colours by matplotlib, with a dot where
        one may be 0; blank where it is refused. Returns the axes."""
        found = self.correlation()
        value = found.value.copy()
        np.fill_diagonal(value, np.nan)
        sure = (found.low > 0) | (found.high < 0)
        largest = np.where(sure & ~np.isnan(value), np.abs(value), 0).max(axis=0)
        rows = np.sort(np.argsort(-largest, kind="stable")[:top])
        shown, sure = value[np.ix_(rows, rows)], sure[np.ix_(rows, rows)]
        ax = _axes(ax)
        image = ax.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1)
        down, across = np.nonzero(~sure & ~np.isnan(shown))
        ax.plot(across, down, ".", color="0.4", markersize=3)
        names = [str(name) for name in self.feature_names_in_[rows]]
        ax.set_xticks(range(len(rows)), names, rotation=90)
        ax.set_yticks(range(len(rows)), names)
        ax.figure.colorbar(image, ax=ax, label="correlation (a dot: may be 0)")
        return ax

    def plot_biplot(self, rows: Any, axes: tuple[int, int] = (1, 2), top: int = 12, ax: Any = None) -> Any:
        """The rows and the largest loadings over two components (from 1), by matplotlib; reveals the rows. Returns the
        axes."""
        first, second = (self._place(component) for component in axes)
        scores = self.transform(rows)[:, [first, second]]
        if len(scores) == 0:
            raise InputError("the table has no rows; give at least one")
        arrows = self.components_[[first, second]].T
        ax = _axes(ax)
        ax.scatter(scores[:, 0], scores[:, 1], s=6, alpha=0.5)
        length = np.hypot(*arrows.T)
        reach = np.abs(scores).max() / max(float(length.max()), 1e-300)
        for row in np.argsort(-length)[:top]:
            x, y = arrows[row] * reach
            ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": "0.3"})
            ax.text(x, y, str(self.feature_names_in_[row]), fontsize=8)
        ax.set(xlabel=f"component {axes[0]}", ylabel=f"component {axes[1]}")
        return ax

    def _place(self, component: int) -> int:
        if not 1 <= component <= self.n_components_:
            raise InputError(f"there is no component {component}; there are 1 to {self.n_components_}")
        return component - 1

    def __repr__(self) -> str:
        above, k = self.verdicts_.count("above"), self.n_components_
        found = "no component above the noise floor"
        if k > 0:
            found = f"{above} of {k} components above the noise floor, {self._derived['error']}"
        sample = f"{self.n_reports_} reports" if self.sites_ is None else self._derived["sample"]
        return f"Estimate({sample}, p = {self.n_features_in_}, {found})"

    def _repr_html_(self) -> str:
        heads = ["component", "variance", "explained", "alignment", "direction", "verdict"]
        head = "".join(f"<th>{name}</th>" for name in heads)
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._derived["table"])
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        told = [*self._derived["count"], *self._derived["sites"], *self.warnings_]
        notes = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in told)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        sites = "".join(self._derived["site_tables"])
        scree = self.figures().get("scree.svg", "")
        return f"<p>{html.escape(repr(self))}</p>{table}{sites}<ul>{notes}</ul>{scree}"


def _numbers(values: Iterable[float | None]) -> Floats:
    """As an array, NaN where there is none."""
    return np.array(list(values), dtype=np.float64)


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = {"sklearn": "scikit-learn"}.get(name.split(".")[0], name.split(".")[0])
        raise ImportError(f"this needs {package}: pip install {package}") from error


def _axes(ax: Any) -> Any:
    return _package("matplotlib.pyplot").subplots()[1] if ax is None else ax
