"""A preparation's parameters and reports by a second implementation: bytes by struct, rungs by fractions, the fit by numpy.

Usage: pip install numpy; python3 preparation.py. Writes study_params_preparation.hex, study_params_second_round.hex and
report_preparation.hex (read by shared/tests/shared/preparation_vectors.rs) and preparation_rounds.json (read by
estimation/src/preparation/tests.rs) beside itself. docs/protocol.md has the layouts, docs/derivations/preparation.md
what is computed.
"""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def hex_file(name, head, lines):
    """Writes bytes as commented hexadecimal digits, and gives them back."""
    width = max(len(digits) for digits, _ in lines)
    text = "".join(f"{digits:<{width}} # {comment}\n" for digits, comment in lines)
    (HERE / name).write_text(f"# {head}\n{text}")
    return bytes.fromhex("".join(digits.replace(" ", "") for digits, _ in lines))


def packed(layout, value):
    return struct.pack("<" + layout, value).hex()


def text(words):
    return packed("Q", len(words.encode())) + " " + words.encode().hex()


def column(name, missing, lo_hi=None, within=None, categories=()):
    lines = [
        (text(name), f"column: {name}"),
        (packed("B", missing), "may be missing" if missing else "never missing"),
    ]
    if lo_hi is None:
        lines.append(("00", "no range"))
    else:
        numbers = " ".join(packed("d", x) for x in lo_hi)
        lines.append(("01 " + numbers, f"range: {lo_hi[0]} to {lo_hi[1]}"))
        if within is None:
            lines.append(("00", "no interval in it"))
        else:
            numbers = " ".join(packed("d", x) for x in within)
            lines.append(("01 " + numbers, f"interval in it: {within[0]} to {within[1]}"))
    lines.append((packed("Q", len(categories)), f"{len(categories)} categories"))
    lines.extend((text(category), category) for category in categories)
    return lines


def parameters(name, head, after, within):
    lines = [("0400", "layout version 4"), (packed("d", 1.0), "epsilon 1.0")]
    lines.append(("00", "a first round") if after is None else ("01 " + after, "after the first round"))
    lines.append((packed("Q", 3), "3 columns"))
    lines += column("height", True, (100.0, 220.0), within)
    lines += column("raucht", False)
    lines += column("größe", False, categories=("klein", "groß"))
    return hashlib.sha256(hex_file(name, head, lines)).hexdigest()


def ladder(lo, hi, rungs):
    return [lo + (k + 0.5) * (hi - lo) / rungs for k in range(rungs)]


def fit(ladders, counts, epsilon, missing):
    """EM from the uniform vector over the cells between all rungs used, and the missing cell; 300 iterations."""
    rungs = sorted(set(t for rungs in ladders for t in rungs))
    cells = len(rungs) + 1
    answers = 3 + missing
    low, high = 1 / (np.exp(epsilon) + answers - 1), np.exp(epsilon) / (np.exp(epsilon) + answers - 1)
    rows, n = [], []
    for own, of_round in zip(ladders, counts):
        combs = len(own) // 2
        for o in range(combs):
            ends = [0, rungs.index(own[o]) + 1, rungs.index(own[o + combs]) + 1, cells]
            for answer in range(answers):
                row = np.full(cells + missing, low)
                if answer < 3:
                    row[ends[answer] : ends[answer + 1]] = high
                else:
                    row[cells] = high
                rows.append(row)
                n.append(of_round[o][answer])
    m, n = np.array(rows), np.array(n, float)
    f = np.full(cells + missing, 1 / (cells + missing))
    for _ in range(300):
        f = f * (m.T @ (n / (m @ f)))
        f /= f.sum()
    share = f[cells] if missing else 0.0
    f = f[:cells] / (1 - share)
    return rungs, f, share


def moments(rungs, f, ends, clip):
    atoms = np.array([ends[0], *((a + b) / 2 for a, b in zip(rungs, rungs[1:])), ends[1]])
    atoms = np.clip(atoms, *clip)
    mean = f @ atoms
    return mean, np.sqrt(max(f @ atoms**2 - mean**2, 0.0))


