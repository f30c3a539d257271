//! Where the noise comes from.

use eigenveil_estimation::models::Population;
use eigenveil_shared::{
    Result, error,
    preprocess::{FeatureRow, Preprocessor, Row},
};
use rand::{SeedableRng, rngs::SysRng};

/// The generator of every baseline: cryptographic, so that results may be released.
pub type Generator = rand::rngs::ChaCha20Rng;

/// A generator with this seed, for simulations and reproductions, which protect nobody; without a seed, a generator
/// seeded by the operating system, as a released result requires.
pub fn generator(seed: Option<u64>) -> Result<Generator> {
    match seed {
        Some(seed) => Ok(Generator::seed_from_u64(seed)),
        None => Generator::try_from_rng(&mut SysRng).map_err(|error| {
            error!(
                RandomnessUnavailable,
                "the operating system provided no random seed ({error}); try again later"
            )
        }),
    }
}

/// A row of this population, of length p, prepared for a baseline.
///
/// # Errors
/// Those of [`Preprocessor::prepare_features`].
pub fn model_row(
    population: &Population,
    preprocessor: Preprocessor<'_>,
    rng: &mut Generator,
) -> Result<FeatureRow> {
    preprocessor.prepare_features(&Row::new(population.row(rng)))
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn a_seed_repeats_and_the_system_does_not() {
        let draw = |seed| generator(seed).unwrap().next_u64();
        assert_eq!(draw(Some(7)), draw(Some(7)));
        // Equal with probability 2⁻⁶⁴.
        assert_ne!(draw(None), draw(None));
    }
}
