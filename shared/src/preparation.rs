//! Preparations: studies that find public constants for another study, by one question about one column each.
//!
//! A preparation has a layout and parameters of its own. A row of it is a row of the study to come: one number for a
//! number or a yes-no column, one of 0 and 1 for each category.

mod cells;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::{
    codec,
    error::{Error, ErrorCode, Result, error},
    fingerprint::Fingerprint,
    mechanism::randomised_response::{Ladder, Question, QuestionKind, RandomisedResponse},
    packed::packed_len,
    preprocess::{Feature, MAX_CENTER, Norm, Preprocessing},
    privacy::Budget,
};

/// Version of the canonical layout of [`PreparationParams`].
pub const PARAMS_VERSION_PREPARATION: u16 = 4;
/// Most columns, each of which is asked about by a number of 16 bits.
pub const MAX_COLUMNS: usize = 65_535;
/// Most categories of a column at any ε: an answer has 8 bits.
pub const MAX_CATEGORIES: usize = 250;
/// Smallest ε of a preparation: at a smaller one an answer says nothing.
pub const MIN_EPSILON: f64 = 0.001;
/// Smallest and largest width of a range: 2⁻⁸⁸ to 2⁸⁸, so that a scale found in it is one that a study may have.
const WIDTH_RANGE: std::ops::RangeInclusive<f64> =
    3.231_174_267_785_264_4e-27..=3.094_850_098_213_451e26;
/// Farthest end of a range from 0, in widths: a center found in it is then one that a study may have, at a scale of a
/// 4,096th of the width.
const MAX_END: f64 = MAX_CENTER / 4_096.0;
/// Smallest interval of a second round, in widths of the range.
const MIN_INTERVAL: f64 = 1.0 / 64.0;
/// The fewest dimensions of a triangle with room for the counts must not be more.
const MAX_SUM_DIMENSION: usize = 4_096;
/// The mark of a column whose cells may be missing.
const MAY_BE_MISSING: &str = "may-be-missing";

/// The kind of a column, with all that the analyst states about its values. `Display` and `FromStr` have it in words:
/// `number 0 120`, in a second round `number 0 120 within 30 80`; `yes-no`; `categories Rome|Milan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Numbers.
    Number(NumberRange),
    /// 0 or 1.
    YesNo,
    /// One of these texts, or another one.
    Categories(Vec<String>),
}

/// The range of a number column.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NumberRange {
    /// Smallest value that is expected; smaller ones count as it.
    pub lo: f64,
    /// Largest value that is expected; larger ones count as it.
    pub hi: f64,
    /// In a second round, the interval within the range that the first round has found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<[f64; 2]>,
}

impl NumberRange {
    /// Reads `LO HI`, perhaps with `within FROM TO` behind it.
    fn read(words: &str) -> Option<Self> {
        let (range, within) = match words.split_once(" within ") {
            Some((range, within)) => (range, Some(pair(within)?)),
            None => (words, None),
        };
        let [lo, hi] = pair(range)?;
        Some(Self { lo, hi, within })
    }
}

fn pair(words: &str) -> Option<[f64; 2]> {
    let numbers = words.split_whitespace().map(|number| {
        let number = number.parse().ok();
        number.filter(|number: &f64| number.is_finite())
    });
    numbers.collect::<Option<Vec<f64>>>()?.try_into().ok()
}

impl ColumnKind {
    /// Numbers in this stated range.
    pub fn number(lo: f64, hi: f64) -> Self {
        let within = None;
        Self::Number(NumberRange { lo, hi, within })
    }

    /// One of these texts, or another one.
    pub fn categories<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Categories(texts.into_iter().map(Into::into).collect())
    }

    /// Number of values of a row.
    fn values(&self) -> usize {
        match self {
            Self::Number(_) | Self::YesNo => 1,
            Self::Categories(texts) => texts.len(),
        }
    }
}

/// A column of a preparation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PreparationColumn {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ColumnKind,
    /// Whether a cell may be missing; its share is then estimated.
    #[serde(default)]
    pub may_be_missing: bool,
}

