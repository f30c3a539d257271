//! What a file of rows would send, told to its owner only: `eigenveil report --check`, and the question before the
//! first report.

use eigenveil_shared::{
    preprocess::LengthShares,
    study::StudyParams,
    wording::{counted, first_few, percent},
};

use super::report_persons::Persons;
use crate::{
    error::{Result, in_flags},
    output,
};

/// Share of unusable rows above which there is a warning.
const MAX_UNUSABLE_SHARE: f64 = 0.01;
/// Number of reports from which a share of them says something about the file rather than about one participant.
const MIN_REPORTS_FOR_SHARES: f64 = 100.0;
/// A share of observed cells that differs by more from the study's biases the estimate noticeably.
const MAX_DIFFERENCE_OF_OBSERVED: f64 = 0.05;
const MAX_LISTED: usize = 8;

/// Contents of the reports of a file.
pub(super) struct RowCheck {
    /// Number of rows of the file.
    rows: usize,
    /// Number of reports.
    reports: usize,
    /// Whether a report is of one of the rows of a person, drawn at random.
    of_persons: bool,
    /// Number of reports that are of the zero row because the row or its weight cannot be used; for persons, the
    /// expected number.
    unusable: f64,
    /// Number of reports that are of the zero row because all cells are missing.
    empty: f64,
    /// For each feature, the share of the rows that are sent, by their weights, that have it.
    observed: Vec<f64>,
    /// Cells of each column that are missing or are no number.
    cells: Vec<(String, usize)>,
    /// Weights above 1, which count as 1, and those that are no number above 0; `None` without weights.
    weights: Option<(usize, usize)>,
    /// Cells that are not read, by column and reason, and lines that are not.
    unreadable: Option<String>,
    /// Shares of the squared length of the rows that are sent and not zero; `None` for fewer than two such rows: one
    /// row's shares are nearly its values.
    shares: Option<LengthShares>,
}

impl RowCheck {
    /// Prepares every row, and perturbs none.
    pub(super) fn new(persons: &Persons, params: &StudyParams) -> Self {
        let table = &persons.table;
        let preprocessor = params.preprocessor();
        let mut observed = vec![0.0; params.dimension()];
        let (mut unusable, mut empty, mut sent, mut with_length) = (0.0, 0.0, 0.0, 0_usize);
        let rows = persons.chances_and_weights().into_iter().enumerate();
        let rows = rows.filter_map(|(index, (chance, weight))| {
            let row = table.row(index);
            let features = preprocessor.prepare_features(&row).ok();
            let Some(features) = features.filter(|_| weight > 0.0) else {
                unusable += chance;
                return None;
            };
            let is_missing = || row.values().iter().map(|value| value.is_nan());
            if is_missing().all(|is_missing| is_missing) {
                empty += chance;
            }
            let counts = chance * weight;
            sent += counts;
            for (observed, is_missing) in observed.iter_mut().zip(is_missing()) {
                *observed += if is_missing { 0.0 } else { counts };
            }
            let has_length = features.as_slice().iter().any(|x| *x != 0.0);
            with_length += usize::from(has_length);
            has_length.then(|| (counts, features.as_slice().to_vec()))
        });
        let shares = LengthShares::new(params.dimension(), rows);
        observed.iter_mut().for_each(|observed| *observed /= sent);
        let mut cells = table.cells_without_number();
        cells.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Self {
            rows: table.len(),
            reports: persons.holders.count(),
            of_persons: persons.are_labelled(),
            unusable,
            empty,
            observed,
            cells,
            weights: persons.clipped_and_zero_weights(),
            unreadable: table.unreadable(params.preprocessing().allows_missing_cells()),
            shares: (with_length > 1).then_some(shares),
        }
    }

