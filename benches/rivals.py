"""Eigenveil's solver against numpy and scikit-learn, on the same matrices in the same run.

    python -m venv /tmp/rivals && /tmp/rivals/bin/pip install -r benches/requirements.txt
    /tmp/rivals/bin/python benches/rivals.py [--skip-sklearn] [--json FILE]

One thread on both sides; processor time, medians; the two sides take turns. The numpy loops stop on residuals
of 1e-4 sqrt(p) and prove nothing: their duality gap is computed after the clock has stopped. Ours stops
on a proved relative gap of 1e-4, and the proof is inside its time.
"""

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def spikes(p, k, rng):
    """k orthonormal directions, each on its own ten rows, and their sizes from 1 to 2."""
    vectors = np.zeros((p, k))
    for j in range(k):
        vectors[10 * j : 10 * j + 10, j] = rng.choice([-1.0, 1.0], 10) / np.sqrt(10)
    return vectors, np.linspace(1.0, 2.0, k)


def instance(p, k, seed=1):
    """Spikes in symmetric Gaussian noise whose eigenvalues end at 0.6."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((p, p)) * 0.3 / np.sqrt(p)
    vectors, sizes = spikes(p, k, rng)
    return (vectors * sizes) @ vectors.T + np.tril(noise) + np.tril(noise, -1).T


def capped_simplex(values, k):
    """min(max(values - t, 0), 1) with the t that makes the sum k, between two sorted breakpoints."""
    breaks = np.sort(np.concatenate([values, values - 1]))
    total = lambda t: np.clip(values - t, 0, 1).sum()
    low, high = 0, len(breaks) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(breaks[middle]) >= k else (low, middle)
    above, below = total(breaks[low]), total(breaks[high])
    share = (above - k) / (above - below) if above > below else 0.0
    return np.clip(values - breaks[low] - share * (breaks[high] - breaks[low]), 0, 1)


def numpy_loop(s, k, lam, warm, rho=1.0, cap=2000):
    """The ADMM loop as the papers print it; `warm` starts it from clip(S) and the projector of soft(S)."""
    p = len(s)
    y, u = np.zeros_like(s), np.zeros_like(s)
    if warm:
        u = np.clip(s, -lam, lam) / rho
        _, vectors = np.linalg.eigh(s - rho * u)
        y = vectors[:, -k:] @ vectors[:, -k:].T
    for iteration in range(1, cap + 1):
        values, vectors = np.linalg.eigh(y - u + s / rho)
        weights = capped_simplex(values, k)
        kept = weights > 0
        x = (vectors[:, kept] * weights[kept]) @ vectors[:, kept].T
        old = y
        y = x + u
        y = np.sign(y) * np.maximum(np.abs(y) - lam / rho, 0)
        u = u + x - y
        primal, dual = np.linalg.norm(x - y), rho * np.linalg.norm(y - old)
        if max(primal, dual) <= 1e-4 * np.sqrt(p):
            break
    return x, rho * u, iteration


def relative_gap(s, k, lam, x, z):
    z = np.clip(z, -lam, lam)
    np.fill_diagonal(z, lam)
    top = lambda m: np.linalg.eigvalsh(m)[-k:].sum()
    centred = s - np.trace(s) / len(s) * np.eye(len(s))
    return (top(s - z) - (s * x).sum() + lam * np.abs(x).sum()) / top(centred)


def timed(run):
    start = time.process_time()
    result = run()
    return 1e3 * (time.process_time() - start), result


def ours(binary, *words):
    line = subprocess.run([binary, *map(str, words)], check=True, capture_output=True, text=True).stdout
    return json.loads(line)


def build():
    command = ["cargo", "bench", "--workspace", "--bench", "rivals", "--no-run", "--message-format=json"]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for message in map(json.loads, lines):
        if message.get("target", {}).get("name") == "rivals" and message.get("executable"):
            return message["executable"]
    raise SystemExit("cargo did not say where the bench program is")


def fantope(binary, folder, p, lam, repeats, cold=True, k=10, tolerance=1e-4):
    s = instance(p, k)
    path = folder / "matrix"
    s.T.tofile(path)
    times = {"cold": [], "warm": [], "ours": []}
    row = {"what": "fantope", "p": p, "k": k, "lambda": lam}
    for _ in range(repeats):
        for name in ("cold", "warm") if cold else ("warm",):
            spent, (x, z, iterations) = timed(lambda: numpy_loop(s, k, lam, name == "warm"))
            times[name].append(spent)
            row[name] = {"iterations": iterations, "gap": relative_gap(s, k, lam, x, z)}
        answer = ours(binary, "fantope", path, p, k, lam, tolerance, 9)
        times["ours"].append(answer.pop("ms"))
        row["ours"] = answer
    for name, values in times.items():
        if values:
            row[name]["ms"] = statistics.median(values)
            row[name]["ratio"] = row[name]["ms"] / statistics.median(times["ours"])
    return row


def leading(binary, folder, p, repeats, k=10):
    """scipy proves nothing, so it stands beside our search without the proof, at an error that is no smaller than ours.
    The error is by how much the vectors leave the span of numpy's."""
    from scipy.sparse.linalg import eigsh

    s = instance(p, k)
    path = folder / "matrix"
    s.T.tofile(path)
    exact = np.linalg.eigh(s)[1][:, -k:]
    rivals = {
        "numpy eigh": ("proved", lambda: np.linalg.eigh(s)[1][:, -k:]),
        "scipy eigsh, tol 0": ("to 1e-14", lambda: eigsh(s, k, which="LA", tol=0)[1]),
        "scipy eigsh, tol 1e-4": ("to 1e-5", lambda: eigsh(s, k, which="LA", tol=1e-4)[1]),
    }
    answers, times, errors = [], {name: [] for name in rivals}, {}
    for _ in range(repeats):
        for name, (_, run) in rivals.items():
            spent, vectors = timed(run)
            times[name].append(spent)
            errors[name] = float(np.linalg.norm(vectors - exact @ (exact.T @ vectors)))
        answers.append(ours(binary, "leading", path, p, k, 5))
    row = {"what": "leading", "p": p, "k": k}
    for name, first in answers[0].items():
        ms = statistics.median(answer[name]["ms"] for answer in answers)
        row[f"ours, {name}"] = {"ms": ms, "ratio": 1.0, "error": first["error"]}
    for name, (beside, _) in rivals.items():
        ms = statistics.median(times[name])
        row[name] = {"ms": ms, "ratio": ms / row[f"ours, {beside}"]["ms"], "error": errors[name]}
    return row


