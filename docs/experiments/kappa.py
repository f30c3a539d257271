"""The constant of `--lambda auto`, by experiment (about three minutes).

lambda = kappa * s * sqrt(2 ln(p(p-1)/2) / n), with s the off-diagonal standard deviation of one report.
For each setting and kappa: the error with and without refit, plain PCA on the same reports, the
prediction for an oracle that knows the support, and precision, recall and F1 of the support.

    cargo build --release -p eigenveil && python3 docs/experiments/kappa.py
"""

import json
import math
import subprocess

PROGRAM = "target/release/eigenveil"
KAPPAS = (0.25, 0.35, 0.5, 0.7, 1.0)
REPEATS = 3
# isotropic-gaussian, calibration analytic, delta = 1e-6: sigma by epsilon; s = sigma / sqrt(2).
SIGMA = {2: 3.1543697932632, 4: 1.6878901729032, 8: 0.9233900759127}
# p, s (rows), k, n, epsilon, spike
SETTINGS = (
    (200, 15, 3, 100_000, 4, 60),
    (200, 15, 3, 100_000, 2, 60),
    (200, 15, 3, 1_000_000, 2, 20),
    (100, 10, 2, 30_000, 4, 20),
    (100, 30, 5, 300_000, 8, 20),
)


def simulate(p, rows, k, n, epsilon, spike, kappa, refit):
    noise = SIGMA[epsilon] / math.sqrt(2)
    penalty = kappa * noise * math.sqrt(2 * math.log(p * (p - 1) / 2) / n)
    command = [PROGRAM, "simulate", "--json", "--model", "sparse", "--sparse"]
    for flag, value in {
        "--p": p, "--s": rows, "--k": k, "--n": n, "--epsilon": epsilon, "--spike": spike,
        "--lambda": penalty, "--repeats": REPEATS, "--max-iterations": 300,
    }.items():
        command += [flag, str(value)]
    if refit:
        command.append("--refit")
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


for setting in SETTINGS:
    print("p={} s={} k={} n={} epsilon={} spike={}".format(*setting))
    for kappa in KAPPAS:
        refitted, relaxed = (simulate(*setting, kappa, refit) for refit in (True, False))
        print(
            f"  kappa {kappa:.2f}  refit {refitted['error_mean']:.3f}  relaxed {relaxed['error_mean']:.3f}"
            f"  pca {refitted['pca_error']:.3f}  oracle {refitted['predicted_error']:.3f}"
            f"  precision {refitted['support_precision']:.2f}  recall {refitted['support_recall']:.2f}"
            f"  F1 {refitted['support_f1']:.2f}  converged {refitted['converged']}/{REPEATS}",
            flush=True,
        )
