//! The terms of a study at the time when a device took part, stored unchanged for the receipt.
//!
//! The texts come from the server and are not in the fingerprint: another device may have been shown different ones.
//! The parameters are those that this device used.

use std::fmt;

use eigenveil_shared::{
    ErrorCode,
    about::StudyNotice,
    parameters::Parameters,
    preparation::PreparationParams,
    preprocess::{Norm, Preprocessing},
    site_study::SiteTerms,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Result, printable},
    study_info::StudyInfo,
};

/// The terms of a study when a device took part. `Display` writes one line for each, features last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyTerms {
    /// The study's name; `None` if the parameters came without it.
    pub name: Option<String>,
    /// The notice of the study.
    pub about: StudyNotice,
    /// The treatment of the row: features, centers, scales, norm, centring, mechanism, ε and δ. `None` if this version
    /// would refuse them; the fingerprint still identifies them.
    pub parameters: Option<Parameters>,
}

impl StudyTerms {
    /// The current terms of a study.
    pub fn of(study: &StudyInfo) -> Self {
        Self {
            name: study.name().map(str::to_owned),
            about: study.about().clone(),
            parameters: Some(study.parameters().clone()),
        }
    }

    pub(crate) fn new(name: Option<String>, about: StudyNotice, canonical_params: &[u8]) -> Self {
        Self {
            name,
            about,
            // A version with tighter bounds on its constants must still count what was spent.
            parameters: Parameters::from_canonical(canonical_params).ok(),
        }
    }

    /// Fails if the study's purpose, responsible party or meaning of a feature has changed since the device took part. Call
    /// it before sending a report made then.
    ///
    /// # Errors
    /// `invalid-about`, with both texts.
    pub fn check_unchanged(&self, now: &StudyNotice) -> Result<()> {
        let Some((term, before, now)) = self.about.first_changed_term(now) else {
            return Ok(());
        };
        let stated = |text: Option<String>| match text {
            Some(text) => format!("{text:?}"),
            None => "not stated".to_owned(),
        };
        Err(eigenveil_shared::Error::new(
            ErrorCode::InvalidNotice,
            format!(
                "the study's {term} was {} when the report was made and is {} now; nothing was sent: ask whoever runs the study",
                stated(before),
                stated(now)
            ),
        )
        .into())
    }
}

impl fmt::Display for StudyTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = &self.about;
        line(f, "name", self.name.as_deref())?;
        line(f, "purpose", about.purpose.as_deref())?;
        line(f, "responsible", about.responsible_party.as_deref())?;
        line(f, "contact", about.contact.as_deref())?;
        let last_day = about.last_day.map(|day| format!("{day} (UTC)"));
        line(f, "last day", last_day.as_deref())?;
        let Some(parameters) = &self.parameters else {
            return line(f, "parameters", Some("not accepted by this version"));
        };
        if let Ok(preparation) = parameters.preparation() {
            return self.write_questions(f, preparation);
        }
        let Ok(preprocessing) = parameters.preprocessing() else {
            return Ok(());
        };
        if let Ok(sites) = parameters.sites() {
            line(f, "tables", Some(&tables(sites.terms())))?;
        }
        line(f, "norm", Some(&norm(preprocessing)))?;
        let centring = match preprocessing.centring {
            Some(constant) => format!("private, with constant {constant}"),
            None => "none".to_owned(),
        };
        line(f, "centring", Some(&centring))?;
        if preprocessing.weights.is_some() {
            line(f, "weights", Some("rows count by weights of their own"))?;
        }
        if preprocessing.allows_missing_cells() {
            line(f, "missing", Some("a missing value counts as its center"))?;
        }
        match &preprocessing.features {
            None => line(
                f,
                "features",
                Some(&format!(
                    "{} unnamed numbers, used unchanged",
                    preprocessing.dimension
                )),
            ),
            Some(features) => {
                line(f, "features", Some("each x becomes (x - center) / scale"))?;
                for (at, feature) in features.iter().enumerate() {
                    writeln!(
                        f,
                        "  {}: center {}, scale {}",
                        printable(&feature.name),
                        feature.center,
                        feature.scale
                    )?;
                    if let Some(meaning) = about.feature(at) {
                        writeln!(f, "    {}", printable(&meaning.to_string()))?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn line(f: &mut fmt::Formatter<'_>, label: &str, text: Option<&str>) -> fmt::Result {
    let text = text.map_or_else(|| "not stated".to_owned(), printable);
    writeln!(f, "{label:<13}{text}")
}

impl StudyTerms {
    /// The questions of a preparation, one of which is answered.
    fn write_questions(
        &self,
        f: &mut fmt::Formatter<'_>,
        preparation: &PreparationParams,
    ) -> fmt::Result {
        if let Some(first) = preparation.after() {
            let first = format!("second, after the one with fingerprint {first}");
            line(f, "round", Some(&first))?;
        }
        line(
            f,
            "columns",
            Some("one of them is drawn, and a question about it answered"),
        )?;
        let mut feature = 0;
        for column in preparation.columns() {
            writeln!(
                f,
                "  {}: {}",
                printable(&column.name),
                printable(&column.to_string())
            )?;
            if let Some(meaning) = self.about.feature(feature) {
                writeln!(f, "    {}", printable(&meaning.to_string()))?;
            }
            feature += column.feature_names().len();
        }
        Ok(())
    }
}

fn tables(terms: &SiteTerms) -> String {
    let (least, most, unit) = (terms.min_rows, terms.max_rows, terms.unit());
    match terms.rows_per_person {
        None => format!("{least} to {most} {unit}; each row is protected"),
        Some(cap) => {
            format!(
                "{least} to {most} {unit}, each with the first {cap} of its rows; each person is protected"
            )
        }
    }
}

fn norm(preprocessing: &Preprocessing) -> String {
    match preprocessing.norm {
        Norm::Normalize => "normalize: each row divided by its length".to_owned(),
        Norm::Clip { radius } => {
            format!("clip: rows longer than {radius} shortened to it, then divided by it")
        }
        Norm::Require { radius } => {
            format!("require: divided by {radius}; longer rows sent as the zero row")
        }
    }
}
