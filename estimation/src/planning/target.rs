//! How many participants a target needs, and what n participants would get, with one mechanism and ε.
//!
//! Everything comes from the floor's formulas ([`crate::floor`]); this module obtains a spectrum (typed in, or the one
//! that a pilot estimated) and returns results that explain why there is no number.
//!
//! ```
//! use eigenveil_estimation::planning::{PlanTarget, meet, spectrum_from_eigenvalues};
//! use eigenveil_shared::{
//!     mechanism::MechanismKind, privacy::Budget, study::{StudyDesign, StudyParams},
//! };
//! let design = StudyDesign::new(MechanismKind::DoubleCap, 40, Budget::pure(4.0)?);
//! let params = StudyParams::freeze(design)?;
//! // Two components hold half of the variance of unit rows, and no other direction more than a twentieth.
//! let spectrum = spectrum_from_eigenvalues(40, 2, &[0.3, 0.2, 0.05], Some(1.0))?;
//! let planned = meet(&spectrum, &params.noise_model(), PlanTarget::Error(0.2))?;
//! let n = planned.n.expect("both stand out of the bulk");
//! // The plan for that number of participants meets the target.
//! let back = meet(&spectrum, &params.noise_model(), PlanTarget::Participants(n))?;
//! assert_eq!(back.error, planned.error);
//! assert!(planned.error.is_some_and(|error| error.high <= 0.2));
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```

use eigenveil_shared::{
    Error, Result,
    api::Lambda,
    estimate::{Estimate, SpectrumEstimate},
    mechanism::NoiseModel,
};

use super::unknown_error::shown_spectrum;
use crate::{
    floor::{ExpectedError, Participants, Spectrum, SpectrumRange, predict, require_gap_after},
    format::people,
    metrics::random_error,
};

/// Smallest target error: 1 less a squared cosine has 16 digits.
const MIN_TARGET: f64 = 1e-6;

/// Eigenvalues of rows in the unit ball may exceed their total by this much, because they are given with few digits.
const ROUND_OFF: f64 = 1e-6;

/// The planning target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanTarget {
    /// Participants for which the expected ‖V̂V̂ᵀ−VVᵀ‖_F is at most this.
    Error(f64),
    /// The error to expect with this many participants.
    Participants(u64),
}

/// The result for one mechanism and budget.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanResult {
    /// Participants: as many as are enough, by the cautious end of the range if there is one; `None` where perhaps no
    /// number is.
    pub n: Option<u64>,
    /// For a target error, the range of participants.
    pub participants: Option<Participants>,
    /// Expected ‖V̂V̂ᵀ−VVᵀ‖_F with `n` participants.
    pub error: Option<ExpectedError>,
    /// Components expected above the floor's threshold, of k.
    pub components_above: Option<usize>,
    /// Why there is no number.
    pub reason: Option<String>,
}

pub(super) fn reject<T>(detail: impl Into<String>) -> Result<T> {
    Err(Error::invalid_request(detail))
}

pub(super) fn check_total(total: Option<f64>) -> Result<()> {
    match total {
        // Written so that NaN fails.
        Some(total) if !(total > 0.0 && total <= 1.0) => reject(format!(
            "the mean squared length of the prepared rows is {total}; it must be above 0 and at most 1"
        )),
        _ => Ok(()),
    }
}

/// The spectrum of `E[xxᵀ]` with these leading `eigenvalues` (k or more, descending). The rest of the total is between
/// two ends: spread evenly over the other directions, which is the most favourable; and in as few of them as the last
/// of `eigenvalues` allows, because a component close to the next is harder to find. `total` is E‖x‖², 1 for rows of
/// length 1; it need not be known if all p eigenvalues are given.
///
/// # Errors
/// `invalid-request` unless `1 ≤ k < p`, there are k to p eigenvalues, they are positive, descending (down to
/// the spread rest) and sum to at most the total.
pub fn spectrum_from_eigenvalues(
    p: usize,
    k: usize,
    eigenvalues: &[f64],
    total: Option<f64>,
) -> Result<SpectrumRange> {
    require_gap_after(k, p)?;
    if eigenvalues.len() < k || eigenvalues.len() > p {
        return reject(format!(
            "the eigenvalues given are {}; k = {k} needs {k} of them, and p = {p} has no more than {p}",
            eigenvalues.len()
        ));
    }
    if let Some(wrong) = eigenvalues.iter().find(|x| !(x.is_finite() && **x >= 0.0)) {
        return reject(format!(
            "an eigenvalue is {wrong}; a second moment has none below 0"
        ));
    }
    if let Some(pair) = eigenvalues.windows(2).find(|pair| pair[0] < pair[1]) {
        return reject(format!(
            "the eigenvalues are not descending: {} comes before {}",
            pair[0], pair[1]
        ));
    }
    let given: f64 = eigenvalues.iter().sum();
    check_total(total)?;
    // Prepared rows lie in the unit ball, whatever the total.
    let most = total.unwrap_or(1.0);
    if given > most + ROUND_OFF {
        return reject(format!(
            "the eigenvalues sum to {given}; those of prepared rows sum to {most} at most: divide them by the mean squared length of the raw rows"
        ));
    }
    let missing = p - eigenvalues.len();
    let mut even = eigenvalues.to_vec();
    let mut uneven = even.clone();
    if missing > 0 {
        let Some(total) = total else {
            return reject(format!(
                "{} of {p} eigenvalues say nothing about the others unless the mean squared length of the prepared rows is known: give it (`mean_squared_length`), or all {p}",
                eigenvalues.len()
            ));
        };
        let rest = (total - given).max(0.0) / missing as f64;
        let last = eigenvalues.last().copied().unwrap_or(0.0);
        if rest > last + ROUND_OFF {
            return reject(format!(
                "the eigenvalues leave {:.4} of {total} for the other {missing} directions, {rest:.4} each, which is more than the last one given, {last}: they are not the leading ones",
                total - given
            ));
        }
        even.resize(p, rest.min(last));
        let mut left = (total - given).max(0.0);
        for _ in 0..missing {
            let next = left.min(last);
            uneven.push(next);
            left -= next;
        }
    }
    Ok(SpectrumRange::known_in_part(
        Spectrum::from_eigenvalues(&even, k)?,
        Spectrum::from_eigenvalues(&uneven, k)?,
    ))
}

/// Assumptions of a plan about this pilot, beyond its spectrum.
pub fn assumed_of_pilot(pilot: &Estimate) -> Option<&'static str> {
    let lambda = pilot.sparse.as_ref()?.settings.lambda;
    matches!(lambda, Lambda::Fixed(_)).then_some(
        "Its λ was given; it is taken to fall as the noise does, by 1/√n: with the same λ the error falls less.",
    )
}

/// The spectrum by a pilot, its first `k` components leading. `total` is for pilots whose rows were clipped and whose
/// reports do not show their length.
///
/// With the pilot's own noise, n and k it gives the pilot's `expected_error` again.
///
/// # Errors
/// `invalid-request` for a k that does not stand above the pilot's floor, and where the total is not known, or known
/// without `total`.
pub fn spectrum_from_pilot(
    pilot: &Estimate,
    k: usize,
    total: Option<f64>,
) -> Result<SpectrumRange> {
    let unknown = pilot.total_variance.is_none();
    let unused = [("mean_squared_length", total.is_some() && !unknown)];
    Error::reject_if_given(&unused, "the pilot shows that of its rows")?;
    require_gap_after(k, pilot.p)?;
    let spectrum = match shown_spectrum(pilot, k, total) {
        Ok(spectrum) => spectrum,
        Err(why) => {
            return reject(format!(
                "the pilot tells no error: {why}; {}",
                why.way_out()
            ));
        }
    };
    // What reports do not show of the total, a step under every eigenvalue.
    check_total(total)?;
    let step = total.map_or(0.0, |total| {
        let total = total - pilot_mean_length(pilot).powi(2);
        (total - spectrum.standing.iter().sum::<f64>()).max(0.0) / pilot.p as f64
    });
    let lift = |values: &[f64]| values.iter().map(|value| value + step).collect();
    let lifted = SpectrumEstimate {
        standing: lift(&spectrum.standing),
        doubtful: lift(&spectrum.doubtful),
        rest_mean: spectrum.rest_mean + step,
        unseen: spectrum.unseen + step,
        unseen_limit: spectrum.unseen_limit + step,
        ..spectrum.clone()
    };
    SpectrumRange::of(&lifted, pilot.n_eff(), k)
}

/// ‖E x‖ of a pilot with private centring, without the noise's part; 0 without centring.
pub fn pilot_mean_length(pilot: &Estimate) -> f64 {
    let Some(mean) = &pilot.mean else { return 0.0 };
    let error = pilot.mean_standard_error.unwrap_or(0.0);
    let squared: f64 = mean.iter().map(|x| x * x).sum();
    (squared - mean.len() as f64 * error * error)
        .max(0.0)
        .sqrt()
}

/// Plans for a target in a population of this spectrum and the noise of one report.
pub fn meet(
    spectrum: &SpectrumRange,
    noise: &NoiseModel,
    target: PlanTarget,
) -> Result<PlanResult> {
    let (p, k) = (spectrum.central.dimension(), spectrum.central.rank());
    let at = |n: u64, participants: Option<Participants>| {
        let prediction = predict(&spectrum.central, noise, n as f64)?;
        let above = prediction.components.iter().filter(|c| c.above_threshold);
        Ok(PlanResult {
            n: Some(n),
            participants,
            error: Some(spectrum.error(noise, n as f64)?),
            components_above: Some(above.count()),
            reason: None,
        })
    };
    let target = match target {
        PlanTarget::Participants(n) => return at(n, None),
        PlanTarget::Error(target) => target,
    };
    check_target(target, p, k)?;
    let participants = spectrum.participants(noise, target)?;
    if let Some(n) = participants.high {
        return at(n, Some(participants));
    }
    let next = k + 1;
    Ok(PlanResult {
        n: None,
        participants: Some(participants),
        error: None,
        components_above: None,
        reason: Some(match participants.low {
            Some(low) => format!(
                "{} at least; it is not known whether any number is enough, because components {k} and {next} may be equal",
                people(low)
            ),
            None => format!(
                "no number of participants up to 10^18 is enough: component {k} does not stand out from the directions after it"
            ),
        }),
    })
}

/// # Errors
/// `invalid-request` for a target that is not positive, too small to be computed, or no better than a guess.
pub(super) fn check_target(target: f64, p: usize, k: usize) -> Result<()> {
    let guess = random_error(p, k);
    if target >= guess {
        return reject(format!(
            "the target error is {target}; it must be below {guess:.4}, the error of a subspace drawn at random (k = {k}, p = {p})"
        ));
    }
    // Written so that NaN fails.
    if !(target.is_finite() && target > 0.0) {
        return reject(format!("the target error is {target}; it must be positive"));
    }
    if target < MIN_TARGET {
        return reject(format!(
            "the target error is {target}; it must be at least {MIN_TARGET}: smaller ones cannot be computed"
        ));
    }
    Ok(())
}

/// Expected errors at up to `points` numbers of participants, evenly spaced in their logarithm.
pub fn error_curve(
    spectrum: &SpectrumRange,
    noise: &NoiseModel,
    range: (u64, u64),
    points: usize,
) -> Result<Vec<(u64, ExpectedError)>> {
    evenly_spaced(range, points)?
        .into_iter()
        .map(|n| Ok((n, spectrum.error(noise, n as f64)?)))
        .collect()
}

/// Up to `points` numbers of participants, evenly spaced in their logarithm.
///
/// # Errors
/// `invalid-request` if `from` is 0 or above `to`.
pub fn evenly_spaced((from, to): (u64, u64), points: usize) -> Result<Vec<u64>> {
    if from == 0 || from > to {
        return reject(format!("participants from {from} to {to} are not a range"));
    }
    let ratio = to as f64 / from as f64;
    let steps = points.saturating_sub(1).max(1) as f64;
    let mut places: Vec<u64> = (0..points)
        .map(|i| (from as f64 * ratio.powf(i as f64 / steps)).round() as u64)
        .collect();
    places.dedup();
    Ok(places)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        mechanism::MechanismKind,
        study::{StudyDesign, StudyParams},
    };

    use super::*;

    fn noise(kind: MechanismKind, p: usize, epsilon: f64) -> NoiseModel {
        StudyParams::freeze(StudyDesign::new(
            kind,
            p,
            kind.budget(epsilon, None).unwrap(),
        ))
        .unwrap()
        .noise_model()
    }

    fn three_over_a_flat_bulk() -> SpectrumRange {
        let all = [&[0.2, 0.15, 0.1][..], &[0.55 / 37.0; 37]].concat();
        spectrum_from_eigenvalues(40, 3, &all, Some(1.0)).unwrap()
    }

    fn needed(kind: MechanismKind, epsilon: f64, target: f64) -> u64 {
        meet(
            &three_over_a_flat_bulk(),
            &noise(kind, 40, epsilon),
            PlanTarget::Error(target),
        )
        .unwrap()
        .n
        .unwrap()
    }

    #[test]
    fn the_two_targets_are_inverse() {
        let spectrum =
            spectrum_from_eigenvalues(40, 3, &[0.2, 0.15, 0.1, 0.02], Some(1.0)).unwrap();
        for &kind in MechanismKind::ALL {
            for target in [0.05, 0.3, 1.0, 2.0] {
                let noise = noise(kind, 40, 4.0);
                let planned = meet(&spectrum, &noise, PlanTarget::Error(target)).unwrap();
                let n = planned.n.unwrap();
                let plan_of = |n| meet(&spectrum, &noise, PlanTarget::Participants(n)).unwrap();
                assert_eq!(plan_of(n).error, planned.error);
                let error = |planned: &PlanResult| planned.error.unwrap().high;
                assert!(error(&planned) <= target, "{kind} {target}");
                assert!(error(&plan_of(n - 1)) > target, "{kind} {target}");
                // One participant more or less does not matter (at 2.0 the last component jumps in).
                if target <= 1.0 {
                    let ratio = error(&planned) / target;
                    assert!((ratio - 1.0).abs() < 1e-3, "{kind} {target}");
                }
            }
        }
    }

    /// However many of one population's eigenvalues are written, its plan is one, and never worse than a guess.
    #[test]
    fn a_plan_is_that_of_the_population_and_no_worse_than_a_guess() {
        let flat = [&[0.3, 0.2, 0.1][..], &[0.04; 10]].concat();
        let near = [&[0.3, 0.2, 0.19][..], &[0.031; 10]].concat();
        let noise = noise(MechanismKind::DoubleCap, 13, 4.0);
        let planned = |all: &[f64], (written, k): (usize, usize), n: u64| {
            let spectrum = spectrum_from_eigenvalues(13, k, &all[..written], Some(1.0)).unwrap();
            let planned = meet(&spectrum, &noise, PlanTarget::Participants(n)).unwrap();
            (planned.error.unwrap(), planned.components_above)
        };
        // By a numpy program that shares nothing with this one.
        for (all, k, n, error, above) in [
            (&flat, 3, 500, 1.121_6, 2),
            (&flat, 3, 20_000, 0.174_7, 3),
            (&near, 2, 20_000, 0.451_3, 2),
        ] {
            for written in [3, 9, 13] {
                let (planned, shown) = planned(all, (written, k), n);
                assert!(
                    (planned.low - error).abs() < 1e-4,
                    "{written} of {all:?}: {planned:?}"
                );
                // The plan is the cautious end.
                assert_eq!(planned.central, planned.high);
                assert_eq!(shown, Some(above), "{written} of {all:?}");
            }
        }
        for n in 1..=20 {
            let (error, _) = planned(&flat, (3, 3), n);
            let guess = random_error(13, 3);
            assert!(error.central <= guess, "{n}: {error:?}");
        }
    }

    /// Wine: whatever part of its spectrum is written, the range of the plan holds the plan of all of it, 5,995.
    #[test]
    fn a_part_of_a_spectrum_has_a_range_with_the_plan_of_all_of_it() {
        let all = [
            0.362, 0.192, 0.111, 0.0707, 0.0656, 0.0494, 0.0424, 0.0268, 0.0222, 0.0193, 0.0174,
            0.0130, 0.0082,
        ];
        let noise = noise(MechanismKind::DoubleCap, 13, 4.0);
        let planned = |written: usize| {
            let spectrum = spectrum_from_eigenvalues(13, 3, &all[..written], Some(1.0)).unwrap();
            let planned = meet(&spectrum, &noise, PlanTarget::Error(0.3)).unwrap();
            let many = spectrum.error(&noise, 6_000.0).unwrap();
            (planned, many)
        };
        let (whole, error) = planned(13);
        let whole = whole.n.unwrap();
        assert!((whole as f64 / 5_995.0 - 1.0).abs() < 2e-3, "{whole}");
        assert_eq!(error.low, error.high);
        let mut last = u64::MAX;
        for written in 3..12 {
            let (planned, many) = planned(written);
            let people = planned.participants.unwrap();
            let (low, high) = (people.low.unwrap(), people.high.unwrap_or(u64::MAX));
            assert!(low <= whole && whole <= high, "{written}: {people:?}");
            assert!(
                many.low <= error.central && error.central <= many.high,
                "{written}: {many:?}"
            );
            assert!(high <= last, "{written}: {people:?}");
            last = high;
            // The fourth eigenvalue may be the third.
            assert_eq!(planned.n.is_none(), written == 3);
            assert_eq!(planned.reason.is_some(), written == 3);
        }
    }

    #[test]
    fn more_of_anything_helps() {
        for &kind in MechanismKind::ALL {
            let ns: Vec<u64> = [0.5, 1.0, 2.0, 4.0, 8.0]
                .map(|e| needed(kind, e, 0.3))
                .to_vec();
            assert!(ns.windows(2).all(|pair| pair[0] > pair[1]), "{kind} {ns:?}");
            let ns = [0.1, 0.2, 0.5, 1.5].map(|target| needed(kind, 2.0, target));
            assert!(ns.windows(2).all(|pair| pair[0] > pair[1]), "{kind} {ns:?}");
            let spectrum = three_over_a_flat_bulk();
            let curve = error_curve(&spectrum, &noise(kind, 40, 2.0), (10, 1 << 40), 50).unwrap();
            assert_eq!((curve[0].0, curve[49].0), (10, 1 << 40));
            assert!(
                curve.is_sorted_by(|a, b| a.1.central >= b.1.central),
                "{kind}"
            );
        }
    }

    #[test]
    fn mechanisms_are_in_their_order() {
        for epsilon in [1.0, 2.0, 4.0] {
            let n = |kind| needed(kind, epsilon, 0.3);
            let isotropic = n(MechanismKind::IsotropicGaussian);
            assert!(n(MechanismKind::DoubleCap) < isotropic);
            assert!(isotropic < n(MechanismKind::SymmetricGaussian));
            // Exact sampling costs the rounding to its grid: measured 1 to 2 %.
            let discrete = n(MechanismKind::DiscreteGaussian) as f64 / isotropic as f64;
            assert!((1.0..1.03).contains(&discrete), "{discrete}");
        }
    }

    #[test]
    fn unreachable_targets_have_a_reason() {
        let noise = noise(MechanismKind::DoubleCap, 10, 4.0);
        // Two equal eigenvalues: no number of participants distinguishes the second from the third.
        let tied = spectrum_from_eigenvalues(10, 2, &[0.4, 0.1, 0.1], Some(1.0)).unwrap();
        let planned = meet(&tied, &noise, PlanTarget::Error(0.5)).unwrap();
        assert_eq!((planned.n, planned.error), (None, None));
        assert!(planned.reason.unwrap().contains("component 2"));
        // One component found, and an arbitrary one of two equal directions: 1.
        assert!(
            meet(&tied, &noise, PlanTarget::Error(1.5))
                .unwrap()
                .n
                .is_some()
        );
        let rejected = |target| {
            meet(&tied, &noise, PlanTarget::Error(target))
                .unwrap_err()
                .detail()
                .to_owned()
        };
        assert!(rejected(1.8).contains("below 1.7889"));
        assert!(rejected(1e-9).contains("at least 0.000001"));
        assert!(rejected(-1.0).contains("positive") && rejected(f64::NAN).contains("positive"));
        assert!(meet(&tied, &noise, PlanTarget::Participants(0)).is_err());
        assert!(error_curve(&tied, &noise, (0, 5), 3).is_err());
    }

    #[test]
    fn spectra_are_checked() {
        let rejected = |p, k, values: &[f64], total| {
            spectrum_from_eigenvalues(p, k, values, total)
                .unwrap_err()
                .detail()
                .to_owned()
        };
        assert!(rejected(10, 2, &[0.7, 0.4], Some(1.0)).contains("sum to"));
        assert!(rejected(10, 2, &[0.3, 0.4], Some(1.0)).contains("not descending"));
        assert!(rejected(10, 2, &[0.3], Some(1.0)).contains("needs 2"));
        assert!(rejected(3, 2, &[0.3, 0.2, 0.1, 0.1], Some(1.0)).contains("no more than 3"));
        assert!(rejected(3, 3, &[0.3, 0.2, 0.1], Some(1.0)).contains("between 1"));
        assert!(rejected(10, 1, &[0.05], Some(1.0)).contains("not the leading ones"));
        assert!(rejected(10, 1, &[f64::NAN], Some(1.0)).contains("NaN"));
        assert!(rejected(10, 1, &[-0.1], Some(1.0)).contains("below 0"));
        assert!(rejected(10, 1, &[0.5], None).contains("squared length"));
        assert!(rejected(10, 1, &[0.5], Some(1.5)).contains("at most 1"));
        assert!(rejected(10, 1, &[0.5], Some(0.4)).contains("0.4 at most"));
        // Given all eigenvalues, or all that the total leaves open, nothing is unknown.
        spectrum_from_eigenvalues(3, 1, &[0.3, 0.2, 0.1], None).unwrap();
        let known = Spectrum::new(5, vec![0.5], 0.0625).unwrap();
        let in_part = spectrum_from_eigenvalues(5, 1, &[0.5], Some(0.75)).unwrap();
        assert!(in_part.central == known && !in_part.is_known());
        let spectrum = spectrum_from_eigenvalues(5, 1, &[0.5, 0.0625], Some(0.75)).unwrap();
        assert_eq!(spectrum, SpectrumRange::known(known));
    }
}
