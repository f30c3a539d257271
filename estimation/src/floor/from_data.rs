//! The floor under a measured spectrum.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    estimate::{FloorDocument, Verdict},
    mechanism::NoiseModel,
};

use super::{SpectralNoise, Spike};

/// Noise floor of a measured spectrum, and how many components stand above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// Centre b of the bulk: mean of the eigenvalues not counted as components.
    pub centre: f64,
    /// The noise outside the counted components.
    pub noise: SpectralNoise,
    /// Upper edge of the bulk, `b + χ + 2 r_b`.
    pub edge: f64,
    /// What an eigenvalue must exceed to count, `edge + 2 r_b p^(−2/3)`.
    pub threshold: f64,
    /// How many eigenvalues exceed the threshold.
    pub components_above: usize,
}

/// What the floor says of one eigenvalue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Above the threshold, between edge and threshold, or inside the noise.
    pub verdict: Verdict,
    /// The component behind it; `None` inside the noise.
    pub spike: Option<Spike>,
}

impl Floor {
    /// The floor under `eigenvalues` (all p of them, descending) of the mean of `n` reports.
    ///
    /// Which eigenvalues count depends on the centre and the radius, and these on which count; the
    /// iteration starts with none and only ever adds, so it ends after at most p rounds. At least
    /// one eigenvalue always stays with the noise: without any there is no centre.
    ///
    /// # Errors
    /// `InvalidRequest` when there is no eigenvalue, they are not descending, or n = 0;
    /// `EstimateFailed` when one is not finite; `InvalidMechanism` as [`SpectralNoise::of`].
    pub fn from_eigenvalues(eigenvalues: &[f64], noise: &NoiseModel, n: u64) -> Result<Self> {
        let p = eigenvalues.len();
        if p == 0 {
            return Err(Error::new(
                ErrorCode::InvalidRequest,
                "there are no eigenvalues",
            ));
        }
        if eigenvalues.iter().any(|value| !value.is_finite()) {
            return Err(Error::new(
                ErrorCode::EstimateFailed,
                "an eigenvalue is not a finite number",
            ));
        }
        if eigenvalues.windows(2).any(|pair| pair[0] < pair[1]) {
            return Err(Error::new(
                ErrorCode::InvalidRequest,
                "the eigenvalues are not descending",
            ));
        }
        // Eigenvalues that differ only by rounding are equal: noiseless multiples of the identity
        // must not grow components.
        let largest = eigenvalues.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let rounding = 4.0 * p as f64 * f64::EPSILON * largest;
        let mut count = 0;
        loop {
            let law = SpectralNoise::of(noise, p, count, n)?;
            let rest = &eigenvalues[count..];
            let centre = rest.iter().sum::<f64>() / rest.len() as f64;
            let edge = centre + law.edge();
            let threshold = centre + law.threshold(p).max(rounding);
            let above = eigenvalues
                .iter()
                .take_while(|&&value| value > threshold)
                .count()
                .min(p - 1);
            if above <= count {
                return Ok(Self {
                    centre,
                    noise: law,
                    edge,
                    threshold,
                    components_above: count,
                });
            }
            count = above;
        }
    }

    /// What the floor says of one eigenvalue of the noisy moment.
    pub fn judge(&self, eigenvalue: f64) -> Judgement {
        let verdict = if eigenvalue > self.threshold {
            Verdict::Above
        } else if eigenvalue > self.edge {
            Verdict::At
        } else {
            Verdict::Below
        };
        let spike = match verdict {
            Verdict::Below => None,
            Verdict::Above | Verdict::At => {
                self.noise.spike_from_eigenvalue(eigenvalue - self.centre)
            }
        };
        Judgement { verdict, spike }
    }

    /// The floor as a document.
    pub fn document(&self) -> FloorDocument {
        FloorDocument {
            centre: self.centre,
            radius: self.noise.bulk_radius,
            edge: self.edge,
            threshold: self.threshold,
            components_above: self.components_above,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::gaussian, *};

    #[test]
    fn a_clear_spectrum_is_counted() {
        let mut eigenvalues = vec![9.0, 5.0];
        eigenvalues.extend((0..38).map(|i| 1.0 - f64::from(i) * 2.0 / 37.0));
        // r = 0.5·√(40/40) = 0.5: the bulk ends near 1.
        let floor = Floor::from_eigenvalues(&eigenvalues, &gaussian(0.5), 40).unwrap();
        assert_eq!(floor.components_above, 2);
        assert!(floor.centre.abs() < 1e-12);
        assert!((floor.noise.bulk_radius - 0.5 * (38.0_f64 / 40.0).sqrt()).abs() < 1e-15);
        let strong = floor.judge(9.0);
        assert_eq!(strong.verdict, Verdict::Above);
        let spike = strong.spike.unwrap();
        assert!(spike.theta > 8.9 && spike.theta < 9.0);
        assert_eq!(
            floor.judge(0.5),
            Judgement {
                verdict: Verdict::Below,
                spike: None
            }
        );
        let between = 0.5 * (floor.edge + floor.threshold);
        assert_eq!(floor.judge(between).verdict, Verdict::At);
        assert!(floor.judge(between).spike.is_some());
    }

    #[test]
    fn counting_is_self_consistent() {
        // 12 counts only after 40 has left the mean.
        let mut eigenvalues = vec![40.0, 12.0];
        eigenvalues.extend(std::iter::repeat_n(0.0, 3));
        let first_centre = 52.0 / 5.0;
        let law = SpectralNoise::of(&gaussian(1.0), 5, 0, 5).unwrap();
        assert!(12.0 < first_centre + law.threshold(5));
        let floor = Floor::from_eigenvalues(&eigenvalues, &gaussian(1.0), 5).unwrap();
        assert_eq!(floor.components_above, 2);
    }

    #[test]
    fn degenerate_spectra_give_finite_floors() {
        for sd in [0.0, 1e-9, 1.0, 1e9] {
            for eigenvalues in [
                vec![0.0],
                vec![5.0],
                vec![0.0; 4],
                vec![1.0; 6],
                vec![-1.0; 3],
                vec![1.0 + 1e-15, 1.0, 1.0 - 1e-15],
                vec![1e300, 0.0, -1e300],
                vec![2e-6, 1e-6],
            ] {
                let p = eigenvalues.len();
                let floor = Floor::from_eigenvalues(&eigenvalues, &gaussian(sd), 1).unwrap();
                assert!(floor.centre.is_finite() && floor.threshold.is_finite());
                assert!(floor.components_above < p);
                if eigenvalues
                    .iter()
                    .all(|x| (x - eigenvalues[0]).abs() <= 1e-12 * x.abs())
                {
                    assert_eq!(floor.components_above, 0, "{eigenvalues:?} at {sd}");
                }
                for &value in &eigenvalues {
                    if let Some(spike) = floor.judge(value).spike {
                        assert!(spike.theta.is_finite());
                        assert!((0.0..=1.0).contains(&spike.squared_cosine));
                    }
                }
            }
        }
    }

    #[test]
    fn bad_spectra_are_refused() {
        let noise = gaussian(1.0);
        assert!(Floor::from_eigenvalues(&[], &noise, 1).is_err());
        assert!(Floor::from_eigenvalues(&[1.0, f64::NAN], &noise, 1).is_err());
        assert!(Floor::from_eigenvalues(&[1.0, 2.0], &noise, 1).is_err());
        assert!(Floor::from_eigenvalues(&[1.0], &noise, 0).is_err());
    }
}
