//! Eigenveil's device SDK and the analyst's API client