impl PreparationColumn {
    /// A column of which every participant has a value.
    pub fn new(name: impl Into<String>, kind: ColumnKind) -> Self {
        Self {
            name: name.into(),
            kind,
            may_be_missing: false,
        }
    }

    /// The column, whose cells may be missing.
    #[must_use]
    pub fn may_be_missing(self) -> Self {
        Self {
            may_be_missing: true,
            ..self
        }
    }

    /// The column of this name whose kind is written in words, perhaps with `may-be-missing` at the end.
    ///
    /// ```
    /// use eigenveil_shared::preparation::{ColumnKind, PreparationColumn};
    /// let age = PreparationColumn::parse("age", "number 0 120 may-be-missing")?;
    /// assert_eq!(age, PreparationColumn::new("age", ColumnKind::number(0.0, 120.0)).may_be_missing());
    /// assert_eq!(age.to_string(), "number 0 120 may-be-missing");
    /// assert!(PreparationColumn::parse("age", "number 120").is_err());
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid-request` for other words.
    pub fn parse(name: &str, words: &str) -> Result<Self> {
        let words = words.trim();
        let kind = words.strip_suffix(MAY_BE_MISSING);
        let kind = kind.filter(|kind| kind.ends_with(char::is_whitespace));
        let column = Self::new(name, kind.unwrap_or(words).parse()?);
        Ok(match kind {
            Some(_) => column.may_be_missing(),
            None => column,
        })
    }

    /// The column as the first round asks about it.
    fn without_interval(&self) -> Self {
        let mut column = self.clone();
        if let ColumnKind::Number(range) = &mut column.kind {
            range.within = None;
        }
        column
    }

    /// Names of the features of the study to come: the column's own, or `column=category` for each category.
    pub fn feature_names(&self) -> Vec<String> {
        match &self.kind {
            ColumnKind::Number(_) | ColumnKind::YesNo => vec![self.name.clone()],
            ColumnKind::Categories(texts) => {
                let names = texts.iter().map(|text| format!("{}={text}", self.name));
                names.collect()
            }
        }
    }
}

impl fmt::Display for PreparationColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match self.may_be_missing {
            true => write!(f, " {MAY_BE_MISSING}"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(NumberRange { lo, hi, within }) => {
                write!(f, "number {lo} {hi}")?;
                match within {
                    Some([from, to]) => write!(f, " within {from} {to}"),
                    None => Ok(()),
                }
            }
            Self::YesNo => f.write_str("yes-no"),
            Self::Categories(texts) => write!(f, "categories {}", texts.join("|")),
        }
    }
}

impl FromStr for ColumnKind {
    type Err = Error;

    fn from_str(words: &str) -> Result<Self> {
        let words = words.trim();
        let (kind, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
        let rest = rest.trim();
        let kind = match kind {
            "number" => NumberRange::read(rest).map(Self::Number),
            "yes-no" if rest.is_empty() => Some(Self::YesNo),
            "categories" if !rest.is_empty() => {
                Some(Self::categories(rest.split('|').map(str::trim)))
            }
            _ => None,
        };
        kind.ok_or_else(|| {
            error!(
                InvalidRequest,
                "a column is described by {words:?}; use `number LO HI` (finite), `yes-no` or `categories A|B|C`, and {MAY_BE_MISSING} after it if cells may be missing"
            )
            .with_field("columns")
        })
    }
}

/// The frozen parameters of a preparation.
///
/// ```
/// use eigenveil_shared::{preparation::{ColumnKind, PreparationColumn, PreparationParams}, preprocess::Row};
/// let columns = vec![
///     PreparationColumn::new("age", ColumnKind::number(0.0, 120.0)),
///     PreparationColumn::new("town", ColumnKind::categories(["Rome", "Milan"])),
/// ];
/// let params = PreparationParams::freeze(columns, 1.0, None)?;
/// // A row has a value for each feature of the study to come: age, town=Rome, town=Milan.
/// assert_eq!(params.dimension(), 3);
/// let answer = params.mechanism().perturb(&Row::new(vec![37.0, 0.0, 1.0]))?;
/// assert_eq!(answer.len(), 4); // a column, a pair of rungs, an answer
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PreparationParams {
    version: u16,
    columns: Vec<PreparationColumn>,
    budget: Budget,
    /// Fingerprint of the first round, in a second one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(serialize_with = "as_text", skip_serializing_if = "Option::is_none")]
    after: Option<Fingerprint>,
    #[serde(skip)]
    mechanism: RandomisedResponse,
}

fn as_text<S: Serializer>(after: &Option<Fingerprint>, serializer: S) -> Result<S::Ok, S::Error> {
    match after {
        Some(fingerprint) => serializer.collect_str(fingerprint),
        None => serializer.serialize_none(),
    }
}

impl PreparationParams {
    /// Freezes columns and ε; `after` is the fingerprint of the first round in a second one, whose number columns have
    /// intervals.
    ///
    /// # Errors
    /// `invalid-budget`, `invalid-dimension` for too many columns, `invalid-name`, `invalid-request` for a range or
    /// categories that cannot be asked about.
    pub fn freeze(
        columns: Vec<PreparationColumn>,
        epsilon: f64,
        after: Option<Fingerprint>,
    ) -> Result<Self> {
        let budget = Budget::pure(epsilon)?.check_study_limit()?;
        if epsilon < MIN_EPSILON {
            return Err(error!(
                InvalidBudget,
                "epsilon is {epsilon}; that of a preparation must be at least {MIN_EPSILON}, as answers say nothing at a smaller one"
            ));
        }
        if !(1..=MAX_COLUMNS).contains(&columns.len()) {
            return Err(error!(
                InvalidDimension,
                "a preparation asks about {} columns; it must be 1 to {MAX_COLUMNS}",
                columns.len()
            )
            .with_field("columns"));
        }
        for column in &columns {
            check_kind(column, epsilon, after.is_some())?;
        }
        check_names(&columns)?;
        let (questions, dimension) = questions(&columns);
        let mechanism = RandomisedResponse::new(epsilon, dimension, questions);
        if mechanism.counts() > packed_len(MAX_SUM_DIMENSION) {
            return Err(error!(
                InvalidDimension,
                "the columns have {} different answers together; a preparation keeps a count of each, of {} at most: ask about fewer columns or categories",
                mechanism.counts(),
                packed_len(MAX_SUM_DIMENSION)
            )
            .with_field("columns"));
        }
        Ok(Self {
            version: PARAMS_VERSION_PREPARATION,
            columns,
            budget,
            after,
            mechanism,
        })
    }

