"""Records solutions of small Fantope problems by a public convex solver.

    pip install cvxpy==1.9.3 clarabel==0.11.1 && python make.py > problems.json

max <S,X> - lambda * sum_ij |X_ij|  over  0 <= X <= I, tr X = k, solved by Clarabel (interior point)
at 1e-8. The matrices are written out entry by entry, so nothing depends on a random generator.
"""

import json

import clarabel
import cvxpy as cp
import numpy as np


def solve(s, k, lam):
    p = s.shape[0]
    x = cp.Variable((p, p), symmetric=True)
    problem = cp.Problem(
        cp.Maximize(cp.trace(s @ x) - lam * cp.sum(cp.abs(x))),
        [x >> 0, np.eye(p) - x >> 0, cp.trace(x) == k],
    )
    problem.solve(
        solver=cp.CLARABEL,
        tol_gap_abs=1e-8,
        tol_gap_rel=1e-8,
        tol_feas=1e-8,
        max_iter=500,
    )
    return problem.status, float(problem.value), x.value


def main():
    rng = np.random.default_rng(20261121)

    def noise(p, sd):
        a = rng.normal(size=(p, p)) * sd
        return np.round((a + a.T) / 2, 4)

    def spiked(p, rows, size, sd):
        v = np.zeros(p)
        v[rows] = 1 / np.sqrt(len(rows))
        return np.round(size * np.outer(v, v), 4) + noise(p, sd)

    problems = [
        ("one spike on two rows", spiked(5, [0, 1], 2.0, 0.1), 1, 0.1),
        ("two spikes", spiked(8, [0, 1, 2], 3.0, 0.1) + spiked(8, [4, 5], 2.0, 0.1), 2, 0.15),
        ("pure noise", noise(6, 1.0), 2, 0.3),
        ("heavy penalty, almost diagonal", noise(7, 1.0), 3, 1.2),
        ("no penalty", noise(6, 1.0), 2, 0.0),
        ("repeated eigenvalues", np.diag([2.0, 2.0, 2.0, 1.0]), 2, 0.05),
        ("tiny scale", noise(5, 1.0) * 1e-6, 2, 2e-7),
        ("huge scale", noise(5, 1.0) * 1e6, 2, 2e5),
        ("a large multiple of the identity on top", noise(6, 1.0) + 50 * np.eye(6), 3, 0.25),
        ("two rows", np.array([[1.0, 0.8], [0.8, 1.3]]), 1, 0.5),
    ]
    out = []
    for name, s, k, lam in problems:
        # The interior point method works on entries of size one; the objective is homogeneous.
        scale = np.abs(s).max()
        status, value, x = solve(s / scale, k, lam / scale)
        assert status == "optimal", (name, status)
        out.append(
            {
                "name": name,
                "k": k,
                "lambda": lam,
                "moment": s.tolist(),
                "objective": value * scale,
                "x": x.tolist(),
            }
        )
    record = {"solver": f"cvxpy {cp.__version__}, Clarabel {clarabel.__version__}", "problems": out}
    print(json.dumps(record, indent=1))


main()
