//! From noisy sums to principal subspaces that can be trusted: eigen-solvers, Fantope projection, noise floor, metrics
