"""The numbers of docs/derivations, computed apart from the Rust code: mpmath, numpy and scipy, from the definitions.

Usage: pip install mpmath numpy scipy; python derivations.py [double_cap gaussian discrete centring floor sites]
Prints one line for each number, what was derived beside what was found. Seeds are fixed; a few minutes in all.
"""

import sys
from fractions import Fraction
from math import exp, expm1, floor, isqrt, log, log2, pi, sqrt, tanh

import mpmath as mp
import numpy as np
from scipy import special, stats
from scipy.optimize import brentq

mp.mp.dps = 40


def phi(x):
    """Normal distribution function."""
    return special.ndtr(x)


# double-cap


def tail(a, b, t):
    """P(Beta(a, b) > t)."""
    return mp.betainc(a, b, t, 1, regularized=True)


def constants(p, epsilon):
    """Threshold, cap probability, gain, scale and moments at the best threshold."""
    b, odds = mp.mpf(p - 1) / 2, mp.expm1(epsilon)

    def gain(t):
        q = tail(0.5, b, t)
        return odds * (tail(1.5, b, t) - q) / (p * (1 + q * odds))

    # Not from the condition m = tau - 1/p: by search for the largest gain, then polished on that condition.
    grid = [mp.mpf(i) / 400 for i in range(1, 400)]
    low = max(range(len(grid)), key=lambda i: gain(grid[i]))
    start = (grid[max(low - 1, 0)], grid[min(low + 1, len(grid) - 1)])
    t = mp.findroot(lambda t: t - mp.mpf(1) / p - gain(t), start, solver="anderson", tol=1e-32)
    q = tail(0.5, b, t)
    z, m = 1 + q * odds, gain(t)
    alpha = mp.mpf(1) / p + m
    mu4 = 3 * (1 + odds * tail(2.5, b, t)) / (p * (p + 2) * z)
    a0 = (1 - 2 * alpha + mu4) / ((p - 1) * (p + 1))
    a1 = (alpha - mu4) / (p - 1) - a0
    density = t ** mp.mpf(0.5) * (1 - t) ** b / (mp.beta(0.5, b) * (1 - t))
    return {
        "tau": t, "q": q, "Z": z, "m": m, "c": (p - 1) / (p * m), "alpha": alpha, "mu4": mu4,
        "a0": a0, "a1": a1, "a2": mu4 - 3 * a0 - 6 * a1, "slope": odds * density / z,
    }  # fmt: skip


def directions(rows, k, epsilon, rng):
    """Released directions by their law given the row, which is derived from the definition of the cap."""
    n, p = rows.format
    squared = (rows * rows).sum(1)
    normal = rng.standard_normal((n, p))
    unit = rows / np.sqrt(np.maximum(squared, 1e-300))[:, None]
    along = (normal * unit).sum(1)
    across = normal - along[:, None] * unit
    across /= np.linalg.norm(across, axis=1)[:, None]
    tau, b = float(k["tau"]), (p - 1) / 2
    inside = rng.random(n) < float(k["q"]) * exp(epsilon) / float(k["Z"])
    share = np.empty(n)
    for cap in (True, False):
        left = np.where(inside == cap)[0]
        while len(left):
            # By numpy's own beta variables outside; inside by the inverse of the tail.
            if cap:
                u = rng.random(len(left)) * float(k["q"])
                share[left] = 1 - special.betaincinv(b, 0.5, u)
                break
            drawn = rng.beta(0.5, b, len(left))
            share[left] = drawn
            left = left[drawn > tau]
    sign = np.where(along >= 0, 1, -1)
    leaning = (np.sqrt(share) * sign)[:, None] * unit + np.sqrt(1 - share)[:, None] * across
    uniform = normal / np.linalg.norm(normal, axis=1)[:, None]
    return np.where((rng.random(n) < squared)[:, None], leaning, uniform)


