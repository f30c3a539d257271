"""What Python adds to the Rust it calls: reports alone, a table of reports against the command line, the sparse solver.

    python bindings/python/benches/overhead.py --cli target/dist/eigenveil [--rows 100000] [--solver PROGRAM]

Both sides take turns in one run, three times; medians. Reports are of p = 40 at ε = 4. "perturb" is the processor time
of perturbing, encoding, decoding and adding each (`LocalDPPCA.fit`, `simulate --noise per-report`); "reports" the time of
keeping and sending them to a server of this package on this machine, which takes processor time from both alike. PROGRAM is the bench program `rivals` of
`eigenveil-estimation`; without it the solver is left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import eigenveil
import eigenveil.central

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benches"))


def perturb(cli: str, n: int) -> dict[str, float]:
    rows = np.random.default_rng(1).normal(size=(n, 40))
    times: dict[str, list[float]] = {"python": [], "rust": []}
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", rows)
        words = [cli, "simulate", "--rows", f"{folder}/rows.npy", "--n", str(n), "--k", "2", "--epsilon", "4",
                 "--noise", "per-report", "--json"]  # fmt: skip
        for _ in range(3):
            started = time.process_time()
            eigenveil.LocalDPPCA(2, 4.0, random_state=1).fit(rows)
            times["python"].append(time.process_time() - started)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times["rust"].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    medians = {f"{side}_us": 1e6 * statistics.median(own) / n for side, own in times.items()}
    return {"rows": n, **medians, "ratio": medians["python_us"] / medians["rust_us"]}


def reports(cli: str, n: int) -> dict[str, float]:
    import pandas

    names = [f"x{i}" for i in range(40)]
    rows = np.random.default_rng(1).normal(size=(n, 40))
    frame = pandas.DataFrame(rows, columns=names)
    times: dict[str, list[float]] = {"python": [], "cli": []}
    with eigenveil.serve() as server, tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", rows)
        for turn in range(3):
            for side in times:
                study = server.analyst().create_study(f"{side} {turn}", features=names, epsilon=4)
                ledger = f"{folder}/{side}{turn}.ledger"
                started = time.perf_counter()
                if side == "python":
                    assert eigenveil.report(study, frame, ledger=ledger).accepted == n
                else:
                    words = [cli, "report", "--server", server.url, "--study", study.id, "--rows", f"{folder}/rows.npy"]
                    words += ["--by-position", "--ledger", ledger, "--json"]
                    subprocess.run(words, check=True, capture_output=True)
                times[side].append(time.perf_counter() - started)
    medians = {f"{side}_seconds": statistics.median(own) for side, own in times.items()}
    return {"rows": n, **medians, "rate_over_cli": medians["cli_seconds"] / medians["python_seconds"]}


def solver(program: str) -> dict[str, float]:
    from rivals import instance, ours

    matrix, k, penalty = instance(1000, 10), 10, 0.03
    matrix = (matrix + matrix.T) / 2
    python, rust = [], []
    with tempfile.TemporaryDirectory() as folder:
        matrix.tofile(f"{folder}/matrix")
        for _ in range(3):
            started = time.process_time()
            eigenveil.central.sparse_components(matrix, k=k, penalty=penalty, tolerance=1e-4)
            python.append(1e3 * (time.process_time() - started))
            rust.append(ours(program, "fantope", f"{folder}/matrix", 1000, k, penalty, 1e-4, 1)["ms"])
    return {"python_ms": statistics.median(python), "rust_ms": statistics.median(rust),
            "ratio": statistics.median(python) / statistics.median(rust)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cli", required=True)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--solver")
    given = parser.parse_args()
    print(json.dumps({"perturb": perturb(given.cli, given.rows)}))
    print(json.dumps({"reports": reports(given.cli, given.rows)}))
    if given.solver:
        print(json.dumps({"solver": solver(given.solver)}))


if __name__ == "__main__":
    main()
