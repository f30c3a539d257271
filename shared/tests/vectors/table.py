"""Sites' reports by a second implementation: whole numbers of Python, calibration by mpmath; shares nothing with the code.

Usage: pip install mpmath; python3 table.py. Writes table.json (read by shared/src/mechanism/table/tests.rs),
study_params_sites.hex and site_report.hex (read by shared/tests/shared/site_vectors.rs) beside itself.
docs/protocol.md has the layouts, docs/derivations/sites.md what is computed.
"""

import hashlib
import json
import random
import struct
from math import frexp, isqrt, sqrt
from pathlib import Path

import mpmath as mp

mp.mp.dps = 50
HERE = Path(__file__).parent


def row_grid(max_rows, p, c):
    """a and s: rows become rint(s x/sqrt c), no longer than 2^a; m_max 4^a fits 62 bits."""
    a = max(a for a in range(21) if max_rows * 4**a <= 2**62)
    half_root = next(t for t in range(10**6) if 4 * t * t >= c * p)
    return a, 2**a - half_root - 1


def prepared(row, a_centring):
    """The row under `require` with radius 1, None if it cannot be used; the constant of private centring behind it."""
    if None in row or sum(x * x for x in row) > 2**48:
        return None
    row = [x / 2**24 for x in row]
    if a_centring is None:
        return row
    length = sqrt(1 + a_centring**2)
    return [x / length for x in [*row, a_centring]]


def table_sum(rows, labels, cap, a, s, p):
    """Sum of u u^T, upper triangle row by row, and of the count, in units of 4^-a; what was left out."""
    total = [0] * (p * (p + 1) // 2)
    count = unusable = beyond = 0
    of_person = {}
    for number, row in enumerate(rows):
        person = number if labels is None else labels[number]
        sofar = of_person[person] = of_person.get(person, 0) + 1
        everything = 1 if labels is None else labels.count(person)
        if sofar > cap:
            beyond += 1
            continue
        if row is None:
            unusable += 1
            continue
        c = min(everything, cap)
        factor = s / sqrt(c)
        u = [round(x * factor) for x in row]
        entries = [u[i] * u[j] for i in range(p) for j in range(i, p)]
        total = [x + y for x, y in zip(total, entries)]
        count += 4**a // c
    return total, count, unusable, beyond


def delta(mu, epsilon):
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def analytic_mu(epsilon, target):
    low, high = mp.mpf(2) ** -20, mp.mpf(2) ** 10
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle, epsilon) <= target else (low, middle)
    return low


def lattice_delta(mu, sigma, d, epsilon):
    """The bound of docs/derivations/discrete-gaussian.md at t = 3."""
    t = mp.mpf(3)
    xi, kappa = t / sigma**2, sigma**2 * t / (sigma**2 + t)
    first = mp.exp(-2 * mp.pi**2 * kappa)
    eta = 2 * first / (1 - first**3)
    w = mu * mp.sqrt(1 + xi)
    d1 = (xi * mu * mu / 2 - epsilon) / w + w / 2
    return (1 + eta) ** d * (mp.exp(xi * mu * mu / 2) * mp.ncdf(d1) - mp.exp(epsilon) * mp.ncdf(d1 - w))


def discrete(p, epsilon, target, bits):
    """Grid bits and sigma for a triangle one larger than p, which has room for the count."""
    d = (p + 1) * (p + 2) // 2
    mu = analytic_mu(epsilon, target * mp.mpf("0.9999"))
    while True:
        sensitivity = (mp.sqrt(2) * 2**bits + mp.sqrt(d)) * (1 + mp.mpf(2) ** -40)
        sigma = int(mp.ceil(sensitivity / mu * (1 + mp.mpf(2) ** -39)))
        if sigma >= 2**12:
            assert lattice_delta(sensitivity / sigma, sigma, d, epsilon) <= target
            # Far from a whole number: another arithmetic rounds it up to the same.
            assert 1e-6 < (sensitivity / mu) % 1 < 1 - 1e-6
            return bits, sigma
        bits += 1


def grid_bits(p):
    return (500 * p - 1).bit_length()


