"""What a preparation costs the study to come: the share of the top-k variance that is lost, through real devices.

Usage: pip install ./bindings/python numpy pandas; python3 benches/preparation.py --tables ../shared/data/tables
[--people 20000,100000] [--epsilon 1,2,4] [--repeats 2] [--ranges FILE] [--wider 1,3,10,0.1] [--one-round] [--only
TABLE]. Participants are drawn from each table with replacement. Ranges are its extremes, rounded outwards to one digit,
or those of FILE (table,column,kind: benches/stated-ranges.csv was written from names and units alone), times --wider
around their middle. A line for each table and setting: what the study loses with each kind of constants, and how many
columns of numbers have a message that their range is cut, too wide, or has all values in one place.
"""

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import eigenveil

K = {"health_insurance": 2, "diabetes": 2, "working_hours": 2}
CATEGORIES = {"flchain": {"flc.grp": [str(group) for group in range(1, 11)]}}
CONSTANTS = ["truth", "1,000 rows", "50 rows", "prepared", "ranges", "nothing"]
MESSAGES = ["is the unit right", "times as wide", "all values are equal"]


def outward(x, up):
    """To one digit, away from the middle."""
    if x == 0:
        return 0.0
    unit = 10.0 ** math.floor(math.log10(abs(x)))
    return (math.ceil if up else math.floor)(x / unit) * unit


def columns_of(table, frame, stated, wider):
    columns = {}
    for name, values in frame.items():
        there = values.dropna()
        if name in CATEGORIES.get(table, {}):
            kind = "categories " + "|".join(CATEGORIES[table][name])
        elif stated is not None:
            kind = stated.loc[table, name]
        elif set(there.unique()) <= {0.0, 1.0}:
            kind = "yes-no"
        else:
            kind = f"number {outward(there.min(), False)} {outward(there.max(), True)}"
        if kind.startswith("number"):
            lo, hi = map(float, kind.split()[1:])
            middle, half = (lo + hi) / 2, wider * (hi - lo) / 2
            kind = f"number {middle - half!r} {middle + half!r}"
        columns[name] = kind + (" may-be-missing" if len(there) < len(values) else "")
    return columns


def answers(kind):
    """To the question about a column, at most: the plan is for the column with most."""
    of_kind = {"number": 3, "yes-no": 2}.get(kind.split()[0]) or kind.count("|") + 2
    return of_kind + ("may-be-missing" in kind)


def matrix(frame, features):
    """A column for each feature; of a category 0 and 1."""
    columns = []
    for feature in features:
        column, _, category = feature["name"].partition("=")
        columns.append(frame[column] == category if category else frame[column])
    return np.array(columns, float).T


def with_constants(features, frame):
    """Features with the means and deviations of these rows, and one scale for the categories of a column."""
    rows = matrix(frame, features)
    of = [feature["name"].partition("=")[0] for feature in features]
    total = pd.Series(np.nanvar(rows, axis=0)).groupby(of).transform("sum")
    scale = np.sqrt(total.to_numpy())
    center = np.nan_to_num(np.nanmean(rows, axis=0))
    observed = 1 - np.isnan(rows).mean(axis=0)
    return [
        {"name": f["name"], "center": c, "scale": s if s > 0 else 1.0, "observed": o if f.get("observed") else None}
        for f, c, s, o in zip(features, center.tolist(), scale.tolist(), observed.tolist())
    ]


def moment_of(features, frame):
    """E[xxᵀ] of the normalised rows, missing cells at the centre."""
    center, scale = (np.array([feature[key] for feature in features]) for key in ("center", "scale"))
    x = np.nan_to_num((matrix(frame, features) - center) / scale)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    x /= np.where(length > 0, length, 1)
    return x.T @ x / len(x)


def loss(components, moment, k):
    """Share of the variance of the first k components that is lost, in percent."""
    best = np.sort(np.linalg.eigvalsh(moment))[::-1][:k].sum()
    return 100 * (1 - np.trace(components @ moment @ components.T) / best)


def run(*setting):
    # Two rounds with the same questions on one server would be taken for one preparation.
    with eigenveil.serve() as server, tempfile.TemporaryDirectory() as folder:
        return measured(server.analyst(), Path(folder), *setting)


