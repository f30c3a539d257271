//! The reports of sites: sums that stay apart, and whether a site can have sent one.

use eigenveil_shared::{
    Result, error,
    mechanism::{NORM_TAIL, table::NoisyTable},
    packed::PackedSymmetric,
    site_study::SiteStudyParams,
};

use crate::linalg::{factorises, packed_to_dense, rounding_of_cholesky};

/// A site's report, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteSum {
    /// Name of the site. It may have sent several reports.
    pub site: String,
    /// Number of its usable rows (persons, where persons are protected), with noise.
    pub rows_noisy: f64,
    /// Σxxᵀ over them, P × P, with the noise of one report whatever their number
    /// ([`noise_model`](eigenveil_shared::mechanism::table::TableMechanism::noise_model)).
    pub sum: PackedSymmetric,
}

/// Refuses a report that no site of this study with a table of at most so many rows sends, each limit being passed by an
/// honest site once in 10¹² times (`docs/derivations/sites.md`, "The test of a report"): its count, its trace beside
/// the count, and its smallest eigenvalue. Takes P³/3 multiplications and memory for a full square, whether it refuses
/// the report or not.
///
/// # Errors
/// `implausible-report`, with the limit.
pub fn check_site_report(
    params: &SiteStudyParams,
    report: &NoisyTable,
    max_rows: u64,
) -> Result<()> {
    let (mechanism, unit) = (params.mechanism(), params.terms().unit());
    let NoisyTable { moment, rows } = report;
    let counts = mechanism.count_limits(max_rows);
    if !counts.contains(rows) {
        return Err(error!(
            ImplausibleReport,
            "the report counts {rows:.1} {unit}, noise included, but of a table of at most {max_rows} {unit} it counts {:.1} to {:.1}, except {}; it was not counted: send the table that the token is for, or ask for a token for a larger one",
            counts.start(),
            counts.end(),
            rarely()
        ));
    }
    let (trace, limit) = (moment.trace(), mechanism.trace_limit(*rows));
    if trace > limit {
        return Err(error!(
            ImplausibleReport,
            "the squared lengths of the report's {unit} sum to {trace:.1}, noise included, but {rows:.1} {unit} of at most length 1 have at most {limit:.1}, except {}; it was not counted",
            rarely()
        ));
    }
    let least = mechanism.least_eigenvalue();
    let p = moment.dimension();
    let mut dense = packed_to_dense(moment);
    // Of the matrix that is factorised.
    let shifted_trace = trace.abs() - least * p as f64;
    let shift = rounding_of_cholesky(p, shifted_trace) - least;
    for i in 0..p {
        dense[(i, i)] += shift;
    }
    if factorises(&mut dense) {
        return Ok(());
    }
    // By how much it is below would take ten times as long as the test: a refusal must not cost more than a report.
    Err(error!(
        ImplausibleReport,
        "the report's sum has an eigenvalue below {least:.3}, which that of a table has not, except {}; it was not counted",
        rarely()
    ))
}

fn rarely() -> String {
    format!("once in {:.0e} times", NORM_TAIL.recip())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use eigenveil_shared::{
        ErrorCode,
        codec::SiteReportFormat,
        mechanism::{MechanismKind, table::RowShares},
        preprocess::Row,
        privacy::Budget,
        site_study::{SiteStudyDesign, SiteTerms},
    };
    use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::linalg::symmetric_eigenvalues;

    const KINDS: [MechanismKind; 3] = [
        MechanismKind::DiscreteGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::SymmetricGaussian,
    ];

    fn study(kind: MechanismKind, p: usize, centring: Option<f64>) -> SiteStudyParams {
        let budget = Budget::approximate(1.0, 1e-7).unwrap();
        let design = SiteStudyDesign::new(p, budget, SiteTerms::new(10_000));
        SiteStudyParams::freeze(SiteStudyDesign {
            mechanism: kind,
            centring,
            ..design
        })
        .unwrap()
    }

    fn report(params: &SiteStudyParams, rows: &[Vec<f64>], rng: &mut ChaCha20Rng) -> NoisyTable {
        let shares = RowShares::of_rows(rows.len());
        let row = |number: usize| Row::new(rows[number].clone());
        let sum = params.sum(&shares, NonZeroUsize::MIN, row).unwrap();
        let payload = SiteReportFormat::new(params).payload(sum.perturb_with(rng));
        params.mechanism().decode(&payload.unwrap())
    }

    /// A table without a usable row is noise alone, which comes nearest to the limits: half way at p = 40.
    /// False alarms: 150 reports at 4e-12 each.
    #[test]
    fn honest_reports_pass() {
        let mut rng = ChaCha20Rng::seed_from_u64(70);
        for kind in KINDS {
            for centring in [None, Some(0.5)] {
                let params = study(kind, 40, centring);
                let mut nearest = 0.0_f64;
                for m in [1, 20, 300] {
                    for usable in [0, m / 2, m] {
                        let rows: Vec<Vec<f64>> = (0..m)
                            .map(|number| match number < usable {
                                true => (0..40).map(|_| rng.random_range(-1.0..1.0)).collect(),
                                false => vec![f64::NAN; 40],
                            })
                            .collect();
                        let report = report(&params, &rows, &mut rng);
                        check_site_report(&params, &report, m as u64).unwrap();
                        let values = symmetric_eigenvalues(&packed_to_dense(&report.moment));
                        let least = values.unwrap().min();
                        nearest = nearest.max(least / params.mechanism().least_eigenvalue());
                    }
                }
                assert!(nearest > 0.4 && nearest < 0.8, "{kind}: {nearest}");
            }
        }
    }

    /// Each limit, from both sides.
    #[test]
    fn a_report_beyond_a_limit_is_refused_with_the_limit() {
        for kind in KINDS {
            let params = study(kind, 6, None);
            let mechanism = params.mechanism();
            let checked = |moment: PackedSymmetric, rows: f64, max_rows| {
                check_site_report(&params, &NoisyTable { moment, rows }, max_rows)
            };
            let refused = |moment: PackedSymmetric, rows: f64, words: &str| {
                let error = checked(moment, rows, 500).unwrap_err();
                assert_eq!(error.code(), ErrorCode::ImplausibleReport);
                assert!(error.detail().contains(words), "{error}");
            };
            let along = |length: f64| {
                let mut moment = PackedSymmetric::zeros(6);
                moment.add_outer(&[0.6, 0.0, -0.8, 0.0, 0.0, 0.0], length);
                moment
            };
            let counts = mechanism.count_limits(500);
            for (inside, beyond) in [
                (counts.start() + 1e-3, counts.start() - 1e-3),
                (counts.end() - 1e-3, counts.end() + 1e-3),
            ] {
                checked(along(0.0), inside, 500).unwrap();
                refused(along(0.0), beyond, "rows, noise included");
            }
            // A token for one row more.
            checked(along(0.0), counts.end() + 1e-3, 501).unwrap();
            let trace = mechanism.trace_limit(400.0);
            checked(along(trace - 1e-3), 400.0, 500).unwrap();
            refused(along(trace + 1e-3), 400.0, "squared lengths");
            let least = mechanism.least_eigenvalue();
            checked(along(least * 0.999), 400.0, 500).unwrap();
            refused(along(least * 1.001), 400.0, "eigenvalue");
            // However much there is in other directions.
            let mut erased = along(least * 1.5);
            erased.add_outer(&[0.8, 0.0, 0.6, 0.0, 0.0, 0.0], 300.0);
            refused(erased, 400.0, &format!("below {least:.3}"));
        }
    }
}
