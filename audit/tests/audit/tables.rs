//! Reports of sites' tables: correct ones stay below their claim and close to it, and planted leaks are refuted.
//!
//! Seeds are fixed. A correct mechanism exceeds its claim for at most 5 % of seeds, by the confidence of the bound.

use eigenveil_audit::{
    AuditReport, AuditSettings, AuditVerdict, Observed, PairKind, Randomness, audit, audit_sites,
};
use eigenveil_shared::{
    ErrorCode,
    mechanism::MechanismKind,
    privacy::Budget,
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms},
};

use crate::planted::tables::TableLeak;

const P: usize = 4;
const EPSILON: f64 = 4.0;
const DELTA: f64 = 1e-6;
const TRIALS: usize = 20_000;
const SEED: u64 = 5;
/// Room for the rows that some leaks need.
const MAX_ROWS: u64 = 1 << 27;

fn settings(mechanism: MechanismKind, trials: usize) -> AuditSettings {
    let budget = Budget::approximate(EPSILON, DELTA).unwrap();
    AuditSettings {
        max_rows: Some(MAX_ROWS),
        seed: SEED,
        ..AuditSettings::new(mechanism, P, budget, trials)
    }
}

/// The audit as on the command line, of sites with this leak.
fn audit_of(leak: TableLeak, pairs: &[PairKind], trials: usize) -> AuditReport {
    let settings = AuditSettings {
        pairs: pairs.to_vec(),
        ..settings(MechanismKind::IsotropicGaussian, trials)
    };
    audit_sites(&settings, &|params| leak.site(params), &|_| Ok(())).unwrap()
}

fn correct_ones_stay_below(trials: usize, at_least: f64) {
    for mechanism in [
        MechanismKind::DiscreteGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::SymmetricGaussian,
    ] {
        let report = audit(&settings(mechanism, trials), &|_| Ok(())).unwrap();
        assert_eq!(report.verdict, AuditVerdict::Consistent, "{report:?}");
        assert!(
            report.epsilon_lower_bound >= at_least * EPSILON,
            "{report:?}"
        );
        assert!(report.attempts.is_none() && report.pairs.len() == 11);
        // A worst pair of each kind of neighbour: no pair is tried in vain.
        for pair in &report.pairs {
            let least = match pair.name {
                // Nearer to each other, or with noise of this mechanism in directions that they share.
                PairKind::PersonUnusable
                | PairKind::RowRemoved
                | PairKind::CentredRow
                | PairKind::CentredRowAdded => 0.5,
                _ => at_least,
            };
            let bound = pair.epsilon_lower_bound;
            assert!(bound >= least * EPSILON, "{mechanism} {pair:?}");
        }
    }
}

fn every_leak_is_refuted(trials: usize) {
    for (leak, pair) in TableLeak::ALL {
        let report = audit_of(leak, &[pair], trials);
        eprintln!(
            "| {leak:?} | {pair} | {:.3} | {:.3} ({:?}) |",
            report.pairs[0].epsilon_lower_bound, report.epsilon_lower_bound, report.observed,
        );
        assert_eq!(
            report.verdict,
            AuditVerdict::Refuted,
            "{leak:?}: {report:?}"
        );
        match leak {
            // The payloads are those of a correct site.
            TableLeak::CountInTheHeader => {
                assert_eq!(report.observed, Observed::Transcript);
                assert!(report.pairs[0].epsilon_lower_bound <= EPSILON, "{report:?}");
            }
            // What a study of rows says of two rows of one person.
            TableLeak::RowTwice => {
                let most = two_rows();
                assert!(report.epsilon_lower_bound <= most, "{report:?}");
            }
            _ => {}
        }
    }
}

/// ε of two rows of one person in the same table.
fn two_rows() -> f64 {
    let budget = Budget::approximate(EPSILON, DELTA).unwrap();
    let params = SiteStudyParams::freeze(SiteStudyDesign {
        mechanism: MechanismKind::IsotropicGaussian,
        centring: None,
        ..SiteStudyDesign::new(P, budget, SiteTerms::new(MAX_ROWS))
    });
    params.unwrap().mechanism().epsilon_of(4, DELTA).unwrap()
}

#[test]
fn correct_tables_stay_below_their_claim_and_near_it() {
    correct_ones_stay_below(TRIALS, 0.8);
}

/// An audit on all pairs, of the same steps by another program.
#[test]
fn a_second_implementation_is_consistent() {
    let report = audit_of(TableLeak::None, &[], TRIALS);
    assert_eq!(report.verdict, AuditVerdict::Consistent, "{report:?}");
    assert_eq!(report.pairs.len(), 11);
}

#[test]
fn planted_leaks_of_sites_are_refuted() {
    every_leak_is_refuted(TRIALS);
}

/// With the operating system's randomness, as at a site: one false alarm in 10⁹ runs.
#[test]
fn sites_stay_below_their_claim() {
    let settings = AuditSettings {
        randomness: Randomness::System,
        confidence: 1.0 - 1e-9,
        ..settings(MechanismKind::DiscreteGaussian, 5_000)
    };
    let report = audit(&settings, &|_| Ok(())).unwrap();
    assert_eq!(report.verdict, AuditVerdict::Consistent, "{report:?}");
    assert!(report.epsilon_lower_bound > 0.5, "{report:?}");
}

#[test]
fn settings_that_do_not_fit_tables_are_refused() {
    let correct = || settings(MechanismKind::DiscreteGaussian, 1_000);
    let with = |change: &dyn Fn(&mut AuditSettings)| {
        let mut settings = correct();
        change(&mut settings);
        audit(&settings, &|_| Ok(())).unwrap_err()
    };
    for (error, code, words) in [
        (
            with(&|settings| settings.max_rows = Some(40)),
            ErrorCode::InvalidRequest,
            "must be 41",
        ),
        (
            with(&|settings| settings.pairs = vec![PairKind::Axes]),
            ErrorCode::InvalidRequest,
            "axes is of single rows",
        ),
        (
            with(&|settings| {
                settings.max_rows = None;
                settings.pairs = vec![PairKind::RowAdded];
            }),
            ErrorCode::InvalidRequest,
            "row-added is of tables",
        ),
        (
            with(&|settings| {
                settings.mechanism = Some(MechanismKind::DoubleCap);
                settings.delta = None;
            }),
            ErrorCode::InvalidMechanism,
            "no double-cap over tables",
        ),
    ] {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.detail().contains(words), "{error}");
    }
}

#[test]
#[ignore = "200,000 trials a table: minutes"]
fn many_trials_of_tables() {
    correct_ones_stay_below(200_000, 0.9);
    every_leak_is_refuted(200_000);
}
