//! A study, its participants and an outbox, for every test file.

#![allow(dead_code, reason = "each test file uses a part")]

use eigenveil_client::{Participant, PreparedReport, StudyBinding};
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind},
    preprocess::{Norm, Row},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

pub(crate) const STUDY: &str = "0123456789abcdef0123456789abcdef";

/// Charged what it claims, to the last bit.
pub(crate) fn params(epsilon: f64) -> StudyParams {
    params_of(MechanismKind::DiscreteGaussian, epsilon)
}

pub(crate) fn params_of(mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    StudyParams::freeze(StudyDesign {
        dimension: 5,
        features: None,
        norm: Norm::Normalize,
        centring: None,
        mechanism,
        calibration: Calibration::Analytic,
        budget: Budget::approximate(epsilon, 1e-6).unwrap(),
    })
    .unwrap()
}

pub(crate) fn participant() -> Participant {
    Participant::new(params(1.0))
}

pub(crate) fn binding(server: &str) -> StudyBinding {
    StudyBinding::new(server, STUDY, &params(1.0))
}

pub(crate) fn prepare(participant: &Participant, indices: &[u64]) -> Vec<(u64, PreparedReport)> {
    indices
        .iter()
        .map(|&index| {
            let row = Row::new((0..5).map(|j| (index + j) as f64).collect());
            (index, participant.report(&row).unwrap())
        })
        .collect()
}

pub(crate) fn borrowed(
    prepared: &[(u64, PreparedReport)],
) -> impl Iterator<Item = (u64, &PreparedReport)> {
    prepared.iter().map(|(index, report)| (*index, report))
}

/// Makes a file of today's layout one of an earlier layout: 3 knew nothing of what a study says of itself.
pub(crate) fn downgrade(path: &std::path::Path, version: i32) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch("DROP TABLE IF EXISTS told")
        .unwrap();
    if version == 3 {
        return connection
            .pragma_update(None, "user_version", version)
            .unwrap();
    }
    connection
        .execute_batch(
            "DROP TRIGGER IF EXISTS entry_is_counted; DROP TRIGGER IF EXISTS report_is_counted;
             DROP TABLE head;",
        )
        .unwrap();
    if version < 2 {
        connection.execute_batch("DROP TABLE token").unwrap();
    }
    connection
        .pragma_update(None, "user_version", version)
        .unwrap();
}
