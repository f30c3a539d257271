//! Trusted-curator baselines
