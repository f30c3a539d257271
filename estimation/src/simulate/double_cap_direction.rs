//! The exact distribution of a released direction given the row, sampled without expanding seeds and without rejected
//! attempts.

use eigenveil_shared::mechanism::double_cap::DoubleCapParameters;
use rand::{Rng, RngExt};
use rand_distr::{ChiSquared, Distribution, StandardNormal};

/// Distribution of g given a row x = r·u: with probability 1 − r², g is uniform; otherwise `(gᵀu)²` is a Beta(1/2,
/// (p−1)/2) variable truncated to the cap or to its complement, and g is uniform given its value.
pub(super) struct DirectionDistribution {
    threshold: f64,
    /// q e^ε / Z: probability that a released direction lies in the cap.
    cap_probability: f64,
    /// Squared length of the part of g across the row: χ² with p − 1 degrees of freedom.
    across: ChiSquared<f64>,
    /// (p − 1)/2.
    b: f64,
}

impl DirectionDistribution {
    /// The distribution for these constants; `None` for a dimension below 2.
    pub(super) fn new(parameters: &DoubleCapParameters) -> Option<Self> {
        let degrees = parameters.dimension as f64 - 1.0;
        Some(Self {
            threshold: parameters.threshold,
            cap_probability: parameters.cap_probability * parameters.epsilon.exp()
                / parameters.normalizer(),
            across: ChiSquared::new(degrees).ok()?,
            b: 0.5 * degrees,
        })
    }

    /// Writes one direction of length one into `g`.
    pub(super) fn sample<R: Rng + ?Sized>(&self, x: &[f64], rng: &mut R, g: &mut [f64]) {
        for g in g.iter_mut() {
            *g = StandardNormal.sample(rng);
        }
        let squared: f64 = x.iter().map(|x| x * x).sum();
        // Also true for a zero row.
        if rng.random::<f64>() >= squared {
            let length = g.iter().map(|g| g * g).sum::<f64>().sqrt();
            g.iter_mut().for_each(|g| *g /= length);
            return;
        }
        let along = x.iter().zip(&*g).map(|(x, g)| x * g).sum::<f64>() / squared.sqrt();
        let step = along / squared.sqrt();
        let mut across = 0.0;
        for (g, x) in g.iter_mut().zip(x) {
            *g -= step * x;
            across += *g * *g;
        }
        let squared_cosine = self.squared_cosine(along * along / (along * along + across), rng);
        let (along_scale, across_scale) = (
            (squared_cosine / squared).sqrt(),
            ((1.0 - squared_cosine) / across).sqrt(),
        );
        for (g, x) in g.iter_mut().zip(x) {
            *g = along_scale * x + across_scale * *g;
        }
    }

    /// A draw of `(gᵀu)²`, given an untruncated one.
    fn squared_cosine<R: Rng + ?Sized>(&self, untruncated: f64, rng: &mut R) -> f64 {
        if rng.random::<f64>() < self.cap_probability {
            // Density x^(−1/2)(1−x)^(b−1) above τ: propose from (1−x)^(b−1), keep with √(τ/x).
            loop {
                let uniform: f64 = 1.0 - rng.random::<f64>();
                let x = 1.0 - (1.0 - self.threshold) * uniform.powf(1.0 / self.b);
                if rng.random::<f64>() < (self.threshold / x).sqrt() {
                    return x;
                }
            }
        }
        let mut squared_cosine = untruncated;
        while squared_cosine > self.threshold {
            let along: f64 = StandardNormal.sample(rng);
            let across: f64 = self.across.sample(rng);
            squared_cosine = along * along / (along * along + across);
        }
        squared_cosine
    }
}

#[cfg(test)]
mod tests;
