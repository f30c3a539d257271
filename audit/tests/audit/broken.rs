//! Deliberately broken mechanisms: each is refuted, by its reports or by its transcripts.
//!
//! Seeds are fixed. A correct mechanism is refuted for at most 5 % of seeds, and the margins below are far beyond that.

use eigenveil_audit::{
    AttemptsVerdict, AuditReport, AuditSettings, AuditVerdict, Method, Observed, PairKind,
    Sampling, Side, Statistic, audit_devices, event_bound, mu_bound, observe, prepare,
};
use eigenveil_shared::{
    codec::ReportFormat,
    mechanism::{MechanismKind, SamplingCost},
    preprocess::{BoundedRow, Norm, Weights},
    study::{StudyDesign, StudyParams},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::planted::{Leak, with_noise_times};

const P: usize = 8;
const TRIALS: usize = 20_000;
const DELTA: f64 = 1e-6;
const SEED: u64 = 5;

fn study(mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        norm: Norm::Clip { radius: 1.0 },
        // Such a study also accepts rows without a weight.
        weights: Some(Weights::default()),
        ..StudyDesign::new(mechanism, P, mechanism.budget(epsilon, None).unwrap())
    })
    .unwrap()
}

fn rows(params: &StudyParams, pair: PairKind) -> (BoundedRow, BoundedRow) {
    let (a, b) = pair.participants(P, SEED);
    (prepare(params, &a).unwrap(), prepare(params, &b).unwrap())
}

fn row(pair: &(BoundedRow, BoundedRow), side: Side) -> &BoundedRow {
    match side {
        Side::A => &pair.0,
        Side::B => &pair.1,
    }
}

/// The audit as on the command line, of a device with this leak, at a claim of ε = 1.
fn audit_of(leak: Leak) -> AuditReport {
    let mechanism = leak.mechanism();
    let budget = mechanism.budget(1.0, None).unwrap();
    let settings = AuditSettings {
        seed: SEED,
        ..AuditSettings::new(mechanism, P, budget, TRIALS)
    };
    audit_devices(&settings, &|params| Ok(leak.device(params)), &|_| Ok(())).unwrap()
}

/// Whether an audit of payloads alone would accept, on pairs in the unit ball without centring and without the attempts
/// test.
fn passes_the_report_test(report: &AuditReport) -> bool {
    let inside = [PairKind::Axes, PairKind::Orthogonal, PairKind::UnitZero];
    report
        .pairs
        .iter()
        .filter(|pair| inside.contains(&pair.name))
        .all(|pair| pair.epsilon_lower_bound <= 1.0)
}

#[test]
fn planted_leaks_are_refuted() {
    // An audit of payloads alone misses all others.
    let seen = [Leak::TooFewOutsiders, Leak::HalfTheNoise];
    for leak in Leak::ALL {
        let report = audit_of(leak);
        let alone = report.pairs.iter().map(|pair| pair.epsilon_lower_bound);
        eprintln!(
            "| {leak:?} | {:.3} | {:.3} ({}, {:?}) | {:?} | before: {} |",
            alone.fold(0.0, f64::max),
            report.epsilon_lower_bound,
            report.pair,
            report.observed,
            report.verdict,
            if passes_the_report_test(&report) {
                "passed"
            } else {
                "refuted"
            },
        );
        let wanted = if leak.leaks() {
            AuditVerdict::Refuted
        } else {
            AuditVerdict::Consistent
        };
        assert_eq!(report.verdict, wanted, "{leak:?}: {report:?}");
        let passed = passes_the_report_test(&report);
        assert_eq!(passed, !seen.contains(&leak), "{leak:?}: {report:?}");
        if leak == Leak::ParityOfAttempts {
            the_parity_of_the_attempts_is_seen_with_the_report(&report);
        }
    }
}

