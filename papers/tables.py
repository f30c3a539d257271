"""Writes the extra inputs that own-expected-error and own-auto use if they are present.

    python3 papers/tables.py DIRECTORY        # numpy, scikit-learn 1.9
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_iris, load_wine, make_classification

made, _ = make_classification(n_samples=5000, n_features=31, n_informative=8, n_redundant=4, random_state=1)
for name, rows in [
    ("wine", load_wine().data),
    ("iris", load_iris().data),
    ("diabetes", load_diabetes().data),
    ("classification", made),
]:
    np.save(Path(sys.argv[1]) / f"{name}.npy", rows.astype("<f4"))
