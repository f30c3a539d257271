//! The use case: constants of a study's features from the answers of a preparation.

use eigenveil_shared::{
    Error, Result,
    about::{FeatureNotice, MAX_DESCRIPTION, StudyNotice},
    api::{CreateStudyRequest, PreparationAnswers, RoundAnswers, StudyDocument},
    preparation::{PreparationColumn, PreparationParams},
    preprocess::{Feature, LengthShares, Norm, OBSERVED_RANGE, Preprocessing},
    study::from_hex,
};
use serde::{Deserialize, Serialize};

use super::{
    column::{Estimated, PreparedColumn},
    information::FEWEST_ANSWERS,
    round::{Round, Rounds},
    second_round::second_round,
};
use crate::{Cancel, planning::rounded};

/// Constants from the answers of a preparation. Scripts rely on the keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreparationEstimate {
    /// ε of one answer.
    pub epsilon: f64,
    /// People who answered in each round.
    pub people: Vec<u64>,
    /// Estimates of each column.
    pub columns: Vec<PreparedColumn>,
    /// Features of the study to come.
    pub features: Vec<Feature>,
    /// Warnings to read before they are used, beside the messages of each column.
    pub warnings: Vec<String>,
}

impl PreparationEstimate {
    /// Descriptions of the features for the people whom the study to come invites: those of the preparation's notice,
    /// cut where they are too long, and where center and scale come from. `study` is the preparation's identifier.
    pub fn notices(&self, study: &str, about: &StudyNotice) -> Vec<FeatureNotice> {
        let columns = self.columns.iter().flat_map(|column| {
            let features = column.categories.len().max(1);
            std::iter::repeat_n(column.answers, features)
        });
        let notices = columns.enumerate().map(|(at, answers)| {
            let notice = about.feature(at).cloned().unwrap_or_default();
            let origin = self.origin(study, answers);
            let party = about.responsible_party.as_deref();
            FeatureNotice {
                description: Some(described(notice.description.as_deref(), &origin, party)),
                ..notice
            }
        });
        notices.collect()
    }

    /// Where center and scale come from, of a column with so many answers.
    fn origin(&self, study: &str, answers: u64) -> String {
        let rounds = match self.people.len() {
            1 => "one round",
            _ => "two rounds",
        };
        format!(
            "Center and scale are estimated from {answers} people's answers to preparation {study} ({rounds}, epsilon {})",
            self.epsilon
        )
    }
}

/// A description with its origin at the end, and who asked if there is room.
fn described(text: Option<&str>, origin: &str, party: Option<&str>) -> String {
    let mut text = text
        .map(|text| format!("{}. ", text.trim_end_matches('.')))
        .unwrap_or_default();
    let asked = party.map(|party| format!("{text}{origin}, asked by {party}"));
    if let Some(asked) = asked.filter(|asked| asked.len() <= MAX_DESCRIPTION) {
        return asked;
    }
    let room = MAX_DESCRIPTION.saturating_sub(origin.len());
    if text.len() <= room {
        return text + origin;
    }
    while text.len() + "… ".len() > room {
        if text.pop().is_none() {
            break;
        }
    }
    format!("{}… {origin}", text.trim_end())
}

/// Estimates the constants of all columns like [`estimate_preparation`], from the document of a server.
///
/// # Errors
/// Those of [`estimate_preparation`]; those of the parameters, and `estimate-failed` for a document without a round or
/// with more than two.
pub fn estimate_answers(
    answers: &PreparationAnswers,
    progress: &mut dyn FnMut(u64, u64),
    cancel: Cancel<'_>,
) -> Result<PreparationEstimate> {
    let params = read_params(answers)?;
    let rounds = params.iter().zip(&answers.rounds);
    let rounds = rounds.map(|(params, round)| Round::new(params, &round.counts));
    match rounds.collect::<Result<Vec<_>>>()?[..] {
        [first] => estimate_preparation(first, None, progress, cancel),
        [first, second] => estimate_preparation(first, Some(second), progress, cancel),
        ref rounds => Err(Error::estimate_failed(format!(
            "the answers are of {} rounds; a preparation has one or two",
            rounds.len()
        ))),
    }
}