/// Reports alone and attempts alone look like those of a correct mechanism; together they reveal the row.
fn the_parity_of_the_attempts_is_seen_with_the_report(report: &AuditReport) {
    assert_eq!(report.observed, Observed::Transcript);
    let attempts = report.attempts.as_ref().unwrap();
    assert_eq!(attempts.verdict, AttemptsVerdict::SameForEveryRow);
    for pair in &report.pairs {
        assert!(pair.epsilon_lower_bound <= 1.0, "{pair:?}");
    }
    // The event nearly never occurs under the other row, so the bound is nearly the maximum provable one.
    assert!(
        report.epsilon_lower_bound > report.max_provable_epsilon - 2.0,
        "{report:?}"
    );
    assert!(report.finding.starts_with("Refuted") && report.finding.contains("together"));
}

/// Lower bounds of the Gaussian mechanisms with σ multiplied by `factor`, at a claim of ε = 1.
fn gaussian_with_noise_times(factor: f64) -> Vec<(MechanismKind, f64)> {
    [
        MechanismKind::SymmetricGaussian,
        MechanismKind::IsotropicGaussian,
        MechanismKind::DiscreteGaussian,
    ]
    .into_iter()
    .map(|kind| {
        let params = study(kind, 1.0);
        let pair = rows(&params, PairKind::Axes);
        let statistic = Statistic::new(params.mechanism(), &pair).unwrap();
        let real = with_noise_times(params.mechanism(), factor);
        let format = ReportFormat::new(&params);
        let subject = |side: Side, rng: &mut ChaCha20Rng| {
            statistic.value(&format.payload(real.perturb_with(row(&pair, side), rng))?)
        };
        let samples = observe(&subject, 0, &Sampling::quiet(TRIALS, SEED)).unwrap();
        assert_eq!(Method::for_mechanism(&real), Method::MuGdp);
        let bound = mu_bound(&real, &samples, DELTA, 0.95)
            .unwrap()
            .epsilon_lower_bound;
        eprintln!("{kind} with {factor} of its noise: epsilon ≥ {bound:.4}");
        (kind, bound)
    })
    .collect()
}

#[test]
fn half_the_noise_is_refuted() {
    for (kind, bound) in gaussian_with_noise_times(1.0) {
        assert!(bound <= 1.0, "{kind}: {bound}");
    }
    for (kind, bound) in gaussian_with_noise_times(0.5) {
        assert!(bound > 1.5, "{kind}: {bound}");
    }
}

/// A retry must resend the same bytes: ten fresh reports of one row spend ten budgets.
#[test]
fn rerandomised_retries_are_refuted() {
    let params = study(MechanismKind::DoubleCap, 1.0);
    let pair = rows(&params, PairKind::Axes);
    let statistic = Statistic::new(params.mechanism(), &pair).unwrap();
    let format = ReportFormat::new(&params);
    let subject = |side: Side, rng: &mut ChaCha20Rng| {
        let mut mean = 0.0;
        for _ in 0..10 {
            let payload = params.mechanism().perturb_with(row(&pair, side), rng);
            mean += statistic.value(&format.payload(payload)?)? / 10.0;
        }
        Ok(mean)
    };
    let samples = observe(&subject, 0, &Sampling::quiet(TRIALS, SEED)).unwrap();
    let bound = event_bound(&samples, 0.0, 0.95).unwrap();
    eprintln!(
        "ten retries, averaged: epsilon ≥ {:.4}",
        bound.epsilon_lower_bound
    );
    assert!(bound.epsilon_lower_bound > 2.5, "{bound:?}");
}

/// Exact, not statistical: every attempt draws the same number of words, whatever the row and the outcome.
#[test]
fn every_attempt_of_double_cap_costs_the_same() {
    for epsilon in [0.1, 1.0, 4.0] {
        let params = study(MechanismKind::DoubleCap, epsilon);
        let mut rng = ChaCha20Rng::seed_from_u64(SEED);
        for pair in PairKind::ALL {
            let (a, b) = rows(&params, pair);
            for row in [&a, &b].into_iter().cycle().take(2_000) {
                let (_, SamplingCost { attempts, words }) =
                    params.mechanism().perturb_with_measured(row, &mut rng);
                assert_eq!(words, 3 + 3 * attempts);
            }
        }
    }
}
