#!/usr/bin/env python3
"""How the accounted settings of dp-spca and dp-vrpca were chosen (docs/central.md): on synthetic spectra alone.

Gradients are exact (the second moment is the spectrum itself); the noise is that of the whole run's privacy parameter
mu, in the limit where sampling neither gains nor loses: a full release of m has sqrt(m)*D/(n*mu) an entry, D = sqrt(2)
(1 for k = 1), a sampled one sqrt(T)*2/(n*mu). Prints the error of each setting over that of analyze-gauss: geometric
mean, median, 90 % quantile and largest of the cases.

    pip install numpy; python3 benches/stochastic_settings.py spca; python3 benches/stochastic_settings.py vrpca
"""

import sys
from collections import defaultdict
from itertools import product
from math import erf, exp, sqrt

import numpy as np

DELTA = 1e-5
REPEATS = 4
rng = np.random.default_rng(1)


def mu_of(epsilon):
    """mu with delta(epsilon) = DELTA (Balle & Wang 2018)."""
    cdf = lambda x: 0.5 * (1 + erf(x / sqrt(2)))
    low, high = 1e-6, 50.0
    for _ in range(200):
        m = 0.5 * (low + high)
        delta = cdf(-epsilon / m + m / 2) - exp(epsilon) * cdf(-epsilon / m - m / 2)
        low, high = (m, high) if delta <= DELTA else (low, m)
    return low


def polar(a):
    u, _, vt = np.linalg.svd(a, full_matrices=False)
    return u @ vt


def error(v, k):
    return sqrt(max(0.0, 2 * (k - np.linalg.norm(v[:k]) ** 2)))


def cases(dimensions):
    """Spiked and power-law spectra of unit rows, at budgets where analyze-gauss finds something."""
    for p, k in product(dimensions, (1, 5, 10)):
        if p == 400 and k == 10:
            continue
        spectra = []
        for spike in (1, 5, 20):
            spectra.append(np.where(np.arange(p) < k, 1.0 + spike, 1.0))
        for power in (1, 1.5, 2):
            spectra.append(np.arange(1, p + 1.0) ** -power)
        for moment, (n, epsilon) in product(spectra, ((10_000, 1), (100_000, 0.5), (100_000, 2))):
            moment = moment / moment.sum()
            scale = 1 / (n * mu_of(epsilon))
            reference = np.mean([analyze_gauss(moment, k, scale) for _ in range(REPEATS)])
            if reference <= 0.8 * sqrt(2 * (k - k * k / p)):
                yield moment, k, n, scale, reference


def analyze_gauss(moment, k, scale):
    p = len(moment)
    noise = np.triu(rng.normal(size=(p, p)) * sqrt(2) * scale)
    _, vectors = np.linalg.eigh(np.diag(moment) + noise + np.triu(noise, 1).T)
    return error(vectors[:, -k:], k)


def spca(moment, k, _n, scale, setting):
    steps, share, left_out = setting
    p = len(moment)
    sd = (1 if k == 1 else sqrt(2)) * sqrt(steps) * scale
    step = share / (sd * (sqrt(p) + sqrt(k)))
    v, later = polar(rng.normal(size=(p, k))), 0
    for t in range(1, steps + 1):
        v = polar(v + step * (moment[:, None] * v + sd * rng.normal(size=(p, k))))
        later = later + v * (t > left_out * steps)
    return error(polar(later), k)


def vrpca(moment, k, n, scale, setting):
    epochs, steps, share, full_part = setting
    p, rate = len(moment), 0.5
    full_sd = (1 if k == 1 else sqrt(2)) * sqrt(epochs / full_part) * scale
    sd = 2 * sqrt(epochs * steps / (1 - full_part)) * scale
    step = share / (full_sd * (sqrt(p) + sqrt(k)))
    v, later = polar(rng.normal(size=(p, k))), 0
    for epoch in range(1, epochs + 1):
        start = v
        full = moment[:, None] * start + full_sd * rng.normal(size=(p, k))
        for t in range(steps):
            away = v - start
            gradient = full + moment[:, None] * away
            if t > 0:
                gradient += sd * np.linalg.norm(away, 2) * rng.normal(size=(p, k))
                w, u = np.linalg.eigh(away.T @ (moment[:, None] * away))
                root = (u * np.sqrt(np.maximum(w, 0))) @ u.T
                sampled = np.sqrt(moment)[:, None] * rng.normal(size=(p, k)) @ root
                gradient += sampled * sqrt((1 - rate) / (rate * n))
            v = polar(v + step * gradient)
            later = later + v * (epoch > epochs / 3)
    return error(polar(later), k)


def main():
    if sys.argv[1:] == ["spca"]:
        method, dimensions = spca, (40, 123, 400)
        settings = list(product((20, 30, 40, 60), (0.5, 1, 2), (0.25, 1 / 3, 0.5)))
    elif sys.argv[1:] == ["vrpca"]:
        method, dimensions = vrpca, (40, 123)
        settings = [
            (*sizes, share, part)
            for sizes in ((4, 15), (8, 5), (15, 3), (20, 3), (30, 2), (30, 3), (45, 2))
            for share in (0.2, 0.4, 1)
            for part in (0.75, 0.9)
        ]
    else:
        sys.exit(__doc__)
    ratios = defaultdict(list)
    for moment, k, n, scale, reference in cases(dimensions):
        for setting in settings:
            runs = [method(moment, k, n, scale, setting) for _ in range(REPEATS)]
            ratios[setting].append(np.mean(runs) / reference)
    for setting, found in sorted(ratios.items(), key=lambda item: np.log(item[1]).mean()):
        geometric = exp(np.log(found).mean())
        print(
            setting,
            f"{geometric:.2f} {np.median(found):.2f} {np.quantile(found, 0.9):.2f} {max(found):.2f}",
            f"({len(found)} cases)",
        )


if __name__ == "__main__":
    main()
