//! Studies of sites: each report is a table of many rows.
//!
//! A study of sites has a layout and parameters of its own, so that no call that reports single rows takes it, and no
//! call that reports tables takes another.

use std::{num::NonZeroUsize, ops::Range};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    codec,
    error::{Error, Result, error},
    fingerprint::Fingerprint,
    mechanism::{
        Mechanism, MechanismKind,
        table::{MAX_ROWS_PER_PERSON, MAX_TABLE_ROWS, RowShares, TableMechanism, TableSum},
    },
    preprocess::{DEFAULT_CENTRING, Feature, Norm, Preprocessing, Preprocessor, Row},
    privacy::Budget,
};

/// Version of the canonical layout of [`SiteStudyParams`].
pub const PARAMS_VERSION_SITES: u16 = 3;

/// The mechanism of a study of sites when nobody says: its sampler is no burden for one report a table, and its proof
/// needs no word about floating point.
pub const DEFAULT_SITE_MECHANISM: MechanismKind = MechanismKind::DiscreteGaussian;

/// The weights of the sites in an estimate, chosen before the first report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SiteWeights {
    /// Each row counts the same.
    #[default]
    Rows,
    /// Each site counts by how precise its report is, for a population that all sites share.
    Precision,
}

names! {
    pub SiteWeights { Rows = "rows", Precision = "precision" } else |text, names| error!(
        InvalidRequest,
        "there are no site weights {text:?}; use {}",
        names.join(" or ")
    ).with_field("site_weights");
}

/// The terms on which a site takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteTerms {
    /// Fewest rows of a table, usable or not; persons, where persons are protected. Absent: 1.
    #[serde(default = "one_row")]
    pub min_rows: u64,
    /// Most rows of a table, at most 2³²; persons, where persons are protected.
    pub max_rows: u64,
    /// Most rows of one person that count, 1 to 1,000: what is protected is a person, and a table says whose each row
    /// is. Absent: what is protected is a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_person: Option<u16>,
    /// The weights of the sites.
    #[serde(default)]
    pub site_weights: SiteWeights,
}

fn one_row() -> u64 {
    1
}

impl SiteTerms {
    /// Terms for tables of one row to so many: rows are protected, and each counts the same.
    pub fn new(max_rows: u64) -> Self {
        Self {
            min_rows: 1,
            max_rows,
            rows_per_person: None,
            site_weights: SiteWeights::Rows,
        }
    }

    /// The name of what is protected, and counted.
    pub fn unit(&self) -> &'static str {
        match self.rows_per_person {
            None => "rows",
            Some(_) => "persons",
        }
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_TABLE_ROWS).contains(&self.max_rows) {
            return Err(error!(
                InvalidRequest,
                "the largest table has {} {}; it must have 1 to {MAX_TABLE_ROWS}",
                self.max_rows,
                self.unit()
            )
            .with_field("max_rows"));
        }
        if !(1..=self.max_rows).contains(&self.min_rows) {
            return Err(error!(
                InvalidRequest,
                "the smallest table has {} {}; it must have 1 to {}, the number of the largest",
                self.min_rows,
                self.unit(),
                self.max_rows
            )
            .with_field("min_rows"));
        }
        let rows = self.rows_per_person.unwrap_or(1);
        if !(1..=MAX_ROWS_PER_PERSON).contains(&rows) {
            return Err(error!(
                InvalidRequest,
                "{rows} rows of one person count; it must be 1 to {MAX_ROWS_PER_PERSON}"
            )
            .with_field("rows_per_person"));
        }
        Ok(())
    }

    /// Refuses a table that is too small or too large, or that does not say whose its rows are where it has to.
    /// `shares` has nothing of the rows but their number and whose they are.
    ///
    /// # Errors
    /// `invalid-request`.
    pub fn check_table(&self, shares: &RowShares) -> Result<()> {
        if shares.protects_persons() != self.rows_per_person.is_some() {
            return Err(Error::invalid_request(match self.rows_per_person {
                Some(_) => "the study protects persons, but the table does not say whose each row is; name its `person` column",
                None => "the study protects rows, but the table says whose each row is; leave `person` out",
            })
            .with_field("person"));
        }
        let cap = self.rows_per_person.unwrap_or(1);
        if shares.largest() > cap {
            return Err(error!(
                InvalidRequest,
                "a person has {} rows that count, but in this study at most {cap} do",
                shares.largest()
            )
            .with_field("person"));
        }
        let units = shares.units() as u64;
        if (self.min_rows..=self.max_rows).contains(&units) {
            return Ok(());
        }
        Err(error!(
            InvalidRequest,
            "the table has {units} {unit}, but in this study a table has {} to {} {unit}; send another table, or ask for a study with other bounds",
            self.min_rows,
            self.max_rows,
            unit = self.unit()
        )
        .with_field("rows"))
    }
}