    /// The parameters these canonical bytes describe, checked as a device must check them.
    ///
    /// # Errors
    /// `malformed-params`, `unsupported-version` for a study of another kind, and every error of
    /// [`freeze`](Self::freeze).
    pub fn from_canonical(bytes: &[u8]) -> Result<Self> {
        codec::decode_preparation_params(bytes)
    }

    /// The parameters that a JSON document has, checked.
    pub(crate) fn from_document(
        columns: Vec<PreparationColumn>,
        budget: Budget,
        after: Option<&str>,
    ) -> Result<Self> {
        if !budget.is_pure() {
            return Err(error!(
                InvalidBudget,
                "delta is {:e}, but the delta of a preparation is always 0",
                budget.delta()
            )
            .with_field("delta"));
        }
        let after = after.map(str::parse).transpose()?;
        Self::freeze(columns, budget.epsilon(), after)
    }

    /// The canonical bytes (`docs/protocol.md`).
    pub fn canonical_bytes(&self) -> Vec<u8> {
        codec::encode_preparation_params(self)
    }

    /// SHA-256 of the canonical bytes.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(self.canonical_bytes()).into())
    }

    /// The columns.
    pub fn columns(&self) -> &[PreparationColumn] {
        &self.columns
    }

    /// ε of one report; δ is 0.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// The fingerprint of the first round; `None` in a first round.
    pub fn after(&self) -> Option<Fingerprint> {
        self.after
    }

