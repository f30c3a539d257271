//! Empirical lower bounds on the privacy loss of any mechanism
