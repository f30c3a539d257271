//! What a study can show before anything is known of its participants: two sizes that depend on p, n and the noise
//! alone, for no error does (`docs/derivations/eigengap.md`, "Before anything is known").

use eigenveil_shared::{Error, Result, mechanism::NoiseModel};

use super::{SpectralNoise, eigengap::EQUAL_EIGENVALUES_GAP, spiked_model::NoiseProfile};

/// The smallest things that n reports can show, as shares of the rows' total variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolution {
    /// The share of an average direction, 1/p.
    pub average: f64,
    /// How much more than that a direction needs to stand above the noise at all: with so much it does in half of all
    /// studies at most, with twice as much nearly always. `None` where none can have it.
    pub visible: Option<f64>,
    /// By how much the shares of components k and k + 1 must differ for them to be told apart; `None` where they cannot.
    pub separable: Option<f64>,
}

/// `invalid-request` unless `1 ≤ k < p`.
pub(crate) fn require_gap_after(k: usize, p: usize) -> Result<()> {
    if k == 0 || k >= p {
        return Err(Error::invalid_request(format!(
            "k is {k}; it must be between 1 and p − 1 = {}",
            p.saturating_sub(1)
        )));
    }
    Ok(())
}

/// The resolution of `n_eff` reports of rows of dimension `p` and this total variance (1 for rows of length one) with this
/// noise: of a flat spectrum with one component in it, and of one with k + 1 that hold equal shares.
pub fn resolution(
    noise: &NoiseModel,
    (p, total): (usize, f64),
    n_eff: f64,
    k: usize,
) -> Result<Resolution> {
    require_gap_after(k, p)?;
    let norm = noise.mean_squared_norm(total).unwrap_or(total);
    let noise = noise.with_mean_squared_norm(Some(norm));
    let mut visible = 0.0;
    // The noise depends on the signal only a little: this settles in a few rounds.
    for _ in 0..30 {
        let spectral = SpectralNoise::new(&noise, p, 1, n_eff, visible)?;
        let spike = spectral.spike_from_eigenvalue(spectral.threshold(p));
        visible = spike.map_or(0.0, |spike| spike.theta).clamp(0.0, total);
    }
    let one = total / (k + 1) as f64;
    let variance = NoiseProfile::new(&noise, p, n_eff, norm)?.variance(one, one);
    let average = 1.0 / p as f64;
    let visible = visible / total;
    let visible = (visible + average < 1.0).then_some(visible);
    let separable = 2.0 * EQUAL_EIGENVALUES_GAP * variance.sqrt() / total;
    // The k-th largest share is 1/k at most.
    let separable = (visible.is_some() && separable * (k as f64) < 1.0).then_some(separable);
    Ok(Resolution {
        average,
        visible,
        separable,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::double_cap, *};

    /// The figures of a simulation that shares nothing with this code, in points of the variance, rounded to one digit.
    #[test]
    fn what_shows_is_as_simulated() {
        for (p, total, n, visible, separable) in [
            (13, 1.0, 20e3, 1.3, 1.5),
            (30, 1.0, 20e3, 1.8, 1.7),
            (64, 1.0, 20e3, 2.4, 1.7),
            (30, 1.0, 100e3, 0.8, 0.7),
            (64, 1.0, 100e3, 1.1, 0.8),
            (30, 0.64, 20e3, 2.8, 2.3),
            (30, 0.5, 20e3, 3.6, 2.8),
        ] {
            let noise = double_cap(p, 4.0).with_mean_squared_norm((total == 1.0).then_some(1.0));
            let resolved = resolution(&noise, (p, total), n, 3).unwrap();
            assert!(
                (100.0 * resolved.visible.unwrap() - visible).abs() < 0.05,
                "{p}: {resolved:?}"
            );
            assert!(
                (100.0 * resolved.separable.unwrap() - separable).abs() < 0.05,
                "{p}: {resolved:?}"
            );
        }
        let unit = |p, n, k| resolution(&double_cap(p, 1.0), (p, 1.0), n, k);
        assert!(unit(5, 10.0, 5).is_err());
        assert!(unit(5, 0.0, 1).is_err());
        // Ten people: nothing can show.
        let hopeless = unit(5, 10.0, 1).unwrap();
        assert_eq!((hopeless.visible, hopeless.separable), (None, None));
        // The fifth share is a fifth at most.
        let few = unit(40, 500.0, 5).unwrap();
        assert!(few.visible.is_some() && few.separable.is_none(), "{few:?}");
    }
}
