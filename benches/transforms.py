"""Whether a monotone transform of columns of money gains: log1p and asinh beside none, with numpy alone.

    pip install numpy && python benches/transforms.py [TABLES]        (default: ../shared/data/tables; two minutes)

Participants are drawn with replacement from a table that is prepared as `eigenveil prepare` proposes: less the mean of
each column, over its standard deviation to three digits, then divided by the row's length. double-cap is simulated
exactly (docs/derivations/double-cap.md). The result is in docs/tables.md, "Heavy tails".
"""

import csv
import math
import pathlib
import sys

import numpy as np

EPSILON, K, PARTICIPANTS, STUDIES = 4.0, 3, 30_000, 60
# Columns of money, of which the last one is looked at.
MONEY = {
    "medical_spending": ["med"],
    "working_hours": ["income"],
    "health_insurance": ["husby"],
    "mroz": ["hearnw", "wagew", "wageh", "income"],
}
TRANSFORMS = {"none": lambda x: x, "log1p": np.log1p, "asinh": np.arcsinh}


def constants(p):
    """τ and c of double-cap, by a grid over the angle between a direction and the row."""
    angle = (np.arange(400_000) + 0.5) / 400_000 * math.pi / 2
    density = np.sin(angle) ** (p - 2)
    density /= density.sum()
    squared = np.cos(angle) ** 2
    inside, inside_squares = np.cumsum(density), np.cumsum(density * squared)
    a = math.expm1(EPSILON)
    gain = a * (inside_squares - inside / p) / (1 + inside * a)
    best = gain.argmax()
    return squared[best], (p - 1) / (p * gain[best])


def mean_report(rows, tau, c, rng):
    """The mean decoded report of one report of each unit row, with the trace of unit rows."""
    n, p = rows.shape
    total = np.zeros((p, p))
    while len(rows):
        g = rng.standard_normal(rows.shape)
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        kept = ((g * rows).sum(1) ** 2 > tau) | (rng.random(len(rows)) < math.exp(-EPSILON))
        total += g[kept].T @ g[kept]
        rows = rows[~kept]
    return c * (total / n - np.eye(p) / p) + np.eye(p) / p


def components(moment):
    return np.linalg.eigh(moment)[1][:, ::-1][:, :K]


def correlations(moment, y):
    deviations = np.sqrt(np.maximum(np.diag(moment), 1e-12))
    return np.delete(moment[y] / deviations[y] / deviations, y)


def coefficients(moment, y):
    others = np.delete(np.arange(len(moment)), y)
    return np.linalg.solve(moment[np.ix_(others, others)], moment[others, y])


def standing(statistic, truth, moments, y):
    """Which of these are more than 1.96 standard deviations of a study from 0."""
    spread = np.std([statistic(moment, y) for moment in moments], axis=0, ddof=1)
    return np.abs(statistic(truth, y)) > 1.96 * spread


def main(folder):
    for table, money in MONEY.items():
        names, *rows = csv.reader((folder / f"{table}.csv").open())
        values = np.array(rows, dtype=float)
        p, y = len(names), names.index(money[-1])
        columns = [names.index(name) for name in money]
        others = [name for name in names if name != money[-1]]
        tau, c = constants(p)
        for transform, function in TRANSFORMS.items():
            x = values.copy()
            with np.errstate(invalid="ignore"):
                x[:, columns] = function(x[:, columns])
            readable = np.isfinite(x).all(1)
            x = x[readable]
            scores = (x - x.mean(0)) / [float(f"{deviation:.2e}") for deviation in x.std(0)]
            units = scores / np.linalg.norm(scores, axis=1, keepdims=True)
            truth = units.T @ units / len(units)
            rng = np.random.default_rng(1)
            drawn = (units[rng.integers(len(units), size=PARTICIPANTS)] for _ in range(STUDIES))
            moments = [mean_report(sample, tau, c, rng) for sample in drawn]
            known = components(truth)
            projectors = [components(moment) @ components(moment).T for moment in moments]
            error = np.mean([np.linalg.norm(projector - known @ known.T) for projector in projectors])
            pairs = standing(correlations, truth, moments, y).sum()
            predictors = [name for name, stands in zip(others, standing(coefficients, truth, moments, y)) if stands]
            print(
                f"{table} {money[-1]} {transform}: {(~readable).sum()} rows outside; fourth moment {np.mean(scores[:, y] ** 4):.1f};"
                f" error {error:.2f}; {pairs} of {p - 1} correlations; predictors: {', '.join(predictors) or 'none'}",
                flush=True,
            )


if __name__ == "__main__":
    default = pathlib.Path(__file__).resolve().parents[2] / "shared/data/tables"
    main(pathlib.Path(sys.argv[1]) if sys.argv[1:] else default)
