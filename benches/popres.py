"""Robust PCA on the stylised POPRES (N = 2,387) beside plain dense numpy, in turn, in one run.

    pip install numpy && python benches/popres.py [--dimension 10000] [--methods dp-ggd,dp-gd-reap,...]
                                                   [--iterations 3] [--repeats 1] [--binary FILE] [--json FILE]

Ours: `timed_runs` of `central/tests/central/robust_popres.rs`, whole runs on all cores (three iterations of the mirror descents above
D = 2,000). numpy: the same steps with full matrices, `--iterations` of them on random unit rows of the same size (its time does not
depend on their values), on all cores too, and scaled to the iterations of our run. With `--repeats` both are run that often in turn
and medians are printed. At D = 10,000 one numpy step of REAPER takes minutes, all of it an hour and a half.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import numpy as np

N, R = 2387, 2
GLAD, REAPER = ["dp-ggd", "dp-sggd"], ["dp-gd-reap", "dp-sgd-reap", "dp-md-reap", "dp-smd-reap"]
rng = np.random.default_rng(1)


def rows(d):
    x = rng.standard_normal((N, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def batch_of(steps):
    return int(N * np.sqrt(4 / (4 * steps)))


def polar(a):
    u, _, vt = np.linalg.svd(a, full_matrices=False)
    return u @ vt


def ggd(x):
    def step(v):
        residuals = x - (x @ v) @ v.T
        weighted = residuals / np.linalg.norm(residuals, axis=1, keepdims=True)
        gradient = weighted.T @ (x @ v) / len(x) + 0.01 * rng.standard_normal(v.shape)
        return polar(v + gradient)

    return step


def noisy_gradient(x, p):
    residuals = x - x @ p
    half = (residuals / np.linalg.norm(residuals, axis=1, keepdims=True)).T @ x / (2 * len(x))
    noise = np.triu(rng.standard_normal(p.shape))
    return half + half.T + 0.01 * (noise + np.triu(noise, 1).T)


def gd_reap(x):
    def step(p):
        values, vectors = np.linalg.eigh(p + noisy_gradient(x, p))
        low, high = values[0] - 1, values[-1]
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if np.clip(values - middle, 0, 1).sum() > R else (low, middle)
        return (vectors * np.clip(values - low, 0, 1)) @ vectors.T

    return step


def md_reap(x):
    def step(p):
        values, vectors = np.linalg.eigh(p)
        log = (vectors * np.log(np.maximum(values, 1e-300))) @ vectors.T
        values, vectors = np.linalg.eigh(log + noisy_gradient(x, p))
        values = np.exp(values)
        return (vectors * (R * values / values.sum())) @ vectors.T

    return step


def numpy_seconds(method, d, steps, iterations):
    """Seconds of one step of the method."""
    x = rows(d)
    if method in ("dp-sggd", "dp-sgd-reap", "dp-smd-reap"):
        x = x[: batch_of(steps)]
    if method in GLAD:
        step, state = ggd(x), np.linalg.qr(rng.standard_normal((d, R)))[0]
    else:
        step = gd_reap(x) if "gd" in method else md_reap(x)
        state = np.eye(d) * R / d
    started = time.perf_counter()
    for _ in range(iterations):
        state = step(state)
    return (time.perf_counter() - started) / iterations


def ours(method, d, binary):
    """Steps and seconds of a whole run."""
    build = ["cargo", "test", "--release", "--workspace", "--test", "robust_popres", "timed", "--"]
    command = ([binary, "timed"] if binary else build) + ["--ignored", "--nocapture"]
    environment = os.environ | {"POPRES_D": str(d), "POPRES_METHODS": method}
    text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    fields = next(line for line in text.splitlines() if line.startswith("timed,")).split(",")
    return int(float(fields[3])), float(fields[4])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dimension", type=int, default=10_000)
    parser.add_argument("--methods", default=",".join(GLAD + REAPER))
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--binary", help="the test binary, where it is built already")
    parser.add_argument("--json")
    options = parser.parse_args()
    table = []
    print("method, D, steps, ours s, numpy s a step, numpy s scaled to as many steps, times")
    for method in options.methods.split(","):
        us, them = [], []
        for _ in range(options.repeats):
            steps, seconds = ours(method, options.dimension, options.binary)
            us.append(seconds)
            them.append(numpy_seconds(method, options.dimension, 500 if method == "dp-sggd" else 100, options.iterations))
        mine, a_step = statistics.median(us), statistics.median(them)
        scaled = a_step * steps
        print(f"{method}, {options.dimension}, {steps}, {mine:.2f}, {a_step:.2f}, {scaled:.1f}, {scaled / mine:.1f}", flush=True)
        table.append({"method": method, "dimension": options.dimension, "steps": steps, "ours": us, "numpy_a_step": them})
    if options.json:
        with open(options.json, "w") as out:
            json.dump(table, out, indent=1)


if __name__ == "__main__":
    main()
