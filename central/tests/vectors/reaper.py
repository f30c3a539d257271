"""Optima of REAPER by a public convex solver (cvxpy with Clarabel): writes reaper.json beside this file.

    pip install cvxpy && python central/tests/vectors/reaper.py
"""
import json
import pathlib

import cvxpy as cp
import numpy as np

cases = []
for seed, (n, p, k, noise) in enumerate([(40, 4, 1, 0.3), (60, 5, 2, 0.2), (80, 6, 2, 0.0), (50, 4, 3, 0.5)]):
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.standard_normal((p, k)))[0]
    inliers = rng.standard_normal((n * 7 // 10, k)) @ frame.T
    inliers += noise * rng.standard_normal(inliers.shape)
    rows = np.vstack([inliers, rng.standard_normal((n - len(inliers), p))])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    P = cp.Variable((p, p), symmetric=True)
    residuals = rows - rows @ P
    problem = cp.Problem(
        cp.Minimize(cp.sum(cp.norm(residuals, 2, axis=1)) / n),
        [P >> 0, np.eye(p) - P >> 0, cp.trace(P) == k],
    )
    problem.solve(solver=cp.CLARABEL)
    eigenvalues = np.linalg.eigvalsh(P.value)[::-1]
    cases.append({
        "k": k,
        "rows": rows.tolist(),
        "objective": problem.value,
        "eigenvalues": eigenvalues.tolist(),
        "projector": P.value.tolist(),
    })
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(cases))
