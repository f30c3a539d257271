"""What the acceptance rule of two published libraries draws instead of the Bingham distribution, by integration.

    pip install numpy && python benches/bingham.py

Both keep a proposal u of the angular central Gaussian (density ~ (u'Wu)^(-d/2)) with probability ~ exp(-u'Au)/(u'Wu)^(d/2).
The right factor is (u'Wu)^(+d/2). So they draw from a density ~ exp(-u'Au)(u'Wu)^(-d). Here W = I + 2A/b and b solves
sum 1/(b + 2 a_i) = 1. The first line is the mean of sin^2 in the plane. The others are the largest log-ratio of the
densities of one draw, in units of its budget eps, between C = c e1e1' and (c + 1) e1e1': one unit row more.
"""
import numpy as np


def envelope(a):
    low, high = 1e-9, float(len(a))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sum(1 / (middle + 2 * a)) > 1 else (low, middle)
    return (low + high) / 2


t = np.linspace(0, 2 * np.pi, 200_001)[:-1]
a = np.array([0.0, 3.0])
b = envelope(a)
sine = np.sin(t) ** 2
for name, power in [("Bingham", 0), ("as coded", -2)]:
    density = np.exp(-3 * sine) * (1 + 6 * sine / b) ** power
    print(f"d = 2, A = diag(0, 3), {name}: E[sin^2] = {np.sum(sine * density) / np.sum(density):.4f}")


def log_density(d, scale, grid, measure, coded):
    """Of u as a function of r = 1 - u1^2, normalised over the sphere, whose measure is given by its logarithm."""
    others = np.full(d, scale)
    others[0] = 0
    log = -scale * grid
    if coded:
        log = log - d * np.log1p(2 * scale * grid / envelope(others))
    weighted = log + measure
    largest = weighted.max()
    return log - largest - np.log(np.sum(np.exp(weighted - largest)))


for d in [2, 10, 40, 64, 400]:
    # u1 = cos: the sphere's measure is sin^(d-2), and r = sin^2.
    angle = (np.arange(200_000) + 0.5) * np.pi / 2 / 200_000
    grid = np.sin(angle) ** 2
    measure = (d - 2) * np.log(np.sin(angle))
    worst = {}
    for coded in [False, True]:
        ratios = []
        for eps in [0.1, 1.0]:
            for c in np.concatenate([[0], np.geomspace(1, 3e4, 40)]):
                one = log_density(d, eps / 4 * c, grid, measure, coded)
                more = log_density(d, eps / 4 * (c + 1), grid, measure, coded)
                ratios.append(np.max(np.abs(more - one)) / eps)
        worst[coded] = max(ratios)
    print(f"d = {d}: one draw gives away {worst[False]:.2f} eps by the Bingham distribution, {worst[True]:.2f} eps as coded")