    /// Whether both are the same round, follow the same one, or one follows the other. No server makes a third round, but
    /// devices are asked by any.
    pub(crate) fn is_round_with(&self, other: &Self) -> bool {
        let [fingerprints, others] =
            [self, other].map(|params| [Some(params.fingerprint()), params.after]);
        fingerprints
            .iter()
            .flatten()
            .any(|one| others.contains(&Some(*one)))
    }

    /// Refuses a second round that does not follow this first one, or does not ask about the same columns at the same
    /// ε.
    ///
    /// # Errors
    /// `invalid-request`.
    pub fn check_second(&self, second: &Self) -> Result<()> {
        if self.after.is_some() {
            return Err(Error::invalid_request(
                "a third round would not make the constants better; use what the second one has found",
            ));
        }
        let fingerprint = self.fingerprint();
        if second.after != Some(fingerprint) {
            return Err(error!(
                InvalidRequest,
                "the second round follows {}, not the first round with fingerprint {fingerprint}; give the two that belong together",
                match second.after {
                    Some(other) => format!("one with fingerprint {other}"),
                    None => "none".to_owned(),
                }
            ));
        }
        let columns = second
            .columns
            .iter()
            .map(PreparationColumn::without_interval);
        if !columns.eq(self.columns.iter().cloned()) || second.budget != self.budget {
            return Err(Error::invalid_request(
                "the second round has other columns or another epsilon than the first one, so that their answers cannot be fitted together; make it from the first one",
            ));
        }
        Ok(())
    }

    /// The mechanism, with a question for each column.
    pub fn mechanism(&self) -> &RandomisedResponse {
        &self.mechanism
    }

    /// Values of a row: features of the study to come.
    pub fn dimension(&self) -> usize {
        self.columns.iter().map(|column| column.kind.values()).sum()
    }

    /// Names of these features.
    pub fn feature_names(&self) -> Vec<String> {
        let names = self.columns.iter().map(PreparationColumn::feature_names);
        names.flatten().collect()
    }

    /// The smallest dimension of a triangle with room for all counts, in which a server keeps them.
    pub fn sum_dimension(&self) -> usize {
        let counts = self.mechanism.counts();
        // d(d + 1)/2 ≥ counts from d = √(2·counts) − 1 on.
        let mut d = ((2.0 * counts as f64).sqrt() as usize)
            .saturating_sub(1)
            .max(1);
        while packed_len(d) < counts {
            d += 1;
        }
        d
    }
}

/// The questions about these columns, and the number of values of a row.
fn questions(columns: &[PreparationColumn]) -> (Vec<Question>, usize) {
    let (mut first_value, mut first_count) = (0, 0);
    let mut questions = Vec::with_capacity(columns.len());
    for column in columns {
        let values = first_value..first_value + column.kind.values();
        first_value = values.end;
        let question = Question {
            kind: match &column.kind {
                ColumnKind::Number(NumberRange { lo, hi, within }) => {
                    QuestionKind::Number(match within {
                        Some([from, to]) => Ladder::within(*from, *to),
                        None => Ladder::of_range(*lo, *hi),
                    })
                }
                ColumnKind::YesNo => QuestionKind::YesNo,
                // At most MAX_CATEGORIES.
                ColumnKind::Categories(texts) => QuestionKind::Categories(texts.len() as u8),
            },
            may_be_missing: column.may_be_missing,
            values,
            first_count,
        };
        first_count += question.counts();
        questions.push(question);
    }
    (questions, first_value)
}

fn check_kind(column: &PreparationColumn, epsilon: f64, second: bool) -> Result<()> {
    match &column.kind {
        ColumnKind::Number(range) => check_range(&column.name, range, second),
        ColumnKind::YesNo => Ok(()),
        ColumnKind::Categories(texts) => check_categories(&column.name, texts, epsilon),
    }
}

