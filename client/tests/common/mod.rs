//! Studies, rows, and what servers answer, for every test file.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt::Display;

use eigenveil_client::{Limits, Response, Study};
use eigenveil_shared::{
    mechanism::MechanismKind,
    preprocess::Row,
    privacy::Budget,
    report::Report,
    study::{StudyDesign, StudyParams},
};

pub(crate) const SERVER: &str = "http://localhost:8080";
pub(crate) const STUDY: &str = "0123456789abcdef0123456789abcdef";
/// 2026-03-14, in the morning.
pub(crate) const NOW: u64 = 20_526 * 86_400_000 + 30_000_000;
/// Bytes of the payloads of [`params`].
pub(crate) const PAYLOAD_LEN: usize = 60;

/// Charged what it claims, to the last bit.
pub(crate) fn params(epsilon: f64) -> StudyParams {
    params_of(MechanismKind::DiscreteGaussian, epsilon)
}

pub(crate) fn params_of(mechanism: MechanismKind, epsilon: f64) -> StudyParams {
    StudyParams::freeze(StudyDesign::new(
        mechanism,
        5,
        Budget::approximate(epsilon, 1e-6).unwrap(),
    ))
    .unwrap()
}

/// A study of this ε, by name.
pub(crate) fn study(name: &str, epsilon: f64) -> Study {
    study_of(name, params(epsilon))
}

pub(crate) fn study_of(name: &str, params: StudyParams) -> Study {
    study_at(SERVER, name, params)
}

pub(crate) fn study_at(server: &str, name: &str, params: StudyParams) -> Study {
    Study::new(&server.parse().unwrap(), name, params)
}

pub(crate) fn row(first: f64) -> Row {
    Row::new(vec![first, 1.0, 2.0, 3.0, 4.0])
}

pub(crate) fn report(study: &Study) -> Report {
    study.report(&row(1.0), NOW).unwrap().into_report()
}

/// Limits for one study and in total, and of δ.
pub(crate) fn limits(per_study: f64, total: f64, delta: f64) -> Limits {
    Limits::new(per_study, total, delta).unwrap()
}

/// The receipt for one report.
pub(crate) const ACCEPTED: Response<'static> = Response {
    status: 201,
    headers: &[("content-type", "application/json")],
    body: br#"{"outcome":"accepted"}"#,
    now: None,
};

/// The result of `then` for a response that refuses one report for good.
pub(crate) fn with_refusal<T>(
    code: &str,
    detail: &str,
    then: impl FnOnce(&Response<'_>) -> T,
) -> T {
    let problem = serde_json::json!({"code": code, "detail": detail});
    then(&Response {
        status: 422,
        headers: &[("content-type", "application/problem+json")],
        body: problem.to_string().as_bytes(),
        now: None,
    })
}

/// An error, or what an owner is shown, has these words.
#[track_caller]
pub(crate) fn assert_says(said: impl Display, words: &[&str]) {
    let text = said.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

/// Exact numbers, and nothing that is lost.
pub(crate) fn assert_survives_json<T>(value: &T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value);
}
