"""Private PCA of the digits beside other libraries, in one run: lines, seconds, error at the same ε.

    pip install ./bindings/python "opendp[scikit-learn]" pfl scikit-learn
    python bindings/python/benches/beside.py [--diffprivlib PYTHON]

50,000 rows drawn from the 1,797 digits, each divided by its length; five components; ε = 4. The error is ‖V̂V̂ᵀ − VVᵀ‖
against the same library-free PCA of the same rows, around their mean where the library subtracts it (at most 3.16).
"16 features" are sums of 2 × 2 pixels. Whatever takes longer than a minute is ended, and said so.
"local" protects each row before it leaves its owner; "central" trusts a curator who sees all rows, which needs far less
noise: the two are different promises. PYTHON is an interpreter that has diffprivlib and a scikit-learn that it imports
with (before 1.5). pfl-research has no PCA, but mechanisms: its Gaussian one at δ = 1e-6 perturbs each row's products.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "data" / "digits.npy"
N, K, EPSILON = 50_000, 5, 4.0
LONGEST = 60  # seconds
SMALL = "_16_features"


def local_eigenveil(rows):
    from eigenveil import LocalDPPCA
    return LocalDPPCA(K, EPSILON).fit(rows).components_


def local_eigenveil_centred(rows):
    from eigenveil import LocalDPPCA
    return LocalDPPCA(K, EPSILON, centring=0.7).fit(rows).components_


def local_pfl(rows):
    from pfl.privacy import GaussianMechanism
    from pfl.stats import MappedVectorStatistics
    # Two rows' products are at most √2 apart.
    mechanism = GaussianMechanism.construct_single_iteration(np.sqrt(2), EPSILON, 1e-6)
    total = 0
    for row in rows:
        report, _ = mechanism.privatize(MappedVectorStatistics({"products": np.outer(row, row)}))
        total += report["products"]
    return np.linalg.eigh(total + total.T)[1][:, -K:].T


def central_eigenveil(rows):
    from eigenveil import central
    return central.fit("analyze-gauss", rows, k=K, epsilon=EPSILON, delta=1e-6).components_


def central_opendp_centred(rows):
    import opendp.prelude as dp
    dp.enable_features("contrib", "idealized-numerics", "honest-but-curious")
    n, p = rows.shape
    model = dp.sklearn.decomposition.PCA(epsilon=EPSILON, row_norm=1.0, n_samples=n, n_features=p, n_components=K)
    return model.fit(rows).components_


def central_diffprivlib_centred(rows):
    from diffprivlib.models import PCA
    p = rows.shape[1]
    return PCA(K, epsilon=EPSILON, data_norm=1.0, bounds=(np.zeros(p), np.ones(p))).fit(rows).components_


def no_privacy_scikit_learn_centred(rows):
    from sklearn.decomposition import PCA
    return PCA(K).fit(rows).components_


def measure(name):
    method = globals()[name.removesuffix(SMALL)]
    digits = np.load(DIGITS).astype(float)
    rows = digits[np.random.default_rng(1).integers(len(digits), size=N)]
    if name.endswith(SMALL):
        rows = rows.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4)).reshape(-1, 16)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    centred = rows - rows.mean(axis=0) if method.__name__.endswith("centred") else rows
    truth = np.linalg.eigh(centred.T @ centred)[1][:, -K:]
    started = time.perf_counter()
    found = method(rows)
    seconds = time.perf_counter() - started
    error = np.linalg.norm(found.T @ found - truth @ truth.T)
    lines = len(inspect.getsource(method).strip().splitlines()) - 1
    return {"method": name, "lines": lines, "seconds": round(seconds, 2), "error": round(float(error), 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--diffprivlib", metavar="PYTHON")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(given.only)), flush=True)
        return
    methods = [
        local_eigenveil,
        local_eigenveil_centred,
        local_pfl,
        central_eigenveil,
        central_opendp_centred,
        no_privacy_scikit_learn_centred,
    ]
    # Each in a process of its own: imports are part of nobody's time but its own.
    interpreters = [(sys.executable, method.__name__) for method in methods]
    interpreters += [(sys.executable, method.__name__ + SMALL) for method in (central_eigenveil, central_opendp_centred)]
    if given.diffprivlib:
        interpreters.append((given.diffprivlib, central_diffprivlib_centred.__name__))
    for python, name in interpreters:
        try:
            subprocess.run([python, __file__, "--only", name], check=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            print(json.dumps({"method": name, "error": f"not finished in {LONGEST} s"}), flush=True)
        except subprocess.CalledProcessError as error:
            print(json.dumps({"method": name, "error": f"failed, exit code {error.returncode}"}), flush=True)


if __name__ == "__main__":
    main()