/// The decisions about a study of sites; [`SiteStudyParams::freeze`] derives the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteStudyDesign {
    /// Dimension p of a row, 2 to 2,896; one less with private centring.
    pub dimension: usize,
    /// Names and public constants of the features, the same for all sites: a site's own mean or scale would void the
    /// guarantee.
    pub features: Option<Vec<Feature>>,
    /// How a row is brought into the unit ball.
    pub norm: Norm,
    /// Constant a of private centring; `None`: the mean is not estimated.
    pub centring: Option<f64>,
    /// The mechanism; not `double-cap`.
    pub mechanism: MechanismKind,
    /// (ε, δ) of one report, for one row or one person more or less.
    pub budget: Budget,
    /// The terms on which a site takes part.
    pub terms: SiteTerms,
}

impl SiteStudyDesign {
    /// The default: unnamed features, used unchanged; each row divided by its length; private centring, because sites
    /// differ in their means; `discrete-gaussian`.
    pub fn new(dimension: usize, budget: Budget, terms: SiteTerms) -> Self {
        Self {
            dimension,
            features: None,
            norm: Norm::Normalize,
            centring: Some(DEFAULT_CENTRING),
            mechanism: DEFAULT_SITE_MECHANISM,
            budget,
            terms,
        }
    }
}

/// The frozen parameters of a study of sites.
///
/// ```
/// use eigenveil_shared::{
///     mechanism::table::RowShares, preprocess::Row, privacy::Budget,
///     site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms},
/// };
/// let budget = Budget::approximate(1.0, 1e-7)?;
/// let study = SiteStudyParams::freeze(SiteStudyDesign::new(2, budget, SiteTerms::new(100_000)))?;
/// let table = [[1.0, 2.0], [f64::NAN, 0.0], [0.5, -3.0]];
/// let shares = RowShares::of_rows(table.len());
/// let sum = study.sum(&shares, std::num::NonZero::<usize>::MIN, |row| Row::new(table[row].to_vec()))?;
/// assert_eq!(sum.unusable(), 1);
/// let payload = sum.perturb()?;
/// assert_eq!(payload.len(), study.mechanism().payload_len()); // 6 numbers of the triangle and the count, 8 bytes each
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(description = "The frozen parameters of a study of sites.")
)]
pub struct SiteStudyParams {
    version: u16,
    preprocessing: Preprocessing,
    /// Its constants are those of a triangle one larger, which has room for the count.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::mechanism::Mechanism))]
    mechanism: TableMechanism,
    budget: Budget,
    terms: SiteTerms,
}

impl SiteStudyParams {
    /// Derives the mechanism's constants and freezes everything.
    ///
    /// # Errors
    /// `invalid-dimension`, `invalid-budget`, `invalid-mechanism`, `invalid-preprocessing`, `invalid-name`,
    /// `invalid-request` for terms out of range.
    pub fn freeze(design: SiteStudyDesign) -> Result<Self> {
        let SiteStudyDesign { terms, budget, .. } = design;
        terms.check()?;
        let preprocessing = Preprocessing {
            dimension: design.dimension,
            features: design.features,
            norm: design.norm,
            centring: design.centring,
            weights: None,
        };
        let mechanism = TableMechanism::derive(
            design.mechanism,
            preprocessing.report_dimension(),
            budget,
            terms.max_rows,
            terms.rows_per_person.unwrap_or(1),
        )?;
        Self::new_checked(preprocessing, mechanism, budget, terms)
    }