def measured(analyst, folder, stated, people, epsilon, wider, whole, one_round, table, seed):
    frame = pd.read_csv(table, dtype={column: str for column in CATEGORIES.get(table.stem, {})})
    rng = np.random.default_rng(seed)
    drawn = frame.iloc[rng.integers(len(frame), size=people)].reset_index(drop=True)
    k = K.get(table.stem, 3)
    columns = columns_of(table.stem, frame, stated, wider)
    most = max(answers(kind) for kind in columns.values())
    information = ((math.exp(epsilon) - 1) / (math.exp(epsilon) + most - 1)) ** 2
    prepare = math.ceil(min(0.3 * people, 1000 * len(columns) / information))
    first = prepare if one_round else math.ceil(0.4 * prepare)
    tag = f"{table.stem} {people} {epsilon:g} {wider:g} {seed}"

    study = analyst.create_preparation(f"{tag} 1", columns, epsilon=epsilon)
    eigenveil.report(study, drawn[:first], ledger=folder / "1.ledger")
    if not one_round:
        study = analyst.create_second_round(f"{tag} 2", study)
        eigenveil.report(study, drawn[first:prepare], ledger=folder / "2.ledger")
    found = analyst.prepare(study)
    features = found["features"]
    truth = with_constants(features, frame)
    moment = moment_of(truth, frame)

    ranges = []
    for feature in features:
        kind = columns[feature["name"].partition("=")[0]]
        lo, hi = map(float, kind.split()[1:3]) if kind.startswith("number") else (0.0, 1.0)
        ranges.append({**feature, "center": (lo + hi) / 2, "scale": (hi - lo) / math.sqrt(12)})
    public = [with_constants(features, frame.iloc[rng.integers(len(frame), size=rows)]) for rows in (1000, 50)]
    raw = [{"name": feature["name"], "center": 0.0, "scale": 1.0} for feature in features]
    losses = []
    for kind, constants in enumerate((truth, *public, features, ranges, raw)):
        if not whole and constants is not features and constants is not ranges:
            losses.append(math.nan)
            continue
        centring = 0.25 if constants is raw else None
        main = analyst.create_study(f"{tag} {kind}", features=constants, epsilon=epsilon, centring=centring)
        whose = drawn[prepare:] if constants is features else drawn
        eigenveil.report(main, whose, ledger=folder / f"main {kind}.ledger")
        losses.append(loss(np.asarray(analyst.estimate(main, k=k).components_), moment, k))

    numbers = [column for column in found["columns"] if columns[column["name"]].startswith("number")]
    texts = [" ".join(column["messages"]) for column in numbers]
    told = [sum(message in text for text in texts) for message in MESSAGES]
    print(f"{tag:<32}" + "".join(f"{x:11.2f}" for x in losses) + f"   {told} of {len(texts)}", flush=True)
    return losses + [100 * count / len(texts) for count in told]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=Path, required=True)
    parser.add_argument("--people", default="20000")
    parser.add_argument("--epsilon", default="1,2,4")
    parser.add_argument("--ranges", type=Path)
    parser.add_argument("--wider", default="1")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--one-round", action="store_true")
    given = parser.parse_args()
    stated = given.ranges and pd.read_csv(given.ranges).set_index(["table", "column"])["kind"]
    others = [table for table in sorted(given.tables.glob("*.csv")) if table.stem != "flchain"]
    tables = [given.tables / f"{given.only}.csv"] if given.only else others
    heads = "".join(f"{name:>11}" for name in CONSTANTS)
    print(f"{'table, people, epsilon, wider, seed':<32}{heads}   cut, wide, equal")
    wider = list(map(float, given.wider.split(",")))
    for people in map(int, given.people.split(",")):
        for epsilon in map(float, given.epsilon.split(",")):
            for times in wider:
                # The other constants do not depend on ranges.
                setting = (stated, people, epsilon, times, times == wider[0], given.one_round)
                figures = [run(*setting, table, seed) for table in tables for seed in range(given.repeats)]
                mean = [f"{x:.2f}" for x in np.mean(figures, axis=0)]
                losses = "".join(f"{x:>11}" for x in mean[: len(CONSTANTS)])
                told = ", ".join(mean[len(CONSTANTS) :])
                print(f"{f'mean {people} {epsilon:g} {times:g}':<32}{losses}   {told} %", flush=True)


main()