/// The request for the second round of a preparation, for other people: the questions of [`second_round`] at the first
/// round's ε, with its enrolment and its notice, but no last day. `answers` is the server's document about `first`.
///
/// # Errors
/// Those of [`second_round`] and of the parameters; `invalid-request` for a document about a second round.
pub fn second_round_of(
    first: &StudyDocument,
    answers: &PreparationAnswers,
    name: &str,
) -> Result<CreateStudyRequest> {
    let params = read_params(answers)?;
    let ([params], [round]) = (&params[..], &answers.rounds[..]) else {
        return Err(Error::invalid_request(
            "this is the second round of a preparation already, and a third one would not make the constants better; use what it has found",
        ));
    };
    let preparation = second_round(Round::new(params, &round.counts)?)?;
    let epsilon = params.budget().epsilon();
    Ok(CreateStudyRequest {
        enrolment: first.enrolment,
        about: StudyNotice {
            last_day: None,
            ..first.about.clone()
        },
        ..CreateStudyRequest::of_preparation(name, epsilon, preparation)
    })
}

fn read_params(answers: &PreparationAnswers) -> Result<Vec<PreparationParams>> {
    let read = |round: &RoundAnswers| {
        let bytes = from_hex(&round.canonical_params).ok_or_else(|| {
            Error::estimate_failed("the canonical parameters of a round are not hexadecimal")
        })?;
        PreparationParams::from_canonical(&bytes)
    };
    answers.rounds.iter().map(read).collect()
}

/// Estimates the constants of all columns: of a first round alone, or of both rounds together. `progress` is told how
/// many of how many columns are done. Takes some milliseconds per column.
///
/// # Errors
/// `invalid-request` for rounds that do not belong together; `estimate-failed` when it was cancelled.
pub fn estimate_preparation(
    first: Round<'_>,
    second: Option<Round<'_>>,
    progress: &mut dyn FnMut(u64, u64),
    cancel: Cancel<'_>,
) -> Result<PreparationEstimate> {
    let rounds = Rounds::new(first, second)?;
    let all = rounds.columns().len();
    let (mut columns, mut features) = (Vec::with_capacity(all), Vec::new());
    for at in 0..all {
        let estimated = Estimated::new(rounds, at, cancel)?;
        columns.push(estimated.column);
        features.push(estimated.features);
        progress(at as u64 + 1, all as u64);
    }
    let features = with_observed(rounds.columns(), &columns, features);
    Preprocessing {
        features: Some(features.clone()),
        ..Preprocessing::new(features.len(), Norm::Normalize)
    }
    .check()?;
    let few = few_answers(&columns);
    let warnings = few.into_iter().chain(raw_lengths(&features)).collect();
    Ok(PreparationEstimate {
        epsilon: rounds.epsilon(),
        people: rounds.all().map(Round::people).collect(),
        columns,
        features,
        warnings,
    })
}

/// The features with the share of people who have each, if cells may be missing; those of one column are missing
/// together.
fn with_observed(
    columns: &[PreparationColumn],
    prepared: &[PreparedColumn],
    features: Vec<Vec<Feature>>,
) -> Vec<Feature> {
    let may_be_missing = columns.iter().any(|column| column.may_be_missing);
    let mut all = Vec::new();
    for (column, own) in prepared.iter().zip(features) {
        let several = own.len() > 1;
        for feature in own {
            let missing = column.missing.map_or(0.0, |missing| missing.share);
            let there = rounded(1.0 - missing).clamp(*OBSERVED_RANGE.start(), 1.0);
            all.push(match may_be_missing {
                false => feature,
                true => Feature {
                    section: (several && there < 1.0).then(|| column.name.clone()),
                    ..feature.observed(there)
                },
            });
        }
    }
    all
}

/// Warnings of columns as they are without constants, as in `prepare` from public rows.
fn raw_lengths(features: &[Feature]) -> Vec<String> {
    let squares = |value: fn(&Feature) -> f64| -> Vec<f64> { features.iter().map(value).collect() };
    let means = squares(|feature| feature.center * feature.center);
    let all = squares(|feature| feature.center * feature.center + feature.scale * feature.scale);
    let shares = LengthShares::from_moments(&means, &all);
    let raw = shares.warnings(|at| format!("{:?}", features[at].name));
    raw.iter()
        .map(|text| format!("as the columns are, {text}"))
        .collect()
}

fn few_answers(columns: &[PreparedColumn]) -> Option<String> {
    let mut columns = columns.iter();
    let is_few = columns.any(|column| column.effective_answers < FEWEST_ANSWERS);
    is_few.then(|| {
        format!(
            "columns with fewer than {FEWEST_ANSWERS} effective answers cost the study to come a fifth of what it could show, or more: ask about fewer columns, ask more people, use a larger epsilon, or find fifty public rows"
        )
    })
}
