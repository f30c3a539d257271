//! What the answers say of one column, and what whoever runs the preparation should look at.

use eigenveil_shared::{
    Result,
    preparation::{ColumnKind, NumberRange, PreparationColumn},
    preprocess::{Feature, OBSERVED_RANGE},
    wording::percent,
};
use serde::{Deserialize, Serialize};

use super::{
    error_bars::errors,
    fit::{Fit, Mixture, Moments},
    information::{ADVISED_ANSWERS, FEWEST_ANSWERS, information},
    made_up::{crowded, reach},
    rates::{Rate, Rates},
    round::Rounds,
};
use crate::{
    Cancel,
    format::{people, three_digits},
    planning::{round_to_scale, rounded},
};

/// Share of the people at an end of the range from which the unit may be wrong.
const MANY_AT_AN_END: f64 = 0.15;
/// Share of the people of other categories from which the categories may be written otherwise.
const MANY_OTHERS: f64 = 0.5;
/// Width of a range, in spreads of the middle 80 %, from which a second round pays.
const WIDE: f64 = 10.0;
/// Standard errors either way of a factor for spreads: tails and cells bias them.
const SPREAD_ERRORS: f64 = 3.0;
/// Standard errors by which the deviation over the whole range may be too large, and how many times that over the
/// interval the rest is, if values beyond the interval are told.
const FAR_ERRORS: f64 = 2.0;
const FAR: f64 = 2.0;
/// Standard error of a share from which nothing is known of it.
const UNKNOWN: f64 = 0.5;
/// Smallest and largest share of yes in a feature, beyond which its scale would be too small.
const YES_RANGE: [f64; 2] = [0.02, 0.98];

/// A share of the people, with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// 0 to 1.
    pub share: f64,
    /// Its standard error.
    pub error: f64,
}

impl Share {
    /// Two standard errors; `None` where they say nothing of a share.
    pub fn two_errors(self) -> Option<f64> {
        is_known(self.error).then_some(2.0 * self.error)
    }
}

fn is_known(error_of_share: f64) -> bool {
    error_of_share <= UNKNOWN
}

/// A category's share of the people who have a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CategoryShare {
    /// Its text.
    pub category: String,
    /// Its share.
    #[serde(flatten)]
    pub share: Share,
}

/// Estimates of one column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreparedColumn {
    /// Its name.
    pub name: String,
    /// Its kind in words.
    pub kind: String,
    /// Answers about it.
    pub answers: u64,
    /// Answers of people who have a value, times the information of one, J(ε): 150 are advised, and fewer than 50 are
    /// too few.
    pub effective_answers: f64,
    /// A share g of all devices that make up answers about this column moves each of its shares by at most this times
    /// g.
    pub reach_of_made_up: f64,
    /// Mean of a number or yes-no column.
    pub mean: Option<f64>,
    /// Its standard error; ±2 of them hold the mean in 19 of 20 cases up to some 1,000 effective answers. `None` where
    /// nobody has answered, nobody has a value, or that of a share is above 0.5: then mean and deviation say nothing.
    pub mean_error: Option<f64>,
    /// Standard deviation of a number or yes-no column, of numbers that are clipped to `interval`.
    pub deviation: Option<f64>,
    /// The standard deviation of the clipped column is within this factor, to three standard errors; of a number column
    /// whose answers show one.
    pub deviation_factor: Option<f64>,
    /// The interval that numbers are clipped to; shown wherever their mean and deviation are.
    pub interval: Option<[f64; 2]>,
    /// People whose cell is missing; of a column whose cells may be.
    pub missing: Option<Share>,
    /// Categories and their shares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<CategoryShare>,
    /// Warnings to read before the constants are used.
    pub messages: Vec<String>,
}

impl PreparedColumn {
    /// The interval in words: `0 to 2000`.
    pub fn over(&self) -> Option<String> {
        self.interval.map(in_words)
    }
}

fn in_words([from, to]: [f64; 2]) -> String {
    let [first, last] = [from, to].map(|end| round_to_scale(end, to - from));
    format!("{first} to {last}")
}

/// A column with its constants for the study to come, without observed shares.
pub(super) struct Estimated {
    pub(super) column: PreparedColumn,
    pub(super) features: Vec<Feature>,
}