    /// Checks every constant, including the noise. The mechanism was made for these terms.
    pub(crate) fn new_checked(
        preprocessing: Preprocessing,
        mechanism: TableMechanism,
        budget: Budget,
        terms: SiteTerms,
    ) -> Result<Self> {
        if preprocessing.dimension < 2 {
            return Err(error!(
                InvalidDimension,
                "the dimension is {}; a row has at least 2 values", preprocessing.dimension
            ));
        }
        terms.check()?;
        mechanism.check(budget)?;
        preprocessing.check()?;
        if preprocessing.allows_missing_cells() || preprocessing.weights.is_some() {
            return Err(error!(
                InvalidPreprocessing,
                "the study has observed shares or weights of participants, but a table has neither: a row with a missing cell is left out, and each row counts the same; leave `observed` and `weights` out",
            ));
        }
        Ok(Self {
            version: PARAMS_VERSION_SITES,
            preprocessing,
            mechanism,
            budget,
            terms,
        })
    }

    /// The parameters that a JSON document has, checked.
    pub(crate) fn from_document(
        preprocessing: Preprocessing,
        mechanism: Mechanism,
        budget: Budget,
        terms: SiteTerms,
    ) -> Result<Self> {
        let mechanism = TableMechanism::new(
            mechanism,
            preprocessing.report_dimension(),
            terms.max_rows,
            terms.rows_per_person.unwrap_or(1),
        )?;
        Self::new_checked(preprocessing, mechanism, budget, terms)
    }

    /// The parameters these canonical bytes describe, checked as a site must check them.
    ///
    /// # Errors
    /// `malformed-params`, `unsupported-version` for a study of single rows too, and every error of
    /// [`freeze`](Self::freeze); `invalid-mechanism` when the noise is less than the budget needs.
    pub fn from_canonical(bytes: &[u8]) -> Result<Self> {
        codec::decode_site_params(bytes)
    }

    /// The canonical bytes (`docs/protocol.md`).
    pub fn canonical_bytes(&self) -> Vec<u8> {
        codec::encode_site_params(self)
    }