def quantile(rungs, f, ends, share):
    """Linear between rungs."""
    edges = np.array([ends[0], *rungs, ends[1]])
    return np.interp(share, np.concatenate([[0.0], np.cumsum(f)]), edges)


def answers(rng, values, ladder_, epsilon, missing):
    """Counts of one round: a comb each, and k-ary randomised response."""
    b = 3 + missing
    combs = len(ladder_) // 2
    counts = np.zeros((combs, b), int)
    for x in values:
        o = rng.integers(combs)
        truth = 3 if np.isnan(x) else int(x >= ladder_[o]) + int(x >= ladder_[o + combs])
        other = (truth + 1 + rng.integers(b - 1)) % b
        keep = rng.random() < np.exp(epsilon) / (np.exp(epsilon) + b - 1)
        counts[o, truth if keep else other] += 1
    return counts


def rounds():
    rng = np.random.default_rng(52)
    cases = []
    for epsilon, missing, n, draw in [
        (1.0, 0, 6_000, lambda k: rng.normal(3.0, 0.4, k)),
        (2.0, 1, 3_000, lambda k: np.where(rng.random(k) < 0.2, np.nan, rng.gamma(2.0, 1.0, k))),
        # Mostly zero: the guard.
        (4.0, 0, 3_000, lambda k: np.where(rng.random(k) < 0.85, 0.0, 10.0 * rng.random(k))),
    ]:
        ends = (0.0, 10.0)
        first = ladder(*ends, 24)
        one = answers(rng, draw(n), first, epsilon, missing)
        rungs, f, share = fit([first], [one], epsilon, missing)
        q10, q50, q90 = (quantile(rungs, f, ends, q) for q in (0.1, 0.5, 0.9))
        edges = [ends[0], *rungs, ends[1]]
        at = int(np.searchsorted(rungs, q50, side="right"))
        spread = max((q90 - q10) / 2.56, (edges[at + 1] - edges[at]) / 2)
        within = (max(ends[0], q50 - 3 * spread), min(ends[1], q50 + 3 * spread))
        second = ladder(*within, 12)
        two = answers(rng, draw(n), second, epsilon, missing)
        both, g, g_share = fit([first, second], [one, two], epsilon, missing)
        mids = np.array([ends[0], *((a + b) / 2 for a, b in zip(both, both[1:])), ends[1]])
        outside = g[(mids < within[0]) | (mids > within[1])].sum()
        clip = ends if outside > 0.05 else within
        cases.append(
            {
                "epsilon": epsilon,
                "missing": bool(missing),
                "range": ends,
                "first": one.tolist(),
                "one_round": [*map(float, moments(rungs, f, ends, ends)), float(share)],
                "within": list(map(float, within)),
                "second": two.tolist(),
                "outside": float(outside),
                "two_rounds": [*map(float, moments(both, g, ends, clip)), float(g_share)],
            }
        )
    return cases


def main():
    head = "Canonical bytes of a preparation; their SHA-256 is the fingerprint."
    first = parameters("study_params_preparation.hex", head, None, None)
    head = "Canonical bytes of the second round of the preparation in study_params_preparation.hex."
    parameters("study_params_second_round.hex", head, first, (150.0, 180.0))
    hex_file(
        "report_preparation.hex",
        "One report of a preparation (62 bytes), for the study of study_params_preparation.hex.",
        [
            ("0100", "wire version 1"),
            (first[:32] + " " + first[32:], "fingerprint of the study parameters"),
            ("01938000111171119111111111111106", "identifier"),
            (packed("Q", 4), "payload length 4"),
            ("0200", "column 2, größe"),
            ("00", "comb 0, as there are no rungs"),
            ("02", "answer 2: neither klein nor groß"),
        ],
    )
    (HERE / "preparation_rounds.json").write_text(json.dumps({"cases": rounds()}, indent=1) + "\n")


main()