impl Estimated {
    /// # Errors
    /// `estimate-failed` when it was cancelled.
    pub(super) fn new(rounds: Rounds<'_>, at: usize, cancel: Cancel<'_>) -> Result<Self> {
        let column = &rounds.columns()[at];
        let answers = rounds.answers_about(at);
        let of_one = information(rounds.epsilon(), rounds.question(at).answers());
        let mut prepared = PreparedColumn {
            name: column.name.clone(),
            kind: column.to_string(),
            answers,
            effective_answers: 0.0,
            reach_of_made_up: reach(rounds.columns().len(), of_one),
            mean: None,
            mean_error: None,
            deviation: None,
            deviation_factor: None,
            interval: None,
            missing: None,
            categories: Vec::new(),
            messages: Vec::new(),
        };
        let rates = || Rates::new(rounds.totals(at), rounds.epsilon());
        let features = match (&column.kind, Mixture::new(rounds, at)) {
            (ColumnKind::Number(range), Some(mixture)) => {
                numbers(&mut prepared, &mixture, (range, at), rounds, cancel)?
            }
            (ColumnKind::Categories(_), _) => categories(&mut prepared, column, &rates()),
            _ => yes_no(&mut prepared, column, &rates()),
        };
        let there = 1.0 - prepared.missing.map_or(0.0, |missing| missing.share);
        prepared.effective_answers = answers as f64 * of_one * there;
        if prepared.effective_answers < FEWEST_ANSWERS {
            // What so few show is chance.
            prepared.messages.clear();
        }
        let of_one = of_one * there.max(*OBSERVED_RANGE.start());
        let too_few = too_few(&prepared, rounds.columns().len(), of_one);
        prepared.messages.extend(too_few);
        prepared.messages.extend(seldom(&prepared));
        prepared.messages.extend(crowded(rounds, at));
        Ok(Self {
            column: prepared,
            features,
        })
    }
}

fn numbers(
    prepared: &mut PreparedColumn,
    mixture: &Mixture,
    (range, at): (&NumberRange, usize),
    rounds: Rounds<'_>,
    cancel: Cancel<'_>,
) -> Result<Vec<Feature>> {
    let fit = mixture.fit();
    let moments = mixture.moments(&fit);
    let errors = errors(mixture, (&fit, moments), at, cancel)?;
    // Where nobody has answered, or nobody has a value, drawing again shows no error.
    let known = prepared.answers > 0 && fit.missing < 1.0;
    prepared.mean = Some(moments.mean);
    // Drawing again shows nothing of where in a cell values lie that do not vary.
    let rounding = match moments.is_below() {
        true => moments.cell / 12_f64.sqrt(),
        false => 0.0,
    };
    prepared.mean_error = known.then(|| errors.mean.hypot(rounding));
    prepared.deviation = Some(moments.deviation);
    let shows_spread = known && !moments.is_below();
    prepared.deviation_factor = shows_spread.then(|| (SPREAD_ERRORS * errors.log_deviation).exp());
    prepared.interval = Some(moments.interval);
    if rounds.columns()[at].may_be_missing {
        prepared.missing = Some(Share {
            share: fit.missing,
            error: match prepared.answers {
                0 => 1.0,
                _ => errors.missing,
            },
        });
    }
    let of_all = mixture.moments_of_all(&fit);
    let lowest = of_all.deviation * (-FAR_ERRORS * errors.log_deviation_of_all).exp();
    let has_far = lowest > of_all.least.max(FAR * moments.deviation);
    let spread = rounds.second.is_none().then(|| mixture.spread(&fit).1);
    let name = &prepared.name;
    prepared.messages = at_ends(name, range, &fit);
    let of_spread = of_spread(name, range, spread, (moments, has_far.then_some(of_all)));
    prepared.messages.extend(of_spread);
    let scale = rounded(moments.deviation);
    Ok(vec![Feature::new(
        &prepared.name,
        round_to_scale(moments.mean, scale),
        scale,
    )])
}

/// Wrong units.
fn at_ends(name: &str, range: &NumberRange, fit: &Fit) -> Vec<String> {
    let NumberRange { lo, hi, .. } = range;
    let mut messages = Vec::new();
    let ends = [
        // A lowest value of 0 is often a true end.
        (fit.cells.first().filter(|_| *lo != 0.0), "below", "lower"),
        (fit.cells.last(), "above", "upper"),
    ];
    for (share, side, end) in ends {
        if let Some(share) = share.filter(|share| **share > MANY_AT_AN_END) {
            messages.push(format!(
                "{name:?}: an estimated {} lie at or {side} the {end} end of {lo} to {hi}: is the unit right?",
                percent(*share)
            ));
        }
    }
    messages
}