fn check_range(name: &str, range: &NumberRange, second: bool) -> Result<()> {
    let NumberRange { lo, hi, within } = *range;
    let refused = |why: String| {
        Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("column {name:?} has the range {lo} to {hi}{why}"),
        )
        .with_field("columns"))
    };
    if !(lo.is_finite() && hi.is_finite()) {
        return refused("; state two finite numbers, such as 0 and 120".to_owned());
    }
    if lo >= hi {
        return refused("; the first must be smaller than the second".to_owned());
    }
    let width = hi - lo;
    let farthest = lo.abs().max(hi.abs());
    if !WIDTH_RANGE.contains(&width) || farthest > MAX_END * width {
        return refused(format!(
            "; its width must be from {:.1e} to {:.1e} and its ends at most {MAX_END:.1e} widths from 0: use another unit, or count from another origin",
            WIDTH_RANGE.start(),
            WIDTH_RANGE.end()
        ));
    }
    match within {
        None if second => refused(
            " and no interval in it; a second round has that which the first has found".to_owned(),
        ),
        Some([from, to]) if !second => refused(format!(
            " and the interval {from} to {to} in it, but no first round has found it; leave it out"
        )),
        Some([from, to])
            if !(lo <= from && from < to && to <= hi && to - from >= MIN_INTERVAL * width) =>
        {
            refused(format!(
                ", of which {from} to {to} is no interval of at least a 64th of it; make the second round from the first"
            ))
        }
        _ => Ok(()),
    }
}

fn check_categories(name: &str, texts: &[String], epsilon: f64) -> Result<()> {
    let refused = |detail: String| {
        Err(error!(InvalidRequest, "column {name:?} {detail}").with_field("columns"))
    };
    let most = most_categories(epsilon);
    if texts.len() < 2 {
        return refused(format!(
            "has {} categories; state at least 2, or make it yes-no",
            texts.len()
        ));
    }
    if texts.len() > most {
        return refused(format!(
            "has {} categories; at epsilon {epsilon} at most {most} can be told apart: merge the rarest, which then count as other ones",
            texts.len()
        ));
    }
    if let Some(text) = texts
        .iter()
        .find(|text| text.is_empty() || text.contains('|'))
    {
        return refused(format!(
            "has the category {text:?}; a category is a text without |"
        ));
    }
    Ok(())
}

/// Most categories of a column: 3e^ε + 2, and [`MAX_CATEGORIES`].
///
/// ```
/// use eigenveil_shared::preparation::most_categories;
/// assert_eq!([0.5, 1.0, 2.0, 9.0].map(most_categories), [6, 10, 24, 250]);
/// ```
pub fn most_categories(epsilon: f64) -> usize {
    let most = 3.0 * libm::exp(epsilon) + 2.0;
    most.min(MAX_CATEGORIES as f64) as usize
}

