"""Plain numpy beside `central/tests/robust_popres.rs`: seconds an iteration, three iterations each.

    pip install numpy && python benches/popres.py

Random unit rows of the size of the stylised POPRES (N = 2,387): the time does not depend on their values.
"""
import time

import numpy as np

N, R = 2387, 2
rng = np.random.default_rng(1)


def rows(d):
    x = rng.standard_normal((N, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def timed(name, step, state):
    started = time.perf_counter()
    for _ in range(3):
        state = step(state)
    print(f"{name}: {(time.perf_counter() - started) / 3:.2f} s an iteration", flush=True)


def polar(a):
    u, _, vt = np.linalg.svd(a, full_matrices=False)
    return u @ vt


def ggd(x, dense):
    def step(v):
        residuals = x @ (np.eye(x.shape[1]) - v @ v.T) if dense else x - (x @ v) @ v.T
        weighted = residuals / np.linalg.norm(residuals, axis=1, keepdims=True)
        gradient = weighted.T @ (x @ v) / N + 0.01 * rng.standard_normal(v.shape)
        return polar(v + gradient)

    return step


def noisy_gradient(x, p):
    residuals = x - x @ p
    half = (residuals / np.linalg.norm(residuals, axis=1, keepdims=True)).T @ x / (2 * N)
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


x = rows(10_000)
start = np.linalg.qr(rng.standard_normal((10_000, R)))[0]
timed("dp-ggd, D = 10,000, thin", ggd(x, False), start)
timed("dp-ggd, D = 10,000, the projector formed", ggd(x, True), start)
x = rows(2_000)
timed("dp-gd-reap, D = 2,000", gd_reap(x), np.eye(2_000) * R / 2_000)
timed("dp-md-reap, D = 2,000", md_reap(x), np.eye(2_000) * R / 2_000)