def sparse_pca(binary, folder, p=400, n=2000, k=10):
    """Rows without privacy noise: unit variance plus the spikes. Several alphas for each rival, its best
    error and that fit's time; ours gets one lambda, from n and p alone."""
    from sklearn.decomposition import MiniBatchSparsePCA, SparsePCA

    rng = np.random.default_rng(7)
    vectors, sizes = spikes(p, k, rng)
    data = rng.standard_normal((n, p)) + rng.standard_normal((n, k)) * np.sqrt(sizes) @ vectors.T
    data -= data.mean(0)
    truth = vectors @ vectors.T

    def error(loadings):
        basis = np.linalg.qr(loadings)[0]
        return np.linalg.norm(basis @ basis.T - truth)

    path, out = folder / "rows", folder / "loadings"
    data.tofile(path)
    lam = 0.6 * np.sqrt(2 * np.log(p * (p - 1) / 2) / n)
    answer = ours(binary, "rows", path, n, p, k, lam, out, 9)
    found = np.fromfile(out).reshape(k, p).T
    row = {"what": "sparse-pca", "p": p, "k": k, "n": n, "ours": {**answer, "error": error(found), "ratio": 1.0}}
    spent, basis = timed(lambda: np.linalg.eigh(data.T @ data)[1][:, -k:])
    row["numpy PCA"] = {"ms": spent, "error": error(basis), "ratio": spent / answer["ms"]}
    for model, alphas in ((SparsePCA, (1.0, 2.0, 4.0, 8.0, 16.0)), (MiniBatchSparsePCA, (0.1, 0.25, 0.5, 1.0, 2.0, 4.0))):
        fits = []
        for alpha in alphas:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                spent, fit = timed(lambda: model(k, alpha=alpha, random_state=0).fit(data))
            if np.linalg.matrix_rank(fit.components_) == k:
                fits.append({"error": error(fit.components_.T), "ms": spent, "alpha": alpha})
        if fits:
            best = min(fits, key=lambda fit: fit["error"])
            row[model.__name__] = {**best, "ratio": best["ms"] / answer["ms"]}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--skip-sklearn", action="store_true", help="leave scikit-learn out (minutes)")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    binary = build()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = [
            lambda: fantope(binary, folder, 400, 0.05, arguments.repeats),
            lambda: fantope(binary, folder, 1000, 0.035, arguments.repeats),
            # A smaller lambda, which screens out fewer rows.
            lambda: fantope(binary, folder, 1000, 0.02, arguments.repeats),
            lambda: leading(binary, folder, 2000, arguments.repeats),
        ]
        if not arguments.skip_sklearn:
            runs.append(lambda: sparse_pca(binary, folder))
        rows = []
        for run in runs:
            rows.append(run())
            show(rows[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def show(row):
    head = " ".join(f"{key}={row[key]}" for key in ("what", "p", "n", "k", "lambda") if key in row)
    print(head)
    for name, values in row.items():
        if isinstance(values, dict):
            details = ", ".join(
                f"{key} {value:.2g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in values.items()
                if key not in ("ms", "ratio")
            )
            print(f"  {name:22} {values['ms']:10.1f} ms {values['ratio']:8.1f} x   {details}", flush=True)


if __name__ == "__main__":
    main()
