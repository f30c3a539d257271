"""A consortium's three hospitals: FeatureCloud's method, a pooled PCA and a study of sites, on the same rows.

    pip install numpy && python benches/federated.py PROGRAM [STUDIES]        (PROGRAM: target/release/eigenveil; a minute)

The digits of `docs/sites.md`, 900, 600 and 297 rows with the same public constants, k = 3. FeatureCloud's PCA is the
federated subspace iteration of Hartebrodt et al. (its sites exchange XᵀXG in each round, without noise); before it the
sites add up their means. Ours runs as a site runs it: a server, three reports over HTTP, one estimate for each study.
The result is in docs/sites.md, "Beside other systems".
"""

import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

K, SIZES, EPSILONS = 3, {"North": 900, "South": 600, "Coast": 297}, (1, 4)
DATA = pathlib.Path(__file__).resolve().parent.parent / "examples" / "data"


def prepared(raw, features):
    """Rows less their center, over their scale, then divided by their length: the study's preparation."""
    rows = (raw - features[:, 0]) / features[:, 1]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def leading(moment):
    return np.linalg.eigh(moment)[1][:, ::-1][:, :K]


def error(found, truth):
    return np.linalg.norm(found @ found.T - truth @ truth.T)


def feature_cloud(sites, rounds=500):
    """Subspace iteration; what a site hands out in each round is p × k, and p numbers for its mean."""
    n = sum(map(len, sites))
    mean = sum(site.sum(0) for site in sites) / n
    sites = [site - mean for site in sites]
    found = np.linalg.qr(np.random.default_rng(1).standard_normal((mean.size, K)))[0]
    for done in range(rounds):
        before, found = found, np.linalg.qr(sum(site.T @ (site @ found) for site in sites))[0]
        if error(found, before) < 1e-10:
            break
    return found, done + 1


def run(program, *arguments, **settings):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, **settings)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def study_of_sites(program, environment, folder, names, epsilon):
    """Components of a new study: created, three reports, closed, estimated. p × k."""
    call = lambda *arguments: run(program, *arguments, cwd=folder, env=environment)
    created = call("study", "create", "--name", "digits", "--features", DATA / "digits_features.csv", "--k", K,
                   "--epsilon", epsilon, "--max-rows", 1000, "--same-name", "--json")
    study = json.loads(created)["id"]
    for name in SIZES:
        token, ledger = (folder / f"{study}-{name}.{kind}" for kind in ("token", "ledger"))
        call("study", "tokens", study, "--site", name, "--out", token)
        call("report", "--study", study, "--site", name, "--rows", f"{name}.csv", "--tokens", token, "--ledger", ledger,
             "--approve")
    call("study", "close", study)
    call("estimate", "--study", study, "--k", K, "--wait", "--out", folder / study)
    estimate = json.loads((folder / study / "estimate.json").read_text())
    return np.array([component["loadings"] for component in estimate["components"]]).T


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    studies = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with open(DATA / "digits_features.csv") as file:
        lines = list(csv.reader(file))[1:]
    names, features = [line[0] for line in lines], np.array([[float(cell) for cell in line[1:3]] for line in lines])
    raw = np.load(DATA / "digits.npy").astype(float)
    rows = prepared(raw, features)
    parts = np.split(rows, np.cumsum(list(SIZES.values()))[:-1])

    pooled = leading(np.cov(rows.T, bias=True))
    found, rounds = feature_cloud(parts)
    print(f"FeatureCloud's method without privacy: error {error(found, pooled):.1e} against a pooled PCA, {rounds} rounds")
    scale = 2**20 - np.ceil(np.sqrt(rows.shape[1] + 1) / 2) - 1  # Whole numbers, as a site's report has before its noise.
    whole = [np.rint(scale * np.hstack([np.ones((len(part), 1)), part]) / np.sqrt(2)) for part in parts]
    total = sum(part.T @ part for part in whole) / len(rows) * 2 / scale**2
    mean = total[0, 1:] / total[0, 0]
    print(f"sums of rows in whole numbers, no noise: error {error(leading(total[1:, 1:] / total[0, 0] - np.outer(mean, mean)), pooled):.1e}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, part in zip(SIZES, np.split(raw, np.cumsum(list(SIZES.values()))[:-1])):
            with open(folder / f"{name}.csv", "w", newline="") as file:
                csv.writer(file).writerows([names, *part.tolist()])
        server = subprocess.Popen([program, "serve", "--data", folder / "data", "--listen", "127.0.0.1:8977"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            secret = folder / "data" / "operator.token"
            while not secret.exists() or not secret.read_text().strip():
                time.sleep(0.1)
            environment = os.environ | {"EIGENVEIL_TOKEN": secret.read_text().strip(),
                                        "EIGENVEIL_SERVER": "http://127.0.0.1:8977"}
            time.sleep(1)
            for epsilon in EPSILONS:
                errors = [error(study_of_sites(program, environment, folder, names, epsilon), pooled)
                          for _ in range(studies)]
                print(f"study of sites, epsilon {epsilon}: error {statistics.mean(errors):.2f} in the mean of {studies} "
                      f"studies, {min(errors):.2f} to {max(errors):.2f}")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