def on_grid(total, count, a, bits, p):
    """To the grid 2^-bits, entries off the diagonal times sqrt 2; halves upwards."""
    root = int(mp.nint(mp.sqrt(2) * mp.mpf(2) ** 62))
    diagonal = [i == j for i in range(p) for j in range(i, p)]
    scales = [2**62 if on else root for on in diagonal] + [2**62]
    shift = 62 + 2 * a - bits
    return [(x * scale + 2 ** (shift - 1)) // 2**shift for x, scale in zip([*total, count], scales)]


def rows_of(rng, p, count):
    """Rows in units of 2^-24, a few of which cannot be used (None: no number), and long ones along the axes."""
    rows = []
    for number in range(count):
        length = 0.999 * rng.random()
        if number % 4 == 0:
            length = 0.9999
        direction = [rng.gauss(0, 1) for _ in range(p)]
        if number % 5 == 1:
            direction = [float(k == number % p) for k in range(p)]
        norm = sqrt(sum(x * x for x in direction))
        row = [int(x / norm * length * 2**24) for x in direction]
        if number % 7 == 3:
            row[number % p] = None
        if number % 9 == 5:
            row = [2 * x if x is not None else x for x in row]
            row[0] = 3 * 2**23
        rows.append(row)
    return rows


def case(name, seed, p, centring, max_rows, cap, labels, count):
    rng = random.Random(seed)
    rows = rows_of(rng, p, count)
    big = p + (centring is not None)
    a, s = row_grid(max_rows, big, cap or 1)
    x = [prepared(row, centring) for row in rows]
    total, counted, unusable, beyond = table_sum(x, labels, cap or 1, a, s, big)
    budget = mp.mpf(1), mp.mpf(1e-6)
    bits, sigma = discrete(big, *budget, grid_bits(big))
    numbers = on_grid(total, counted, a, bits, big)
    scale = (2**a / s) ** 2
    diagonal = [i == j for i in range(big) for j in range(i, big)]
    decoded = [n * 2.0**-bits * (1 if on else sqrt(0.5)) * scale for n, on in zip(numbers, diagonal)]
    # isotropic-gaussian: h is 1/64 of the power of two at or below sigma/sqrt 2.
    off = mp.sqrt(2) / analytic_mu(*budget) / mp.sqrt(2)
    step = 2 * a + frexp(float(off))[1] - 1 - 6
    whole = [(x + 2**step // 2) // 2**step for x in [*total, counted]]
    return {
        "name": name, "dimension": p, "centring": centring, "max_rows": max_rows, "rows_per_person": cap,
        "labels": labels, "rows": rows, "a": a, "s": s, "total": total, "count": counted, "unusable": unusable,
        "beyond_cap": beyond, "grid_bits": bits, "sigma_grid": sigma, "numbers": numbers, "moment": decoded,
        "decoded_rows": numbers[-1] * 2.0**-bits, "step_bits": step, "whole": whole,
    }  # fmt: skip


def hex_file(name, head, lines):
    """Writes bytes as commented hexadecimal digits, and gives them back."""
    width = max(len(digits) for digits, _ in lines) + 1
    text = [f"# {head}"] + [f"{digits:<{width}}# {comment}" for digits, comment in lines]
    (HERE / name).write_text("\n".join(text) + "\n")
    return bytes.fromhex("".join(digits.replace(" ", "") for digits, _ in lines))


def number(layout, value):
    return struct.pack("<" + layout, value).hex()


def main():
    persons = [0, 1, 0, 2, 3, 3, 3, 3, 1, 4, 3, 0, 5, 6, 6, 2, 7, 3, 8, 6, 9]
    cases = [
        case("rows", 1, 3, None, 1_000, None, None, 24),
        case("a table of any size, with centring", 2, 5, 0.75, 2**32, None, None, 60),
        case("persons", 3, 3, 0.75, 4_194_305, 3, persons, len(persons)),
    ]
    assert (cases[0]["a"], cases[1]["a"], cases[2]["a"]) == (20, 15, 19)
    assert all(c["unusable"] > 2 for c in cases) and cases[2]["beyond_cap"] == 3
    lines = ",\n".join(json.dumps(c) for c in cases)
    (HERE / "table.json").write_text(f"[\n{lines}\n]\n")

    # The known constants of a study of single rows, by the same function.
    d, mu = 3, analytic_mu(mp.mpf(4), mp.mpf(2) ** -20 * mp.mpf("0.9999"))
    sensitivity = (mp.sqrt(2) * 2**12 + mp.sqrt(d)) * (1 + mp.mpf(2) ** -40)
    assert mp.ceil(sensitivity / mu) == 6929

    bits, sigma = discrete(3, mp.mpf(4), mp.mpf(2) ** -20, grid_bits(3))
    params = hex_file(
        "study_params_sites.hex",
        "Canonical bytes of a study of sites; their SHA-256 is the fingerprint.",
        [
            ("0300", "layout version 3"),
            (number("I", 2), "dimension 2 of a row; reports have dimension 3"),
            ("01 " + number("d", 2.0), "norm: clip, radius 2.0 (f64)"),
            ("00", "no features are described"),
            ("01 " + number("d", 0.5), "private centring: a = 0.5"),
            (number("d", 4.0), "epsilon 4.0"),
            (number("d", 2.0**-20), "delta 2^-20"),
            ("04", "mechanism: discrete-gaussian"),
            ("00", "calibration: none to choose, 0"),
            (number("Q", 2), "two constants, whole numbers as f64:"),
            ("  " + number("d", bits), f"  grid bits b = {bits}"),
            ("  " + number("d", sigma), f"  sigma {sigma} grid steps"),
            (number("Q", 50), "min_rows 50"),
            (number("Q", 100_000), "max_rows 100,000"),
            ("01 " + number("H", 20), "rows_per_person: 20, so that persons are counted"),
            ("01", "site weights: precision"),
        ],
    )
    bound = 100_000 * 2**bits + 16 * sigma + 1
    entries = [777 << bits, -2, 3 << 25, bound, -bound, 0, 640 << bits]
    names = ["(0,0)", "(0,1)", "(0,2)", "(1,1): the largest", "(1,2): the smallest", "(2,2)", "the noisy count"]
    payload = [("  " + number("q", n), f"  {name}: {n}") for n, name in zip(entries, names)]
    fingerprint = hashlib.sha256(params).hexdigest()
    hex_file(
        "site_report.hex",
        "One report of a site, for the study of study_params_sites.hex.",
        [
            ("0200", "wire version 2"),
            (f"{fingerprint[:32]} {fingerprint[32:]}", "fingerprint of the study parameters"),
            ("01938000111171119111111111111105", "identifier"),
            (number("Q", 8 * len(entries)), f"payload length {8 * len(entries)}; i64, the upper triangle and the count:"),
            *payload,
        ],
    )


if __name__ == "__main__":
    main()
