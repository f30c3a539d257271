//! Eigenveil's aggregation server as a library