    /// Describes what the file would send, in lines for its owner.
    fn describe(&self, params: &StudyParams) -> Vec<String> {
        let names = params.feature_names();
        let mut lines = vec![format!(
            "rows: {}, which make {}",
            self.rows,
            counted(self.reports as u64, "report")
        )];
        if let Some((above, unusable)) = self.weights.filter(|weights| *weights != (0, 0)) {
            lines.push(format!(
                "weights: {above} above 1, which count as 1; {unusable} that are no number above 0, which make zero rows"
            ));
        }
        let (zero, cells) = match params.preprocessing().allows_missing_cells() {
            true => (
                "too long",
                "missing cells: TOTAL, which count as their centers",
            ),
            false => (
                "a missing cell, infinite, not a number, too long or too wide",
                "cells without a number: TOTAL, whose rows are sent as zero rows",
            ),
        };
        lines.push(format!(
            "sent as zero rows: {} that cannot be used ({zero}{}), {} without any value{}",
            rounded(self.unusable),
            self.weights.map_or("", |_| ", or its weight"),
            rounded(self.empty),
            match self.of_persons {
                true => "; on average, as one row of each person is drawn",
                false => "",
            }
        ));
        let total: usize = self.cells.iter().map(|(_, count)| count).sum();
        if total > 0 {
            let listed = self.cells.iter();
            let listed = listed.map(|(column, count)| format!("{column}: {count}"));
            let listed = first_few(listed, MAX_LISTED, |others| {
                format!(", and in {others} other columns")
            });
            let cells = cells.replace("TOTAL", &total.to_string());
            lines.push(format!("{cells}: {listed}"));
        }
        lines.extend(self.unlike_the_study(params));
        if let Some(shares) = &self.shares {
            lines.push(shares.summary(|column| name_of(names.as_deref(), column)));
        }
        let unreadable = self.unreadable.iter();
        lines.extend(unreadable.map(|why| format!("what cannot be used: {}", in_flags(why))));
        lines
    }

    /// Tells the file's owner, whatever else the command prints.
    pub(super) fn tell(&self, params: &StudyParams) {
        for line in self.describe(params) {
            output::print_error_line(&format!("shown only to you: {line}"));
        }
    }

    /// Columns whose share of observed cells is not the one that the study divides by.
    fn unlike_the_study(&self, params: &StudyParams) -> Option<String> {
        let sent = self.reports as f64 - self.unusable;
        if sent < MIN_REPORTS_FOR_SHARES {
            return None;
        }
        let features = params.preprocessing().features.as_deref()?;
        let differ = features.iter().zip(&self.observed);
        let differ: Vec<String> = differ
            .filter_map(|(feature, &here)| {
                let study = feature.observed?;
                // Four standard errors of a share in a sample of this size.
                let chance = 4.0 * (study * (1.0 - study) / sent).sqrt();
                let (own, theirs) = (percent(here), percent(study));
                ((here - study).abs() > MAX_DIFFERENCE_OF_OBSERVED.max(chance))
                    .then(|| format!("{:?} {own} here, {theirs} in the study", feature.name))
            })
            .take(MAX_LISTED)
            .collect();
        (!differ.is_empty()).then(|| {
            format!(
                "observed otherwise than the study says, which biases its estimate if it is so everywhere: {}",
                differ.join("; ")
            )
        })
    }

    /// Notes on what is conspicuous about the file.
    fn warnings(&self, params: &StudyParams) -> Vec<String> {
        let names = params.feature_names();
        let shares = self.shares.iter();
        let mut warnings: Vec<String> = shares
            .flat_map(|shares| shares.warnings(|column| name_of(names.as_deref(), column)))
            .collect();
        let reports = self.reports as f64;
        let share = self.unusable / reports;
        if reports >= MIN_REPORTS_FOR_SHARES && share > MAX_UNUSABLE_SHARE {
            warnings.push(format!(
                "{} of {reports} reports ({}) would be of the zero row, because theirs cannot be used, which makes the estimate's variances too small",
                rounded(self.unusable),
                percent(share)
            ));
        }
        warnings
    }

    /// Tells what the file has and what is conspicuous about it, and asks a person at a terminal whether to go on,
    /// alike for every file. Without a terminal nothing depends on it: whether a file is sent would tell of the row at
    /// the edge, exactly.
    pub(super) fn confirmed(&self, yes: bool, params: &StudyParams) -> Result<bool> {
        self.tell(params);
        for warning in self.warnings(params) {
            output::print_error_line(&format!("warning, shown only to you: {warning}"));
        }
        if yes {
            return Ok(true);
        }
        let answer = output::ask(
            "Nothing has been perturbed or sent. Whoever runs the study can see whether you take part. Go on? [y/N]",
        )?;
        Ok(answer.unwrap_or(true))
    }
}

/// A number of reports, to a tenth.
fn rounded(reports: f64) -> f64 {
    (10.0 * reports).round() / 10.0
}

