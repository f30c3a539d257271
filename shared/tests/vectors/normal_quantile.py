"""The coefficients of shared/src/mechanism/double_cap/quantile.rs, made anew and checked at 80 digits.

With q = u - 1/2 and w = -ln 4u(1 - u), the normal quantile divided by q is a smooth function of w on
0 to 51 ln 2, which is all that 52-bit words reach. A rational function of degree (12, 12) is fitted to it by
iterated weighted least squares (Sanathanan & Koerner 1963, then Lawson's weights), the logarithm by a polynomial.

    python3 -m pip install gmpy2 && python3 shared/tests/vectors/normal_quantile.py     # a minute
"""
import gmpy2
from gmpy2 import const_pi, cos, erf, erfc, exp, log, mpfr, sqrt

gmpy2.get_context().precision = 260
PI = const_pi()


def quantile_over_q(w):
    if w <= mpfr("1e-40"):
        return sqrt(2 * PI)
    q = sqrt(-gmpy2.expm1(-w)) / 2
    if w < 2:
        x = q * sqrt(2 * PI)
        step = lambda x: (erf(x / sqrt(mpfr(2))) / 2 - q) * sqrt(2 * PI) * exp(x * x / 2)
    else:
        tail = exp(-w) / 4 / (mpfr("0.5") + q)
        x = sqrt(-2 * log(tail)) - 1

        def step(x):
            c = erfc(x / sqrt(mpfr(2))) / 2
            return -(log(c) - log(tail)) * c * sqrt(2 * PI) * exp(x * x / 2)

    for _ in range(200):
        change = step(x)
        x -= change
        if abs(change) < mpfr(10) ** -70:
            return x / q
    raise ArithmeticError(f"no convergence at {w}")


def logarithm_over_r(z):
    if z < mpfr("1e-60"):
        return mpfr(2)
    r = sqrt(z)
    return log((1 + r) / (1 - r)) / r


def solve(a, b):
    rows = [row + [right] for row, right in zip(a, b)]
    n = len(rows)
    for c in range(n):
        p = max(range(c, n), key=lambda r: abs(rows[r][c]))
        rows[c], rows[p] = rows[p], rows[c]
        for r in range(c + 1, n):
            m = rows[r][c] / rows[c][c]
            for k in range(c, n + 1):
                rows[r][k] -= m * rows[c][k]
    x = [mpfr(0)] * n
    for r in reversed(range(n)):
        x[r] = (rows[r][n] - sum((rows[r][k] * x[k] for k in range(r + 1, n)), mpfr(0))) / rows[r][r]
    return x


def chebyshev(y, count):
    t = [mpfr(1), y]
    while len(t) < count:
        t.append(2 * y * t[-1] - t[-2])
    return t[:count]


def fit(f, upper, m, n):
    """Coefficients of powers of the argument, numerator and denominator, and the largest relative error."""
    half = upper / 2
    points = 4 * (m + n + 2)
    ys = [-cos(PI * k / points) for k in range(points + 1)]
    ts = [chebyshev(y, max(m, n) + 1) for y in ys]
    fs = [f(half + half * y) for y in ys]
    q_values, weights, best = [mpfr(1)] * len(ys), [mpfr(1)] * len(ys), None
    for turn in range(14):
        rows = [
            ([x / q / v for x in t[: m + 1]] + [-x / q for x in t[1 : n + 1]], 1 / q)
            for t, q, v in zip(ts, q_values, fs)
        ]
        size = m + n + 1
        a = [[sum(w * r[i] * r[j] for (r, _), w in zip(rows, weights)) for j in range(size)] for i in range(size)]
        b = [sum(w * r[i] * right for (r, right), w in zip(rows, weights)) for i in range(size)]
        solution = solve(a, b)
        p, q = solution[: m + 1], [mpfr(1)] + solution[m + 1 :]
        q_values = [sum(c * x for c, x in zip(q, t)) for t in ts]
        errors = [abs(sum(c * x for c, x in zip(p, t)) / d / v - 1) for t, d, v in zip(ts, q_values, fs)]
        worst = max(errors)
        best = (p, q)
        if turn > 4:
            weights = [w * (e / worst + mpfr("1e-9")) for w, e in zip(weights, errors)]
            weights = [w / max(weights) for w in weights]
    p, q = (powers(c, half) for c in best)
    return [c / q[0] for c in p], [c / q[0] for c in q]


def powers(coefficients, half):
    """From Chebyshev polynomials in y = (x - half)/half to powers of x."""
    basis = [[mpfr(1)], [mpfr(0), mpfr(1)]]
    while len(basis) < len(coefficients):
        shifted = [mpfr(0)] + [2 * c for c in basis[-1]]
        basis.append([c - (basis[-2][i] if i < len(basis[-2]) else 0) for i, c in enumerate(shifted)])
    in_y = [mpfr(0)] * len(coefficients)
    for c, t in zip(coefficients, basis):
        for i, x in enumerate(t):
            in_y[i] += c * x
    out = [mpfr(0)]
    for c in reversed(in_y):
        wider = [mpfr(0)] * (len(out) + 1)
        for i, x in enumerate(out):
            wider[i + 1] += x / half
            wider[i] -= x
        wider[0] += c
        out = wider
    return out[: len(coefficients)]


def value(coefficients, x):
    total = mpfr(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def show(name, f, upper, m, n):
    numerator, denominator = fit(f, upper, m, n)
    # The error of the coefficients as they are rounded to doubles, on a grid dense near 0.
    p, q = ([mpfr(float(c)) for c in list] for list in (numerator, denominator))
    grid = [upper * mpfr(k * k) / 4_000_000 for k in range(2_001)]
    error = max(abs(value(p, x) / value(q, x) / f(x) - 1) for x in grid)
    print(f"{name}: relative error {float(error):.2e}")
    print("  numerator", [float(c) for c in numerator])
    print("  denominator", [float(c) for c in denominator])


show("quantile", quantile_over_q, mpfr("35.36"), 12, 12)
widest = 3 - 2 * sqrt(mpfr(2))
show("logarithm", logarithm_over_r, widest * widest, 6, 0)
