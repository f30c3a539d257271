"""Three exhibits of `eigenveil reproduce`, computed again by plain numpy that shares no code with them.

    pip install numpy && python benches/papers.py [--results docs/papers] [--data ../shared/data]

* wang-xu-figure-3: Algorithm 1 of Wang & Xu with its printed noise, on the paper's model.
* maunu-figure-1: dp-ggd and dp-sggd of Maunu, Yu & Lerman with their printed noise, on the haystack.
* wang-xu-figure-1: Algorithm 1 on Covertype, with the printed noise.

Each line has numpy's mean ± standard deviation beside the CSV's. They agree when they are less than four standard errors
of the difference apart (two-sided false-alarm rate 6e-5 a line) or within a factor of 10 where errors are below 1e-6,
which is rounding. Ends with 1 where one does not.
"""
import argparse
import csv
import pathlib

import numpy as np

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--results", default="docs/papers")
arguments.add_argument("--data", default="../shared/data")
arguments.add_argument("--repeats", type=int, default=10)
given = arguments.parse_args()
failures = 0


def records(exhibit):
    with open(pathlib.Path(given.results) / f"{exhibit}.csv") as file:
        return list(csv.DictReader(file))


def distance(a, b):
    return np.linalg.norm(a @ a.T - b @ b.T)


def leading(s, k):
    return np.linalg.eigh(s)[1][:, -k:]


def printed_noise(p, epsilon, n, rng):
    """Of the mean of n reports: sqrt(2 ln(1.25/delta))/epsilon on each entry of the upper triangle, delta = 1e-4."""
    sd = np.sqrt(2 * np.log(1.25 / 1e-4)) / epsilon / np.sqrt(n)
    upper = np.triu(rng.normal(0, sd, (p, p)))
    return upper + np.triu(upper, 1).T


def show(name, ours, deviation, repeats, numpys):
    global failures
    mean, std = np.mean(numpys), np.std(numpys, ddof=1)
    gap = abs(mean - ours)
    allowed = 4 * np.sqrt(std**2 / len(numpys) + deviation**2 / repeats)
    same = gap <= allowed + 1e-9 or (max(mean, ours) < 1e-6 and 0.1 < mean / ours < 10)
    failures += not same
    print(f"{name:60} ours {ours:.4g} ± {deviation:.2g}   numpy {mean:.4g} ± {std:.2g}   {'same' if same else 'OTHER'}")


def model_errors(n, p, k, epsilon, rng):
    frame = np.linalg.qr(rng.normal(size=(p, k)))[0]
    unit = np.sqrt(1 / (10 * p))
    rows = unit * (rng.normal(size=(n, p)) + rng.normal(size=(n, k)) @ frame.T)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.maximum(lengths, 1)
    return distance(leading(rows.T @ rows / n + printed_noise(p, epsilon, n, rng), k), frame)


def figure_3():
    rng = np.random.default_rng(1)
    for r in records("wang-xu-figure-3"):
        n, p, k, epsilon = int(r["n"]), int(r["p"]), int(r["k"]), float(r["epsilon"])
        if r["calibration"] != "as-published" or n > 100_000:
            continue
        errors = [model_errors(n, p, k, epsilon, rng) for _ in range(given.repeats)]
        name = f"wang-xu-figure-3 n = {n}, p = {p}, k = {k}, eps = {epsilon}"
        show(name, float(r["error_mean"]), float(r["error_sd"]), int(r["repeats"]), errors)


def covertype():
    rng = np.random.default_rng(2)
    rows = np.load(pathlib.Path(given.data) / "covtype15k.npy").astype(float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for r in records("wang-xu-figure-1"):
        if r["calibration"] != "as-published" or r["panel"] != "Covertype":
            continue
        n, p, k, epsilon = int(r["n"]), int(r["p"]), int(r["k"]), float(r["epsilon"])
        truth = leading(rows.T @ rows / len(rows), k)
        errors = []
        for _ in range(given.repeats):
            times = np.bincount(rng.integers(len(rows), size=n), minlength=len(rows))
            moment = (rows * times[:, None]).T @ rows / n
            errors.append(distance(leading(moment + printed_noise(p, epsilon, n, rng), k), truth))
        name = f"wang-xu-figure-1 Covertype n = {n}"
        show(name, float(r["error_mean"]), float(r["error_sd"]), int(r["repeats"]), errors)


def polar(a):
    u, _, vt = np.linalg.svd(a, full_matrices=False)
    return u @ vt


def haystack(n, d, r, rng):
    frame = np.linalg.qr(rng.normal(size=(d, r)))[0]
    inlier = rng.random(n) < 0.5
    near = rng.normal(size=(n, r)) @ frame.T / np.sqrt(r)
    rows = np.where(inlier[:, None], near, rng.normal(size=(n, d)) / np.sqrt(d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), frame


def descent(stochastic, rng, n=2_000, d=20, r=2, epsilon=0.8):
    delta, steps = 1 / np.sqrt(n), n
    rows, frame = haystack(n, d, r, rng)
    v = leading(rows.T @ rows, r)
    log = np.log(1 / delta)
    rate = max(np.sqrt(epsilon / (4 * steps)), 1 / n)
    if stochastic:
        sd = rate * np.sqrt(steps * log) / (epsilon * n)
    else:
        sd = np.sqrt(steps) * log / (epsilon * n)
    for step in range(steps):
        batch = rows[rng.random(n) < rate] if stochastic else rows
        residual = batch - batch @ v @ v.T
        length = np.linalg.norm(residual, axis=1, keepdims=True)
        inside = (length > 1e-15)[:, 0]
        gradient = (residual[inside] / length[inside]).T @ (batch[inside] @ v) / (rate * n if stochastic else n)
        v = polar(v + 0.5 ** (step // 50) * (gradient + sd * rng.normal(size=v.shape)))
    return distance(v, frame)


def convergence():
    rng = np.random.default_rng(3)
    last = {}
    for r in records("maunu-figure-1"):
        if r["calibration"] == "as-published" and r["algorithm"] in ("dp-ggd", "dp-sggd"):
            last[r["algorithm"]] = r
    for name, r in last.items():
        errors = [descent(name == "dp-sggd", rng) for _ in range(given.repeats)]
        ours = float(r["error_median"])
        show(f"maunu-figure-1 {name}, as printed, {r['iteration']} steps (medians)", ours, 0.0, int(r["repeats"]),
             [np.median(errors)] * 2)


figure_3()
covertype()
if (pathlib.Path(given.results) / "maunu-figure-1.csv").exists():
    convergence()
raise SystemExit(1 if failures else 0)