fn name_of(names: Option<&[String]>, column: usize) -> String {
    match names {
        Some(names) => format!("{:?}", names[column]),
        None => format!("{}", column + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use eigenveil_client::Holders;
    use eigenveil_shared::{
        mechanism::MechanismKind,
        preprocess::{Feature, Weights},
        study::StudyDesign,
    };
    use eigenveil_tables::{ExpectedColumns, Settings, parse};

    use super::*;
    use crate::error::assert_says;

    /// The messages about the rows of a text table.
    fn said(text: &str, features: &[Feature], holders: Holders) -> String {
        let mechanism = MechanismKind::DoubleCap;
        let weighted = matches!(holders, Holders::Weighted(_));
        let params = StudyParams::freeze(StudyDesign {
            features: Some(features.to_vec()),
            weights: weighted.then_some(Weights { mean: Some(0.5) }),
            ..StudyDesign::new(
                mechanism,
                features.len(),
                mechanism.budget(4.0, None).unwrap(),
            )
        });
        let params = params.unwrap();
        let expected = ExpectedColumns::study(params.dimension(), params.feature_names());
        let settings = Settings::default();
        let table = parse(
            Path::new("a.csv"),
            text.as_bytes(),
            &settings,
            Some(&expected),
        );
        let persons = Persons {
            table: table.unwrap(),
            bytes: Vec::new(),
            holders,
        };
        let check = RowCheck::new(&persons, &params);
        [check.describe(&params), check.warnings(&params)]
            .concat()
            .join("\n")
    }

    fn features(names: &[&str]) -> Vec<Feature> {
        let names = names.iter();
        names.map(|&name| Feature::new(name, 0.0, 1.0)).collect()
    }

    #[test]
    fn a_report_whose_row_and_weight_cannot_be_used_is_one_zero_row() {
        // 90 rows without a number, 60 more without a weight, and 50 that are sent.
        let text = format!(
            "a,b\n{}{}{}",
            "x,\n".repeat(90),
            "0,5\n".repeat(60),
            "1,0\n".repeat(50)
        );
        let weights = [0.0, f64::NAN, 0.5].map(|weight| [weight; 50]).concat();
        let weights = [[0.0; 50].to_vec(), weights].concat();
        let messages = said(&text, &features(&["a", "b"]), Holders::Weighted(weights));
        let words = [
            "150 that are no number above 0",
            "sent as zero rows: 150 that cannot be used",
            "or its weight), 0 without any value",
            "cells without a number: 180, whose rows are sent as zero rows: column 1 (a): 90, column 2 (b): 90",
            "shares of the squared length: \"a\" 100.0 %, \"b\" 0.0 %",
            "150 of 200 reports (75.0 %)",
        ];
        assert_says(&messages, &words, &[]);
    }

    #[test]
    fn a_person_is_one_report_of_one_row() {
        let text = format!("a,b\n{}{}", "x,1\n".repeat(10), "1,0\n0,1\nx,1\n");
        let labels = [["7"; 10].to_vec(), vec!["8", "8", "9"]].concat();
        let messages = said(&text, &features(&["a", "b"]), Holders::persons(labels));
        let words = [
            "rows: 13",
            "sent as zero rows: 2 that cannot be used",
            "on average",
            "\"a\" 50.0 %, \"b\" 50.0 %",
        ];
        assert_says(&messages, &words, &[]);
    }

    #[test]
    fn a_missing_category_is_one_cell_and_shares_are_those_of_the_rows_sent() {
        let names = ["sex=f", "sex=m", "sex=d", "x"];
        let categories = said(
            "sex,x\nf,1\n,2\nm,3\nd,4\n",
            &features(&names),
            Holders::Rows(4),
        );
        assert_says(
            &categories,
            &["cells without a number: 1,", ": column 1 (sex): 1"],
            &[],
        );
        // Of those who count, half have b, as the study says.
        let observed = features(&["a", "b"]).into_iter().zip([1.0, 0.5]);
        let observed: Vec<Feature> = observed
            .map(|(feature, share)| feature.observed(share))
            .collect();
        let text = format!("a,b\n{}{}", "1,2\n".repeat(200), "1,\n".repeat(100));
        let weights = [[0.0; 100], [1.0; 100], [1.0; 100]].concat();
        let messages = said(&text, &observed, Holders::Weighted(weights));
        let words = ["missing cells: 100, which count as their centers: column 2 (b): 100"];
        assert_says(&messages, &words, &["observed otherwise"]);
    }
}