    /// SHA-256 of the canonical bytes.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(self.canonical_bytes()).into())
    }

    /// Dimension p of a row.
    pub fn dimension(&self) -> usize {
        self.preprocessing.dimension
    }

    /// Dimension P of a report: p, or p + 1 with private centring.
    pub fn report_dimension(&self) -> usize {
        self.preprocessing.report_dimension()
    }

    /// The preprocessing constants.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// The mechanism with its constants.
    pub fn mechanism(&self) -> &TableMechanism {
        &self.mechanism
    }

    /// (ε, δ) claimed for one report.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// The terms on which a site takes part.
    pub fn terms(&self) -> &SiteTerms {
        &self.terms
    }

    /// Feature names, where the study has them.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        let features = self.preprocessing.features.as_ref()?;
        let names = features.iter().map(|feature| feature.name.clone());
        Some(names.collect())
    }

    /// The exact sum of a table, which stays at the site until it is perturbed. `row` is asked for each row once, by
    /// its number from 0, on any of the threads. A row that cannot be used is left out of sum and count. The sum has
    /// the same bits for any number of threads. Memory is that of a triangle and of some hundred rows for each thread.
    ///
    /// # Errors
    /// Those of [`SiteTerms::check_table`]; `wrong-dimension`. None depends on a value of a row.
    pub fn sum<F: Fn(usize) -> Row + Sync>(
        &self,
        shares: &RowShares,
        threads: NonZeroUsize,
        row: F,
    ) -> Result<TableSum> {
        let row = &row;
        self.sum_blocks(shares, threads, |numbers| Ok(numbers.map(row)))
    }

    /// The exact sum like [`sum`](Self::sum), of a table that is read in blocks: `rows` is asked for the rows with some
    /// hundred consecutive numbers at a time, on any of the threads.
    ///
    /// # Errors
    /// Those of [`sum`](Self::sum) and of `rows`; `invalid-request` if that gives another number of rows.
    pub fn sum_blocks<E, I, F>(
        &self,
        shares: &RowShares,
        threads: NonZeroUsize,
        rows: F,
    ) -> Result<TableSum, E>
    where
        E: From<Error> + Send,
        I: IntoIterator<Item = Row>,
        F: Fn(Range<usize>) -> Result<I, E> + Sync,
    {
        self.terms.check_table(shares)?;
        let preprocessor = Preprocessor::from_checked(&self.preprocessing);
        TableSum::of_table(self.mechanism, preprocessor, shares, threads, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorCode, study::StudyParams};

    fn design() -> SiteStudyDesign {
        let budget = Budget::approximate(1.0, 1e-6).unwrap();
        SiteStudyDesign::new(3, budget, SiteTerms::new(1_000))
    }

    #[test]
    fn every_field_moves_the_fingerprint() {
        let features = || Some(["a", "b", "c"].map(|a| Feature::new(a, 0.0, 1.0)).into());
        let changes: [&dyn Fn(&mut SiteStudyDesign); 13] = [
            &|_| {},
            &|design| design.dimension = 4,
            &|design| design.features = features(),
            &|design| design.norm = Norm::Clip { radius: 2.5 },
            &|design| design.centring = None,
            &|design| design.centring = Some(0.5),
            &|design| design.mechanism = MechanismKind::IsotropicGaussian,
            &|design| design.mechanism = MechanismKind::SymmetricGaussian,
            &|design| design.budget = Budget::approximate(1.0, 1e-7).unwrap(),
            &|design| design.terms.min_rows = 2,
            &|design| design.terms.max_rows = 1_001,
            &|design| design.terms.rows_per_person = Some(1),
            &|design| design.terms.site_weights = SiteWeights::Precision,
        ];
        let fingerprints = changes.map(|change| {
            let mut design = design();
            change(&mut design);
            let params = SiteStudyParams::freeze(design).unwrap();
            let bytes = params.canonical_bytes();
            assert_eq!(SiteStudyParams::from_canonical(&bytes).unwrap(), params);
            // Nobody reports single rows to it.
            let error = StudyParams::from_canonical(&bytes).unwrap_err();
            assert_eq!(error.code(), ErrorCode::UnsupportedVersion);
            assert!(error.detail().contains("study of sites"), "{error}");
            params.fingerprint().0
        });
        assert_eq!(std::collections::HashSet::from(fingerprints).len(), 13);
    }

    #[test]
    fn means_are_estimated_unless_somebody_says_otherwise() {
        let params = SiteStudyParams::freeze(design()).unwrap();
        assert_eq!(params.preprocessing().centring, Some(DEFAULT_CENTRING));
        assert_eq!(params.mechanism().kind(), MechanismKind::DiscreteGaussian);
        assert_eq!(params.report_dimension(), 4);
        assert_eq!(params.feature_names(), None);
    }

    #[test]
    fn wrong_parameters_are_refused() {
        use ErrorCode::{
            InvalidBudget, InvalidDimension, InvalidMechanism, InvalidPreprocessing, InvalidRequest,
        };
        let large = Budget::approximate(16.1, 1e-6).unwrap();
        let tiny = Budget::approximate(1e-6, 1e-9).unwrap();
        let observed = || {
            let features = ["a", "b", "c"].map(|a| Feature::new(a, 0.0, 1.0).observed(0.5));
            Some(features.into())
        };
        type Change<'a> = &'a dyn Fn(&mut SiteStudyDesign);
        let changes: [(Change<'_>, ErrorCode); 16] = [
            (&|design| design.dimension = 1, InvalidDimension),
            (&|design| design.dimension = 2_896, InvalidDimension),
            (
                &|design| design.dimension = usize::MAX - 1,
                InvalidDimension,
            ),
            (
                &|design| design.mechanism = MechanismKind::DoubleCap,
                InvalidMechanism,
            ),
            (
                &|design| design.budget = Budget::pure(1.0).unwrap(),
                InvalidBudget,
            ),
            (&|design| design.budget = large, InvalidBudget),
            // Below what f64, and below what the sampler's integers allow.
            (
                &|design| {
                    design.budget = tiny;
                    design.mechanism = MechanismKind::IsotropicGaussian;
                },
                InvalidBudget,
            ),
            (
                &|design| {
                    design.budget = tiny;
                    design.dimension = 100;
                },
                InvalidBudget,
            ),
            (
                &|design| design.norm = Norm::Clip { radius: 0.0 },
                InvalidPreprocessing,
            ),
            (&|design| design.features = observed(), InvalidPreprocessing),
            (&|design| design.terms.max_rows = 0, InvalidRequest),
            (
                &|design| design.terms.max_rows = MAX_TABLE_ROWS + 1,
                InvalidRequest,
            ),
            (&|design| design.terms.min_rows = 0, InvalidRequest),
            (&|design| design.terms.min_rows = 1_001, InvalidRequest),
            (
                &|design| design.terms.rows_per_person = Some(0),
                InvalidRequest,
            ),
            (
                &|design| design.terms.rows_per_person = Some(1_001),
                InvalidRequest,
            ),
        ];
        for (number, (change, code)) in changes.into_iter().enumerate() {
            let mut design = design();
            change(&mut design);
            let error = SiteStudyParams::freeze(design).unwrap_err();
            assert_eq!(error.code(), code, "{number}: {error}");
        }
        // As wide as a report may be.
        let mut design = design();
        design.dimension = 2_895;
        SiteStudyParams::freeze(design).unwrap();
    }

    #[test]
    fn a_table_beyond_the_terms_is_refused_by_its_number_of_rows() {
        let with = |terms: SiteTerms| {
            let design = SiteStudyDesign { terms, ..design() };
            SiteStudyParams::freeze(design).unwrap()
        };
        let rows = SiteTerms {
            min_rows: 3,
            ..SiteTerms::new(5)
        };
        let persons = SiteTerms {
            rows_per_person: Some(2),
            ..rows
        };
        let row = |_| Row::new(vec![1.0; 3]);
        let sum = |terms, shares: &RowShares| with(terms).sum(shares, NonZeroUsize::MIN, row);
        for count in [3, 5] {
            assert!(sum(rows, &RowShares::of_rows(count)).is_ok());
            let shares = RowShares::of_persons((0..2 * count).map(|n| n / 2), 2);
            assert!(sum(persons, &shares).is_ok());
        }
        for (terms, shares, words) in [
            (rows, RowShares::of_rows(2), "has 2 rows"),
            (rows, RowShares::of_rows(6), "has 6 rows"),
            (persons, RowShares::of_persons(0..6, 2), "has 6 persons"),
            (persons, RowShares::of_persons([7; 5], 2), "has 1 persons"),
            (
                persons,
                RowShares::of_persons([1, 1, 1, 2, 3], 3),
                "at most 2",
            ),
            (persons, RowShares::of_rows(4), "protects persons"),
            (rows, RowShares::of_persons(0..4, 1), "protects rows"),
        ] {
            let error = sum(terms, &shares).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
            assert!(error.detail().contains(words), "{error}");
        }
        // The program's own mistake, whatever the values are.
        let short = |_| Row::new(vec![1.0; 2]);
        let four = RowShares::of_rows(4);
        let threads = NonZeroUsize::new(2).unwrap();
        let error = with(rows).sum(&four, threads, short).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongDimension);
    }
}
