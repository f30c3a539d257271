"""What a preparation costs the study to come: the share of the top-k variance that is lost, through real devices.

Usage: pip install ./bindings/python numpy; python3 benches/preparation.py --tables ../shared/data/tables
[--people 20000,100000] [--epsilon 1,2,4] [--repeats 2] [--wider 1,3,10] [--one-round]. Participants are drawn from each
table with replacement; ranges are its extremes, rounded outwards to one digit, times --wider around their middle. A line
for each table and setting: loss with the true constants, with those of the preparation, and with the ranges alone.
"""

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

import eigenveil

K = {"health_insurance": 2, "diabetes": 2, "working_hours": 2}


def outward(x, up):
    """To one digit, away from the middle."""
    if x == 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(abs(x)))
    return (math.ceil if up else math.floor)(x / unit) * unit


def columns_of(rows, names, wider):
    columns = {}
    for name, values in zip(names, rows.T):
        there = values[~np.isnan(values)]
        if set(np.unique(there)) <= {0.0, 1.0}:
            kind = "yes-no"
        else:
            lo, hi = outward(there.min(), False), outward(there.max(), True)
            middle, half = (lo + hi) / 2, wider * (hi - lo) / 2
            kind = f"number {middle - half!r} {middle + half!r}"
        columns[name] = kind + (" may-be-missing" if len(there) < len(values) else "")
    return columns


def normalised(rows, center, scale):
    x = np.nan_to_num((rows - center) / scale)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1)


def loss(components, rows, k):
    """Share of the variance of the first k components of rows with the true constants that is lost, in percent."""
    x = normalised(rows, np.nanmean(rows, 0), np.nanstd(rows, 0))
    moment = x.T @ x / len(x)
    best = np.sort(np.linalg.eigvalsh(moment))[::-1][:k].sum()
    return 100 * (1 - np.trace(components @ moment @ components.T) / best)


def studied(analyst, rows, features, epsilon, k, name, folder):
    study = analyst.create_study(name, features=features, epsilon=epsilon)
    eigenveil.report(study, rows, ledger=folder / f"{name}.ledger")
    return np.asarray(analyst.estimate(study, k=k).components_)


def run(table, people, epsilon, wider, one_round, seed):
    # Two rounds with the same questions on one server would be taken for one preparation.
    with eigenveil.serve() as server, tempfile.TemporaryDirectory() as folder:
        return measured(server.analyst(), table, people, epsilon, wider, one_round, seed, Path(folder))


def measured(analyst, table, people, epsilon, wider, one_round, seed, folder):
    names = table.read_text().split("\n", 1)[0].split(",")
    rows = np.genfromtxt(table, delimiter=",", skip_header=1)
    rng = np.random.default_rng(seed)
    drawn = rows[rng.integers(len(rows), size=people)]
    k = K.get(table.stem, 3)
    information = ((math.exp(epsilon) - 1) / (math.exp(epsilon) + 2)) ** 2
    prepare = math.ceil(min(0.3 * people, 1000 * len(names) / information))
    first = prepare if one_round else math.ceil(0.4 * prepare)
    tag = f"{table.stem} {people} {epsilon} {wider} {seed}"
    columns = columns_of(rows, names, wider)
    study = analyst.create_preparation(f"{tag} 1", columns, epsilon=epsilon)
    eigenveil.report(study, drawn[:first], ledger=folder / f"{tag} 1.ledger")
    if not one_round:
        study = analyst.create_second_round(f"{tag} 2", study)
        eigenveil.report(study, drawn[first:prepare], ledger=folder / f"{tag} 2.ledger")
    found = analyst.prepare(study)["features"]
    truth = [
        {"name": name, "center": float(np.nanmean(x)), "scale": float(np.nanstd(x)), "observed": f.get("observed")}
        for name, x, f in zip(names, rows.T, found)
    ]
    stated = []
    for name, f in zip(names, found):
        lo, hi = (0.0, 1.0) if columns[name].startswith("yes") else map(float, columns[name].split()[1:3])
        stated.append({**f, "center": (lo + hi) / 2, "scale": (hi - lo) / math.sqrt(12)})
    others = drawn[prepare:]
    losses = [
        loss(studied(analyst, whose, features, epsilon, k, f"{tag} {kind}", folder), rows, k)
        for kind, features, whose in [("truth", truth, drawn), ("prepared", found, others), ("ranges", stated, drawn)]
    ]
    print(f"{tag:<45} " + " ".join(f"{value:7.2f}" for value in losses), flush=True)
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--people", default="20000")
    parser.add_argument("--epsilon", default="1,2,4")
    parser.add_argument("--wider", default="1")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--one-round", action="store_true")
    given = parser.parse_args()
    tables = [t for t in sorted(given.tables.glob("*.csv")) if given.only in t.stem and (given.only or t.stem != "flchain")]
    for people in map(int, given.people.split(",")):
        for epsilon in map(float, given.epsilon.split(",")):
            for wider in map(float, given.wider.split(",")):
                setting = (people, epsilon, wider, given.one_round)
                all_losses = [run(table, *setting, seed) for table in tables for seed in range(given.repeats)]
                mean = np.mean(all_losses, axis=0)
                print(f"mean {people} {epsilon} {wider}: " + " ".join(f"{x:.2f}" for x in mean), flush=True)


main()