/// Ranges that are too wide, by the `spread` of a first round; far values, which the moments `of_all` count and those
/// over the interval do not; values that do not vary.
fn of_spread(
    name: &str,
    range: &NumberRange,
    spread: Option<f64>,
    (moments, of_all): (Moments, Option<Moments>),
) -> Option<String> {
    let NumberRange { lo, hi, .. } = range;
    if let Some(spread) = spread.filter(|spread| hi - lo > WIDE * spread) {
        return Some(format!(
            "{name:?}: the range {lo} to {hi} is at least {} times as wide as the spread: a second round, in the interval that this one has found, makes the constants better, unless the range is a real limit or some values are rare and far",
            three_digits((hi - lo) / spread)
        ));
    }
    if let Some(of_all) = of_all {
        let scale = rounded(of_all.deviation);
        return Some(format!(
            "{name:?}: values beyond {} count as its ends; over all of {lo} to {hi} the mean is {} and the deviation {scale}: if people have such values, use these two",
            in_words(moments.interval),
            round_to_scale(of_all.mean, scale)
        ));
    }
    moments.is_below().then(|| {
        format!(
            "{name:?}: nearly all values are equal, or their spread is below {}, which the answers do not show: leave the column out, or state a narrower range",
            three_digits(moments.deviation)
        )
    })
}

fn yes_no(
    prepared: &mut PreparedColumn,
    column: &PreparationColumn,
    rates: &Rates,
) -> Vec<Feature> {
    let missing = column.may_be_missing.then(|| rates.of(2));
    let (yes, error) = of_those_there(rates.of(1), missing);
    let deviation = |share: f64| (share * (1.0 - share)).sqrt();
    let yes = yes.clamp(0.0, 1.0);
    prepared.mean = Some(yes);
    prepared.mean_error = (prepared.answers > 0 && is_known(error)).then_some(error);
    prepared.deviation = Some(deviation(yes));
    prepared.missing = missing.map(share_of);
    let yes = yes.clamp(YES_RANGE[0], YES_RANGE[1]);
    let scale = rounded(deviation(yes));
    vec![Feature::new(
        &column.name,
        round_to_scale(yes, scale),
        scale,
    )]
}

/// Each category has its share as center, and all have the scale at which they together count as one column.
fn categories(
    prepared: &mut PreparedColumn,
    column: &PreparationColumn,
    rates: &Rates,
) -> Vec<Feature> {
    let ColumnKind::Categories(texts) = &column.kind else {
        return Vec::new();
    };
    // After the categories comes "another one".
    let missing = column.may_be_missing.then(|| rates.of(texts.len() + 1));
    prepared.missing = missing.map(share_of);
    let shares = texts.iter().enumerate().map(|(answer, text)| {
        let (share, error) = of_those_there(rates.of(answer), missing);
        let share = share.clamp(0.0, 1.0);
        CategoryShare {
            category: text.clone(),
            share: Share { share, error },
        }
    });
    let categories: Vec<CategoryShare> = shares.collect();
    let shares = || categories.iter().map(|category| category.share.share);
    let others = 1.0 - shares().sum::<f64>();
    let has_many = others > MANY_OTHERS;
    prepared.messages.extend(has_many.then(|| {
        format!(
            "{:?}: an estimated {} of those with a value have none of the categories: are they written as on the devices?",
            column.name,
            percent(others)
        )
    }));
    let variance: f64 = shares().map(|share| share * (1.0 - share)).sum();
    let scale = rounded(variance.max(YES_RANGE[0] * YES_RANGE[1]).sqrt());
    let features = column.feature_names().into_iter().zip(shares());
    let features = features
        .map(|(name, share)| Feature::new(name, round_to_scale(share, scale), scale))
        .collect();
    prepared.categories = categories;
    features
}

/// A share among the people who have a value, and its standard error.
fn of_those_there(rate: Rate, missing: Option<Rate>) -> (f64, f64) {
    let missing = missing.map_or(0.0, |missing| missing.share.clamp(0.0, 0.99));
    (rate.share / (1.0 - missing), rate.error / (1.0 - missing))
}

fn share_of(rate: Rate) -> Share {
    Share {
        share: rate.share.clamp(0.0, 1.0),
        error: rate.error,
    }
}

/// `of_one` is the information of one more answer about the column.
fn too_few(prepared: &PreparedColumn, columns: usize, of_one: f64) -> Option<String> {
    let effective = prepared.effective_answers;
    if effective >= ADVISED_ANSWERS {
        return None;
    }
    let more = columns as f64 * (ADVISED_ANSWERS - effective) / of_one;
    let name = &prepared.name;
    let advice = match effective < FEWEST_ANSWERS {
        true => "; with so few its constants are not worth using",
        false => "",
    };
    Some(format!(
        "{name:?} has {} effective answers; {ADVISED_ANSWERS} need about {} more people, for all columns{advice}",
        effective.round(),
        people(more.ceil() as u64)
    ))
}

/// A column that a study cannot have.
fn seldom(prepared: &PreparedColumn) -> Option<String> {
    let Share { share, error } = prepared.missing?;
    let (there, least) = (1.0 - share, *OBSERVED_RANGE.start());
    (there + 2.0 * error < least).then(|| {
        format!(
            "{:?}: an estimated {} have a value, and a study needs {} of them: leave the column out",
            prepared.name,
            percent(there),
            percent(least)
        )
    })
}