/// Names of features are those that a study may have.
fn check_names(columns: &[PreparationColumn]) -> Result<()> {
    let names = columns.iter().flat_map(PreparationColumn::feature_names);
    let features: Vec<Feature> = names.map(|name| Feature::new(name, 0.0, 1.0)).collect();
    Preprocessing {
        features: Some(features),
        ..Preprocessing::new(
            columns.iter().map(|column| column.kind.values()).sum(),
            Norm::Normalize,
        )
    }
    .check()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<PreparationColumn> {
        vec![
            PreparationColumn::new("age", ColumnKind::number(0.0, 120.0)).may_be_missing(),
            PreparationColumn::new("smokes", ColumnKind::YesNo),
            PreparationColumn::new("town", ColumnKind::categories(["Rome", "Milan"])),
        ]
    }

    fn with(name: &str, kind: ColumnKind) -> Vec<PreparationColumn> {
        vec![PreparationColumn::new(name, kind)]
    }

    #[test]
    fn every_field_moves_the_fingerprint() {
        let second = |from, to| {
            let mut columns = columns();
            let within = Some([from, to]);
            columns[0].kind = ColumnKind::Number(NumberRange {
                lo: 0.0,
                hi: 120.0,
                within,
            });
            columns
        };
        let freeze = |change: &dyn Fn(&mut Vec<PreparationColumn>)| {
            let mut columns = columns();
            change(&mut columns);
            PreparationParams::freeze(columns, 1.0, None).unwrap()
        };
        let after = |byte| Some(Fingerprint([byte; 32]));
        let all = [
            freeze(&|_| {}),
            freeze(&|columns| columns[0].name = "years".to_owned()),
            freeze(&|columns| columns[0].kind = ColumnKind::number(1.0, 120.0)),
            freeze(&|columns| columns[0].kind = ColumnKind::number(0.0, 121.0)),
            freeze(&|columns| columns[0].may_be_missing = false),
            freeze(&|columns| columns[0].kind = ColumnKind::YesNo),
            freeze(&|columns| columns[1].may_be_missing = true),
            freeze(&|columns| columns[2].kind = ColumnKind::categories(["Rome", "Turin"])),
            freeze(&|columns| columns.swap(0, 1)),
            freeze(&|columns| drop(columns.pop())),
            PreparationParams::freeze(columns(), 2.0, None).unwrap(),
            PreparationParams::freeze(second(10.0, 80.0), 1.0, after(1)).unwrap(),
            PreparationParams::freeze(second(10.0, 80.0), 1.0, after(2)).unwrap(),
            PreparationParams::freeze(second(10.0, 90.0), 1.0, after(1)).unwrap(),
        ];
        for params in &all {
            let bytes = params.canonical_bytes();
            assert_eq!(PreparationParams::from_canonical(&bytes).unwrap(), *params);
        }
        let fingerprints = all.each_ref().map(|params| params.fingerprint().0);
        assert_eq!(
            std::collections::HashSet::from(fingerprints).len(),
            all.len()
        );
    }

    #[test]
    fn counts_have_a_place_each() {
        let params = PreparationParams::freeze(columns(), 1.0, None).unwrap();
        let questions = params.mechanism().questions();
        let starts: Vec<_> = questions.iter().map(|asked| asked.first_count).collect();
        assert_eq!((starts, params.mechanism().counts()), (vec![0, 48, 50], 53));
        // 9·10/2 = 45 < 53 ≤ 55.
        assert_eq!(params.sum_dimension(), 10);
        assert_eq!(
            params.feature_names(),
            ["age", "smokes", "town=Rome", "town=Milan"]
        );
        assert_eq!(params.dimension(), 4);
        for number in [1, 2, 3, 100, 10_000] {
            let columns =
                (0..number).map(|at| PreparationColumn::new(format!("x{at}"), ColumnKind::YesNo));
            let params = PreparationParams::freeze(columns.collect(), 1.0, None).unwrap();
            let d = params.sum_dimension();
            assert!(packed_len(d) >= 2 * number && (d == 1 || packed_len(d - 1) < 2 * number));
        }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_a_way_out() {
        let many = |number: usize| ColumnKind::categories((0..number).map(|at| at.to_string()));
        let within = |from, to| {
            let within = Some([from, to]);
            ColumnKind::Number(NumberRange {
                lo: 0.0,
                hi: 16.0,
                within,
            })
        };
        for (kind, epsilon, words) in [
            (ColumnKind::number(3.0, 3.0), 1.0, "must be smaller"),
            (ColumnKind::number(4.0, 3.0), 1.0, "must be smaller"),
            (ColumnKind::number(f64::NAN, 3.0), 1.0, "two finite numbers"),
            (
                ColumnKind::number(0.0, f64::INFINITY),
                1.0,
                "two finite numbers",
            ),
            (ColumnKind::number(0.0, 1e40), 1.0, "use another unit"),
            (ColumnKind::number(-1e300, 1e300), 1.0, "use another unit"),
            (ColumnKind::number(0.0, 1e-40), 1.0, "use another unit"),
            (ColumnKind::number(1e15, 1e15 + 1.0), 1.0, "another origin"),
            (within(1.0, 9.0), 1.0, "leave it out"),
            (many(1), 1.0, "make it yes-no"),
            (many(11), 1.0, "at most 10"),
            (many(25), 2.0, "at most 24"),
            (many(251), 9.0, "at most 250"),
            (ColumnKind::categories(["a|b", "c"]), 1.0, "without |"),
            (ColumnKind::categories(["", "c"]), 1.0, "without |"),
            (ColumnKind::categories(["c", "c"]), 1.0, "names must differ"),
            (ColumnKind::categories(["c", "\n"]), 1.0, "printable"),
        ] {
            let error = PreparationParams::freeze(with("x", kind), epsilon, None).unwrap_err();
            assert!(error.detail().contains(words), "{error}");
        }
        let second =
            |kind| PreparationParams::freeze(with("x", kind), 1.0, Some(Fingerprint([1; 32])));
        for (kind, words) in [
            (ColumnKind::number(0.0, 16.0), "no interval in it"),
            (within(9.0, 1.0), "is no interval"),
            (within(-1.0, 9.0), "is no interval"),
            (within(1.0, 17.0), "is no interval"),
            (within(1.0, 1.2), "is no interval"),
            (within(f64::NAN, 9.0), "is no interval"),
        ] {
            let error = second(kind).unwrap_err();
            assert!(error.detail().contains(words), "{error}");
        }
        assert!(second(within(1.0, 2.0)).is_ok() && second(many(10)).is_ok());
        for (columns, epsilon, code) in [
            (vec![], 1.0, ErrorCode::InvalidDimension),
            (columns(), 0.0, ErrorCode::InvalidBudget),
            (columns(), 0.0009, ErrorCode::InvalidBudget),
            (columns(), 17.0, ErrorCode::InvalidBudget),
            (columns(), f64::NAN, ErrorCode::InvalidBudget),
            ([columns(), columns()].concat(), 1.0, ErrorCode::InvalidName),
            (with("", ColumnKind::YesNo), 1.0, ErrorCode::InvalidName),
        ] {
            let error = PreparationParams::freeze(columns, epsilon, None).unwrap_err();
            assert_eq!(error.code(), code, "{error}");
        }
        let too_many =
            (0..=MAX_COLUMNS).map(|at| PreparationColumn::new(at.to_string(), ColumnKind::YesNo));
        let error = PreparationParams::freeze(too_many.collect(), 1.0, None).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidDimension);
        // Ten thousand columns are no trouble.
        let many = (0..10_000)
            .map(|at| PreparationColumn::new(at.to_string(), ColumnKind::number(0.0, 1.0)));
        let many = PreparationParams::freeze(many.collect(), 1.0, None).unwrap();
        assert_eq!(many.mechanism().counts(), 360_000);
    }

    #[test]
    fn columns_are_read_from_words() {
        for column in columns() {
            let words = column.to_string();
            assert_eq!(
                PreparationColumn::parse(&column.name, &words).unwrap(),
                column
            );
        }
        let of_second = "number -1.5 120 within 30 80 may-be-missing";
        let second = PreparationColumn::parse("age", of_second).unwrap();
        assert_eq!(second.to_string(), of_second);
        let range = NumberRange {
            lo: -1.5,
            hi: 120.0,
            within: Some([30.0, 80.0]),
        };
        assert_eq!(second.kind, ColumnKind::Number(range));
        let parsed = PreparationColumn::parse("t", " categories New York | Rome ").unwrap();
        assert_eq!(parsed.kind, ColumnKind::categories(["New York", "Rome"]));
        let spaced = PreparationColumn::parse("x", "number  -1e3   2.5").unwrap();
        assert_eq!(spaced.kind, ColumnKind::number(-1e3, 2.5));
        for wrong in [
            "",
            "number",
            "number 1",
            "number 1 x",
            "number 0 inf",
            "number 1 2 3",
            "number 1 4 within 2",
            "yes-nomay-be-missing",
            "may-be-missing",
            "yes-no 1",
            "categories",
            "ordinal",
        ] {
            let error = PreparationColumn::parse("x", wrong).unwrap_err();
            assert!(error.detail().contains("number LO HI"), "{error}");
        }
    }
}