def double_cap():
    print("# double-cap: p, epsilon; tau, q, Z, c, alpha, mu4, a0, a1, a2; tries; |d ln Z / d ln tau|")
    for p, epsilon in [(2, 1), (2, 8), (3, 4), (10, 2), (10, 8), (40, 1), (40, 2), (40, 4), (40, 8), (400, 4)]:
        k = constants(p, epsilon)
        names = ["tau", "q", "Z", "c", "alpha", "mu4", "a0", "a1", "a2"]
        numbers = [mp.nstr(k[name], 10) for name in names]
        tries = mp.nstr(mp.exp(epsilon) / k["Z"], 6)
        print(p, epsilon, *numbers, tries, mp.nstr(k["slope"], 3))
    rng = np.random.default_rng(7)
    p, epsilon, n = 10, 2, 400_000
    k = constants(p, epsilon)
    c, a0, a1, mu4 = (float(k[name]) for name in ("c", "a0", "a1", "mu4"))
    # The device's loop itself: uniform directions, accepted inside or by the coin.
    kept = np.empty((0, p))
    tries = 0
    while len(kept) < n:
        g = rng.standard_normal((n, p))
        g /= np.linalg.norm(g, axis=1)[:, None]
        ok = (g[:, 0] ** 2 > float(k["tau"])) | (rng.random(n) < exp(-epsilon))
        tries += n
        kept = np.vstack([kept, g[ok]])
    print("tries of the loop", tries / len(kept), "derived", exp(epsilon) / float(k["Z"]))
    for name, i, j, derived in [
        ("bulk", 1, 2, c * c * a0),
        ("signal-bulk", 0, 1, c * c * (a0 + a1)),
        ("signal diagonal", 0, 0, c * c * (mu4 - float(k["alpha"]) ** 2)),
        ("bulk diagonal", 1, 1, 3 * c * c * a0 - (c / p - 1 / p) ** 2),
    ]:
        found = (c * (kept[:, i] * kept[:, j] - (i == j) / p)).var()
        print("variance,", name, "found", found, "derived", derived)
    r = 0.6
    g = directions(np.tile([r] + [0] * (p - 1), (n, 1)), k, epsilon, rng)
    shorter = r * r * a0 + (1 - r * r) / (p * (p + 2))
    print("short row r = 0.6", (c * g[:, 0] * g[:, 1]).var(), c * c * (shorter + a1 * r * r))
    print("  its mean", (c * (g[:, 0] ** 2 - 1 / p)).mean(), r * r * (1 - 1 / p))
    # Sums of directions in single precision, in blocks of 512 as the code makes them.
    p, n = 40, 51_200
    g = rng.standard_normal((n, p))
    g /= np.linalg.norm(g, axis=1)[:, None]
    single = np.zeros((p, p))
    for block in np.split(g, n // 512):
        f = block.astype(np.float32)
        single += f.T @ f
    off = np.abs(single - g.T @ g)
    print("single precision, largest error / (sqrt(n)/p)", off.max() / (sqrt(n) / p), "rms", sqrt((off**2).mean()) / (sqrt(n) / p))
    seeds_of_a_sample()


def seeds_of_a_sample():
    print("# share of the reports, each the best of K, that is found with power 50 / 99 % among m: p, K, m = 25,000, 65,536, 500,000, 5,000,000")

    def power(k, share, best_of, m):
        """Of the best of the caps around one direction, each with the limit that the check has."""
        powers = []
        for v in 4.0 ** -np.arange(1, 21):
            most = (v + (exp(4) - 1) * min(float(k["q"]), v)) / float(k["Z"])
            low, limit = floor(m * most), m + 1
            while limit - low > 1:
                middle = (low + limit) // 2
                x = middle / m
                divergence = x * log(x / most) + ((1 - x) * log((1 - x) / (1 - most)) if x < 1 else 0)
                low, limit = (low, middle) if m * divergence >= log(300 / 5e-4) else (middle, limit)
            found = share * (1 - exp(-v * best_of)) + (1 - share) * v
            powers.append(stats.binom.sf(limit - 1, m, found))
        return max(powers)

    for p in (40, 400):
        k = constants(p, 4)
        for bits in (10, 13, 16, 20, 30):
            shares = []
            for m in (25_000, 65_536, 500_000, 5_000_000):
                least = [brentq(lambda x: power(k, exp(x), 2.0**bits, m) - wanted, log(1e-9), 0) for wanted in (0.5, 0.99)]
                shares.append(" / ".join(f"{100 * exp(x):.3g} %" for x in least))
            print(p, f"2^{bits}", *shares, sep=", ")


# Gaussian mechanisms


def gaussian_delta(mu, epsilon):
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def gaussian_mu(epsilon, delta):
    low, high = mp.mpf("1e-6"), mp.mpf(100)
    for _ in range(140):
        middle = mp.sqrt(low * high)
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    return low


def two_sided(mu, epsilon):
    mu = float(mu)
    return phi(mu / 2 - epsilon / mu) + phi(-mu / 2 - epsilon / mu)


def cells(centres, length):
    """Logarithms of the probabilities that a standard normal number lies within length/2 of the centres."""
    upper, lower = special.log_ndtr(length / 2 - centres), special.log_ndtr(-length / 2 - centres)
    mirrored = special.log_ndtr(centres + length / 2), special.log_ndtr(centres - length / 2)
    high = np.where(centres > 0, upper, mirrored[0])
    low = np.where(centres > 0, lower, mirrored[1])
    return high + np.log1p(-np.exp(low - high))


def on_grid(sd, distance, grid, epsilon):
    """P(odds move by more than e^epsilon) where the rows differ in one released number, exactly on the grid."""
    reach = int((14 * sd + distance) / grid)
    at = np.arange(-reach, reach + 1) * grid
    mine, other = cells((at - distance / 2) / sd, grid / sd), cells((at + distance / 2) / sd, grid / sd)
    return np.exp(mine)[np.abs(mine - other) > epsilon].sum()


def two_on_grid(sd, distances, grid, epsilon):
    """The same where the rows differ in two released numbers."""
    mine, other = [], []
    for distance in distances:
        at = np.arange(-int((9.5 * sd + 1) / grid), int((9.5 * sd + 1) / grid) + 1) * grid
        mine.append(cells((at - distance / 2) / sd, grid / sd))
        other.append(cells((at + distance / 2) / sd, grid / sd))
    loss = [a - b for a, b in zip(mine, other)]
    weights = [np.exp(a) for a in mine]
    below = np.concatenate([[0], np.cumsum(weights[1])])
    above = np.concatenate([np.cumsum(weights[1][::-1])[::-1], [0]])
    up = above[np.searchsorted(loss[1], epsilon - loss[0], side="right")]
    down = below[np.searchsorted(loss[1], -epsilon - loss[0], side="left")]
    return (weights[0] * (up + down)).sum()


def gaussian():
    print("# gaussian: analytic sigma (sensitivity sqrt 2)")
    for epsilon, delta in [(0.1, 1e-6), (1, 1e-6), (4, 1e-6), (8, 1e-6), (0.5, 1e-4)]:
        print(epsilon, delta, mp.nstr(mp.sqrt(2) / gaussian_mu(epsilon, delta), 12))
    print("published noise is enough up to epsilon")
    for delta in [1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-9]:

        def excess(epsilon):
            return float(mp.log(gaussian_delta(sqrt(2) * epsilon / sqrt(2 * log(1.25 / delta)), epsilon) / delta))

        print(delta, brentq(excess, 1e-3, 3, xtol=1e-7))
    for epsilon in (1, 2, 4):
        sigma = sqrt(2 * log(1.25e6)) / epsilon
        print("published, true delta at", epsilon, mp.nstr(gaussian_delta(sqrt(2) / sigma, epsilon), 4))
    mu = gaussian_mu(1, 1e-6)
    print("two-sided at (1, 1e-6)", two_sided(mu, 1), "up", phi(float(mu) / 2 - 1 / float(mu)))
    print("on the grid, rows that differ in one number of isotropic-gaussian: found, continuous, ratio, half a cell")
    worst = 0
    for delta in (1e-6, 1e-7, 1e-9, 1e-12):
        for epsilon in (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16):
            mu = float(gaussian_mu(epsilon, delta))
            sd = 1 / mu
            grid = 2.0 ** floor(log2(sd)) / 64
            found, plain = on_grid(sd, 1, grid, epsilon), two_sided(mu, epsilon)
            half = two_sided(mu, epsilon - 0.5 * mu * grid / sd)
            worst = max(worst, found / half)
            if found / plain > 1.02:
                print(epsilon, delta, found, plain, found / plain, half / plain)
    print("largest found / half a cell", worst)
    worst = 0
    for epsilon, delta in [(5, 1e-7), (2, 1e-7), (1, 1e-6), (0.7, 1e-7), (10, 1e-7), (5, 1e-12)]:
        mu = float(gaussian_mu(epsilon, delta))
        grid = 2.0 ** floor(-log2(mu)) / 64
        half = two_sided(mu, epsilon - 0.5 * mu * mu * grid)
        for angle in np.linspace(0, pi / 4, 13):
            found = two_on_grid(1 / mu, (np.cos(angle), np.sin(angle)), grid, epsilon)
            worst = max(worst, found / half)
    print("  and for rows that differ in two numbers", worst)
    for epsilon in (1, 8.4):
        mu = float(gaussian_mu(epsilon, 1e-6))
        grid = 2.0 ** floor(-log2(mu)) / 64
        print("delta 1e-6, epsilon", epsilon, on_grid(1 / mu, 1, grid, epsilon), two_sided(mu, epsilon))
    # Rounding to the grid.
    print("grid s/64 raises the standard deviation by", sqrt(1 + (1 / 64) ** 2 / 12) - 1)
    m = lambda z: sqrt(2 * pi) * (1 - phi(z)) * exp(z * z / 2)
    v = 0.00492867323399
    lattice = max(
        (2 + exp(-z * z / 2) * (z + m(z)) / v) * 512 * v / exp(-z * z / 2) * 2 * 2.0**-60 for z in np.linspace(0, 3.6542, 400)
    )
    print("ziggurat's lattice, log2 of kappa L", log2(lattice))


# discrete-gaussian


def discrete_exact(sigma, v, epsilon):
    reach = int(np.ceil(10 * sigma)) + max(map(abs, v))
    y = np.arange(-reach, reach + 1)
    weight = np.exp(-y * y / (2 * sigma * sigma))
    weight /= weight.sum()
    law = {0: 1.0}
    for step in v:
        new = {}
        for at, probability in law.items():
            for place, w in zip(at + step * y, weight):
                new[place] = new.get(place, 0) + probability * w
        law = new
    squared = sum(step * step for step in v)
    return sum(w * max(exp((2 * at - squared) / (2 * sigma**2)) - exp(epsilon), 0) for at, w in law.items())


def discrete_bound(sigma, norm, d, epsilon, tau2):
    mu, xi = norm / sigma, tau2 / sigma**2
    kappa = sigma**2 * tau2 / (sigma**2 + tau2)
    eta = 2 * exp(-2 * pi**2 * kappa) / (1 - exp(-6 * pi**2 * kappa))
    v = mu * sqrt(1 + xi)
    d1 = (xi * mu * mu / 2 - epsilon) / v + v / 2
    return (1 + eta) ** d * (exp(xi * mu * mu / 2) * phi(d1) - exp(epsilon) * phi(d1 - v))


def discrete():
    print("# discrete-gaussian: sigma, v, epsilon: exact, best bound, continuous")
    for sigma, v, epsilon in [(8, (5, 6, 1), 4), (1, (1,), 1), (2, (1,), 1), (3, (3,), 1), (3, (1, 1), 0.5)]:
        norm = sqrt(sum(x * x for x in v))
        bound = min(discrete_bound(sigma, norm, len(v), epsilon, 0.02 * 1.02**i) for i in range(400))
        exact = discrete_exact(sigma, v, epsilon)
        print(sigma, v, epsilon, exact, bound, "exact/continuous", exact / float(gaussian_delta(norm / sigma, epsilon)))
    rng = np.random.default_rng(2)
    furthest = 0.0
    for _ in range(20):
        rows = rng.standard_normal((2, 100_000, 3))
        rows /= np.linalg.norm(rows, axis=2)[:, :, None]
        entries = [rows[:, :, i] * rows[:, :, j] * (1 if i == j else sqrt(2)) for i in range(3) for j in range(i, 3)]
        moved = sum((np.round(8 * e[0]) - np.round(8 * e[1])) ** 2 for e in entries)
        furthest = max(furthest, sqrt(moved.max()))
    print("p = 3, b = 3: furthest pair", furthest, "sensitivity", 8 * sqrt(2) + sqrt(6))
    for epsilon in (0.1, 1, 4, 8):
        mu = float(gaussian_mu(epsilon, 1e-6))
        bound = discrete_bound(4096, mu * 4096, 80_200, epsilon, 3)
        print("sigma 4096, p = 400: bound/analytic - 1", epsilon, bound / float(gaussian_delta(mu, epsilon)) - 1)
    print("two-sided, the axes at p = 2: found, stated with the sensitivity on the grid")
    for epsilon in (0.5, 1, 4, 16):
        mu = float(gaussian_mu(epsilon, 1e-6))
        bits = 7
        while sqrt(2) / mu * 2**bits < 4096:
            bits += 1
        sensitivity = sqrt(2) * 2**bits + sqrt(3)
        sigma = int(np.ceil(sensitivity / mu))
        y = np.arange(-9 * sigma, 9 * sigma + 1)
        one = np.exp(-y * y / (2.0 * sigma * sigma))
        one /= one.sum()
        # The loss is 2^b (z1 - z2 + 2^b)/sigma^2; z1 - z2 by convolution.
        size = 1 << (2 * len(one)).bit_length()
        both = np.fft.irfft(np.abs(np.fft.rfft(one, size)) ** 2, size)
        at = np.arange(size)
        at = np.where(at > size // 2, at - size, at)
        loss = 2.0**bits * (at + 2**bits) / sigma**2
        found = both[np.abs(loss) > epsilon].sum()
        same = two_sided(sqrt(2) * 2**bits / sigma, epsilon)
        stated = two_sided(sensitivity / sigma, epsilon)
        print(epsilon, found, stated, "found/stated", found / stated, "found/continuous of the same distance", found / same)


# Centring


def centring():
    rng = np.random.default_rng(3)
    print("# centring: price found, derived, at a (m_v^2 = 1/4)")
    p, s = 40, 1e-3
    for a in (0.35, 0.5, sqrt(0.5), 1.0):
        f, mean = 1 + a * a, np.zeros(p)
        mean[0], mean[1] = 0.5, sqrt(0.81 - 0.25)
        truth = np.block([[np.outer(mean, mean), a * mean[:, None]], [a * mean[None, :], np.array([[a * a]])]]) / f
        squares = []
        for _ in range(1500):
            w = rng.standard_normal((p + 1, p + 1))
            d = truth + s * (w + w.T) / sqrt(2)
            m = f / a * d[:p, p]
            squares.append(((f * d[:p, :p] - np.outer(m, m))[0, 2:] ** 2).mean())
        print(a, np.mean(squares) / s**2, f * f * (1 + 0.25 / a**2))
    print("double-cap along the mean: p, epsilon, found / without the term a1 lambda_w m_v^2 / a^2 f, found / with it")
    a, n = sqrt(0.5), 300_000
    f = 1 + a * a
    for p, epsilon in [(20, 4), (20, 8), (40, 4), (40, 8)]:
        k = constants(p + 1, epsilon)
        x = rng.standard_normal((n, p)) * 0.12 * sqrt(20 / p)
        x[:, 0] += 0.8
        x /= np.linalg.norm(x, axis=1)[:, None]
        y = np.hstack([x, np.full((n, 1), a)]) / sqrt(f)
        g = np.vstack([directions(part, k, epsilon, rng) for part in np.array_split(y, 20)])
        c, a0, a1, a2 = (float(k[name]) for name in ("c", "a0", "a1", "a2"))
        m = x.mean(0)
        own, excess = g[:, 0] - m[0] / a * g[:, p], (m[0] / a) ** 2
        found = np.mean([(f * c * own * (g[:, w] - m[w] / a * g[:, p])).var() for w in range(1, p)])
        lv, lw = x[:, 0].var(), x[:, 1:].var(0).mean()
        plain = f * f * c * c * (a0 * (1 + excess) + a1 * (lv + lw) / f + a2 * lv * lw / f**2)
        print(p, epsilon, found / plain, found / (plain + f * c * c * a1 * lw * excess))
    print("outlier of pure noise: x, found, x + 1/x, deviation, x sqrt(1.5/p), squared cosine, derived")
    p, u = 200, np.eye(200)[0]
    for x in (1.2, 1.8, 3.6):
        tops, cosines = [], []
        for _ in range(150):
            w = rng.standard_normal((p, p))
            g = rng.standard_normal(p) / sqrt(p)
            values, vectors = np.linalg.eigh((w + w.T) / sqrt(2 * p) - x * (np.outer(u, g) + np.outer(g, u)))
            tops.append(values[-1])
            cosines.append(vectors[0, -1] ** 2)
        print(x, np.mean(tops), x + 1 / x, np.std(tops), x * sqrt(1.5 / p), np.mean(cosines), (x * x - 1) / (2 * x * x))


# Noise floor


def profile(k, n, p, one, other):
    c2 = float(k["c"]) ** 2 / n
    return c2 * (float(k["a0"]) + float(k["a1"]) * (one + other) + float(k["a2"]) * one * other * p / (p + 2))


def noisy(rows_sd, k, epsilon, n, rng):
    p, left = len(rows_sd), n
    total = np.zeros((p, p))
    while left:
        take = min(left, 20_000)
        rows = rng.standard_normal((take, p)) * rows_sd
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        g = directions(rows, k, epsilon, rng)
        total += g.T @ g
        left -= take
    return float(k["c"]) * (total / n - np.eye(p) / p)


def moments_of(rows_sd, rng):
    rows = rng.standard_normal((400_000, len(rows_sd))) * rows_sd
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    return np.sort((rows * rows).mean(0))[::-1]


def floor_():
    rng = np.random.default_rng(11)
    print("# floor: pure noise of double-cap; p, epsilon, n, top/(2r + chi), top/2r, counted, counted by 2r + r p^(-2/3)")
    for p, epsilon, n, repeats in [(40, 2, 4_000, 200), (100, 2, 2_000, 80)]:
        k = constants(p, epsilon)
        c = float(k["c"])
        r, chi = c / sqrt((p + 2) * n), c / n
        tops = []
        for _ in range(repeats):
            g = rng.standard_normal((n, p))
            g /= np.linalg.norm(g, axis=1)[:, None]
            tops.append(np.linalg.eigvalsh(c * (g.T @ g / n - np.eye(p) / p))[-1])
        tops = np.array(tops)
        counted = (tops > chi + 2 * r + 2 * r * p ** (-2 / 3)).mean(), (tops > 2 * r + r * p ** (-2 / 3)).mean()
        print(p, epsilon, n, tops.mean() / (2 * r + chi), tops.mean() / (2 * r), *counted)
    print("one component: p, epsilon, n, theta/r, eigenvalue found, derived, error found, derived, sqrt(2) r/theta")
    for p, epsilon, n, share, repeats in [(40, 4, 10_000, 0.2, 40), (40, 8, 10_000, 0.4, 40), (40, 4, 4_000, 0.06, 80)]:
        k = constants(p, epsilon)
        spread = np.sqrt(np.r_[share, np.full(p - 1, (1 - share) / (p - 1))])
        top = moments_of(spread, rng)[0]
        level = (1 - top) / (p - 1)
        chi, theta = float(k["c"]) / n, top - level
        r2, big = ((p - 1) * profile(k, n, p, x, level) for x in (level, top))
        h = 0.5 * ((theta - chi) + sqrt((theta - chi) ** 2 + 4 * (big - r2)))
        cosine = (h * h - r2) / (h * h - r2 + big)
        found = [np.linalg.eigh(noisy(spread, k, epsilon, n, rng)) for _ in range(repeats)]
        place = np.mean([values[-1] for values, _ in found])
        error = sqrt(np.mean([2 * (1 - vectors[0, -1] ** 2) for _, vectors in found]))
        print(p, epsilon, n, theta / sqrt(r2), place, chi + h + r2 / h - theta / p, error, sqrt(2 * (1 - cosine)), sqrt(2 * r2) / theta)
    print("spread bulk: squared cosine found, closed form")
    p, epsilon, n, repeats = 30, 4, 20_000, 40
    k = constants(p, epsilon)
    spread = np.sqrt(np.r_[0.35, np.linspace(0.06, 0.001, p - 1)])
    truth = moments_of(spread, rng)
    y, rest = truth[0], truth[1:]
    c2 = float(k["c"]) ** 2 / n
    al, be, ga = c2 * float(k["a0"]), c2 * float(k["a1"]), c2 * float(k["a2"]) * p / (p + 2)

    def place(y):
        m0, m1 = (1 / (y - rest)).sum(), (rest / (y - rest)).sum()
        drift = 1 - float(k["c"]) / n * m0 / (p - 1)
        h = 0.5 * (drift + sqrt(drift * drift + 4 * (be * m0 + ga * m1)))
        return y + (al + be * y) * m0 / h + (be + ga * y) * m1 / h, 1 + be * m0 / h + ga * m1 / h

    slope = (place(y + 1e-6)[0] - place(y - 1e-6)[0]) / 2e-6
    found = [np.linalg.eigh(noisy(spread, k, epsilon, n, rng)) for _ in range(repeats)]
    cosines = np.mean([vectors[0, -1] ** 2 for _, vectors in found])
    print(cosines, slope / place(y)[1], "eigenvalue", np.mean([v[-1] for v, _ in found]), place(y)[0] - 1 / p)


# Sites


def row_grid(a, p, c):
    """s: the largest whole number that leaves room for rounding c rows of p numbers, and one more."""
    root = isqrt(c * p - 1) + 1
    return 2**a - (root + 1) // 2 - 1


def longest(left, most, numbers, c):
    """The largest |u|^2 of a row whose cell comes within s/sqrt c of 0; `left` is 4s^2, entries are at most `most`."""
    if numbers == 0:
        return 0
    return max(
        v * v + longest(left - c * max(2 * v - 1, 0) ** 2, v, numbers - 1, c)
        for v in range(most + 1)
        if c * max(2 * v - 1, 0) ** 2 <= left
    )


def rounded_rows(a, p, c):
    """Every u = rint(s x/sqrt c) of a row |x| <= 1: those whose cell comes near enough to 0."""
    s = row_grid(a, p, c)
    values = np.arange(-s - 1, s + 2)
    cost = c * np.maximum(2 * np.abs(values) - 1, 0) ** 2
    u, spent = np.zeros((1, 0), int), np.zeros(1, int)
    for _ in range(p):
        spent = (spent[:, None] + cost).ravel()
        u = np.hstack([np.repeat(u, len(values), 0), np.tile(values, len(u))[:, None]])
        u, spent = u[spent <= 4 * s * s], spent[spent <= 4 * s * s]
    return u


def packed(u, off):
    """The upper triangles of u u^T, entries off the diagonal times `off`, in units of 1."""
    p = u.shape[-1]
    return np.stack([u[..., i] * u[..., j] * (1 if i == j else off) for i in range(p) for j in range(i, p)], -1)


def furthest_rows(a, p, off):
    """Largest distance between tables that differ in one row, over 4^a: added or removed, replaced."""
    u = rounded_rows(a, p, 1)
    # Signs: u and -u are the same.
    u = u[(u[:, 0] > 0) | ((u[:, 0] == 0) & (u[:, 1] >= 0))]
    q = packed(u, off) / 4**a
    squared = (q * q).sum(1)
    replaced = 0.0
    for part in np.array_split(np.arange(len(q)), len(q) // 500 + 1):
        replaced = max(replaced, (squared[part, None] + squared - 2 * q[part] @ q.T).max())
    return sqrt(squared.max() + 1), sqrt(replaced)


def furthest_persons(a, p, c, off, count, rng, steps=4_000):
    """The same for one person with up to c rows, some unusable, by climbing; `count(usable, rows)` is the person's."""
    choices = {rows: rounded_rows(a, p, rows) for rows in range(1, c + 1)}

    def draw():
        rows = int(rng.integers(1, c + 1))
        usable = int(rng.integers(0, rows + 1))
        if rng.random() < 0.5:
            usable = rows
        # Long rows, near the bound, in few directions.
        u = choices[rows]
        order = np.argsort(-(u * u).sum(1))[:60]
        picked = u[rng.choice(order, usable)] if rng.random() < 0.7 else u[np.full(usable, rng.choice(order))]
        return packed(picked, off).sum(0) / 4**a if usable else np.zeros(p * (p + 1) // 2), count(usable, rows)

    best = 0.0
    kept = [draw() for _ in range(400)]
    for _ in range(steps):
        matrix, counted = draw()
        for other, beside in kept:
            best = max(best, ((matrix - other) ** 2).sum() + (counted - beside) ** 2)
        best = max(best, (matrix**2).sum() + counted**2)
        kept[int(rng.integers(len(kept)))] = matrix, counted
    return sqrt(best)


def boundary(sum_of, k, low, high):
    """The first number z for which the released number is above k, by bisection over neighbouring floats."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return high
        low, high = (middle, high) if sum_of(middle) <= k else (low, middle)


def ends(rng):
    """How far computing moves the ends of a cell, over the bound 2^-53(2|z| + L/2): after splitting, and plainly."""
    split_worst, plain_worst = 0.0, 0.0
    for _ in range(3_000):
        a = int(rng.integers(15, 21))
        sd = float(2 ** rng.uniform(-2, 6))
        grid = 2.0 ** floor(log2(sd)) / 64
        step = int(grid * 4**a)
        bound = 2 ** int(rng.integers(20, 63))
        total = int(rng.integers(bound // 2, bound))
        whole = (total + step // 2) // step
        rest = total - whole * step
        assert abs(2 * rest) <= step and whole * step + rest == total
        k = int(round(rng.uniform(-8, 8) * sd / grid))
        # Exactly: (k + 1/2)h = r + s z.
        exact = ((Fraction(k) + Fraction(1, 2)) * Fraction(grid) - Fraction(rest, 4**a)) / Fraction(sd)
        z = float(exact)
        allowed = (2 * abs(z) + grid / sd / 2) * 2.0**-53
        split = lambda z: round((rest * 4.0**-a + sd * z) / grid)
        plain = lambda z: round((float(total) * 4.0**-a + sd * z) / grid) - whole
        for name, sum_of in (("split", split), ("plain", plain)):
            found = boundary(sum_of, k, z - 1e-3, z + 1e-3)
            moved = abs(float(Fraction(found) - exact))
            # The bisection itself ends between two neighbouring numbers.
            moved = max(moved - np.spacing(abs(z)), 0) / allowed
            if name == "split":
                split_worst = max(split_worst, moved)
            else:
                plain_worst = max(plain_worst, moved)
    return split_worst, plain_worst


def sites():
    rng = np.random.default_rng(17)
    print("# sites: integer bound at a = 4, p = 1..8 and c = 1..16: the largest c max|u|^2 of 256; the least excess of s that breaks it")
    worst, excess = (0, 0, 0), 16
    for c in range(1, 17):
        for p in range(1, 9):
            s = row_grid(4, p, c)
            assert longest(4 * s * s, s + 1, p, c) <= 256 // c
            worst = max(worst, (c * longest(4 * s * s, s + 1, p, c), p, c))
            breaks = next(t for t in range(s, 32) if longest(4 * t * t, t + 1, p, c) > 256 // c)
            assert p == 1 or breaks <= 16
            excess = min(excess, breaks - s)
    print(worst, excess)
    print("one row added or removed, replaced, over sqrt 2, at a = 4: all rows")
    for p in (2, 3):
        for name, off in (("svec", sqrt(2)), ("tri", 1)):
            print(p, name, *(x / sqrt(2) for x in furthest_rows(4, p, off)))
    print("one person of up to c rows, over sqrt 2, at a = 4, by climbing; counted as in the code, once if all are usable")
    for p, c in ((2, 3), (3, 2), (2, 8)):
        unit = lambda usable, rows: usable * (256 // rows) / 256
        whole = lambda usable, rows: 1.0 if usable == rows else 0.0
        for off in (sqrt(2), 1):
            print(p, c, *(furthest_persons(4, p, c, off, count, rng) / sqrt(2) for count in (unit, whole)))
    print("a and s at m_max, p = 400; (2^a/s)^2 - 1")
    for m in (1_000, 2**22, 2**22 + 1, 10**8, 2**32):
        a = max(a for a in range(21) if m * 4**a <= 2**62)
        s = row_grid(a, 400, 1)
        print(m, a, s, (2**a / s) ** 2 - 1)
    print("ends of a cell moved over the bound, split and plain", *ends(rng))
    # Discrete: integers near the ends of cells, on a coarse grid, with the whole product.
    root = mp.sqrt(2) * mp.mpf(2) ** 62
    near = int(mp.nint(root))
    print("sqrt 2 in units of 2^-62", near, "off by", mp.nstr(abs(near - root), 3))
    scales = {True: 2**62, False: near}
    furthest = 0.0
    p, a, b = 3, 15, 5
    diagonal = [i == j for i in range(p) for j in range(i, p)]
    shift = 62 + 2 * a - b
    unit = rng.standard_normal((20_000, 2, p))
    unit /= np.linalg.norm(unit, axis=2)[:, :, None]
    for x, y in np.rint(row_grid(a, p, 1) * unit).astype(np.int64).tolist():
        table = [int(t) for t in rng.integers(0, 2**50, 6)]
        moved = 0
        for at, (i, j) in enumerate((i, j) for i in range(p) for j in range(i, p)):
            on = [(s * scales[diagonal[at]] + 2 ** (shift - 1)) >> shift for s in (table[at] + x[i] * x[j], table[at] + y[i] * y[j])]
            moved += (on[0] - on[1]) ** 2
        furthest = max(furthest, sqrt(moved))
    print("p = 3, b = 5: furthest pair in a table", furthest, "sensitivity", 2**b * sqrt(2) + sqrt(p * (p + 1) / 2 + 1), "without rounding", 2**b * sqrt(2))
    print("epsilon 1 at delta 1e-6 and 1e-7, for mu times 2, 3 (rows of one person), sqrt 2, sqrt 3 (sites of one person)")
    for delta in (1e-6, 1e-7):
        mu = gaussian_mu(1, delta)
        times = [2, 3, sqrt(2), sqrt(3)]
        print(delta, *(mp.nstr(mp.findroot(lambda e: mp.log(gaussian_delta(mu * k, e) / delta), k), 4) for k in times))
    for p in (2, 40, 400, 2_896):
        b = (500 * p - 1).bit_length()
        d = (p + 1) * (p + 2) // 2
        print("price of the grid at p =", p, b, sqrt(d) / (sqrt(2) * 2**b))


if __name__ == "__main__":
    parts = {"double_cap": double_cap, "gaussian": gaussian, "discrete": discrete, "centring": centring, "floor": floor_, "sites": sites}
    for name in sys.argv[1:] or parts:
        parts[name]()
