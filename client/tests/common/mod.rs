//! A study, its participants and an outbox, for every test file.

#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    env,
    fmt::Display,
    path::{Path, PathBuf},
    process::Command,
};

use eigenveil_client::{Ledger, Limits, Participation, PreparedReport, Reporter, StudyRef};
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::Row,
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};

pub(crate) const SERVER: &str = "http://localhost:8080";
pub(crate) const STUDY: &str = "0123456789abcdef0123456789abcdef";

/// Charged what it claims, to the last bit.
pub(crate) fn params(epsilon: f64) -> StudyParams {
    params_of(MechanismKind::DiscreteGaussian, epsilon)
}

pub(crate) fn params_of(mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    let budget = Budget::approximate(epsilon, 1e-6).unwrap();
    StudyParams::freeze(StudyDesign::new(mechanism, 5, budget)).unwrap()
}

pub(crate) fn reporter() -> Reporter {
    Reporter::new(params(1.0))
}

pub(crate) fn study_ref(server: &str) -> StudyRef {
    StudyRef::new(server, STUDY, &params(1.0))
}

pub(crate) fn prepare(reporter: &Reporter, indices: &[u64]) -> Vec<(u64, PreparedReport)> {
    indices
        .iter()
        .map(|&index| {
            let row = Row::new((0..5).map(|j| (index + j) as f64).collect());
            (index, reporter.report(&row).unwrap())
        })
        .collect()
}

pub(crate) fn borrowed(
    prepared: &[(u64, PreparedReport)],
) -> impl Iterator<Item = (u64, &PreparedReport)> {
    prepared.iter().map(|(index, report)| (*index, report))
}

/// A study of this ε on the server, by name.
pub(crate) fn study(name: &str, epsilon: f64) -> (Reporter, StudyRef) {
    study_of(name, params(epsilon))
}

pub(crate) fn study_of(name: &str, params: StudyParams) -> (Reporter, StudyRef) {
    let study_ref = StudyRef::new(SERVER, name, &params);
    // 2026-03-14, in the morning.
    let reporter = Reporter::new(params).with_clock(|| 20_526 * 86_400_000 + 30_000_000);
    (reporter, study_ref)
}

pub(crate) fn row(first: f64) -> Row {
    Row::new(vec![first, 1.0, 2.0, 3.0, 4.0])
}

pub(crate) fn participate(
    ledger: &mut Ledger,
    (reporter, study_ref): &(Reporter, StudyRef),
) -> Participation {
    ledger.participate(reporter, study_ref, &row(1.0)).unwrap()
}

/// Limits for one study and in total, and of δ.
pub(crate) fn limits(per_study: f64, total: f64, delta: f64) -> Limits {
    Limits::new(per_study, total, delta).unwrap()
}

/// An error, or what an owner is shown, has these words.
#[track_caller]
pub(crate) fn assert_says(said: impl Display, words: &[&str]) {
    let said = said.to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

/// A folder that goes with the test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// This test program as another process, which runs one test.
pub(crate) fn child(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(child_arguments(test));
    command
}

pub(crate) fn child_arguments(test: &str) -> [&str; 4] {
    ["--exact", test, "--nocapture", "--test-threads=1"]
}

/// Exact numbers, and nothing that is lost.
pub(crate) fn assert_survives_json<T>(value: &T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value);
}
