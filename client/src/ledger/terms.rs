//! What a study told a device when it took part, stored unchanged for the receipt.
//!
//! The texts come from the server and are not in the fingerprint: another device may have been shown different ones.
//! The parameters are those that this device used.

use std::fmt;

use eigenveil_shared::{
    ErrorCode,
    about::{About, UtcDate},
    preprocess::{Norm, Preprocessing},
    study::StudyParams,
};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::{error::Result, file::LockedFile, reporter::Reporter};

/// The table, in either kind of ledger; its numbers are those of the studies.
pub(super) const STUDY_TERMS: &str = "
    CREATE TABLE study_terms (
        number INTEGER PRIMARY KEY,
        name TEXT,
        purpose TEXT,
        responsible_party TEXT,
        contact TEXT,
        last_day INTEGER CHECK (last_day >= 0),
        canonical_params BLOB NOT NULL
    ) STRICT;
    CREATE TRIGGER study_terms_stay BEFORE DELETE ON study_terms
        BEGIN SELECT RAISE(ABORT, 'what a device was told is never deleted'); END;
    CREATE TRIGGER study_terms_are_fixed BEFORE UPDATE ON study_terms
        BEGIN SELECT RAISE(ABORT, 'what a device was told is never changed'); END;
";

/// What a device was told of a study when it took part. `Display` is a line for each thing, features last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyTerms {
    /// The study's name; `None` where the parameters came without it.
    pub name: Option<String>,
    /// What the study said of itself.
    pub about: About,
    /// What was done with the row: features, centers, scales, norm, centring, mechanism, ε and δ. `None` where this
    /// version would refuse them; the fingerprint says which they were.
    pub parameters: Option<StudyParams>,
}

impl StudyTerms {
    /// Fails if the study's purpose or responsible party differs from what it was when the device took part. Call it before
    /// sending a report made then.
    ///
    /// # Errors
    /// `invalid-about`, with both texts.
    pub fn check_unchanged(&self, now: &About) -> Result<()> {
        let Some((what, then, now)) = self.about.first_changed_term(now) else {
            return Ok(());
        };
        let stated = |text: Option<&str>| match text {
            Some(text) => format!("{text:?}"),
            None => "not stated".to_owned(),
        };
        Err(eigenveil_shared::Error::new(
            ErrorCode::InvalidAbout,
            format!(
                "the study's {what} was {} when the report was made and is {} now; nothing was sent: ask whoever runs the study",
                stated(then),
                stated(now)
            ),
        )
        .into())
    }
}

/// Keeps what the participant was told of the study with this number.
pub(super) fn record(
    file: &Connection,
    number: i64,
    reporter: &Reporter,
) -> rusqlite::Result<usize> {
    let about = reporter.about();
    file.execute(
        "INSERT INTO study_terms (number, name, purpose, responsible_party, contact, last_day, canonical_params)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            number,
            reporter.study_name(),
            about.purpose,
            about.responsible_party,
            about.contact,
            about.last_day.map(|day| day.0),
            reporter.params().canonical_bytes(),
        ],
    )
}

/// What was kept for this number.
pub(super) fn read(store: &LockedFile, number: i64) -> Result<StudyTerms> {
    let read = |row: &Row<'_>| {
        let canonical: Vec<u8> = row.get(5)?;
        Ok(StudyTerms {
            name: row.get(0)?,
            about: About {
                purpose: row.get(1)?,
                responsible_party: row.get(2)?,
                contact: row.get(3)?,
                last_day: row.get::<_, Option<u64>>(4)?.map(UtcDate),
            },
            // A version that bounds its constants more must still count what was spent.
            parameters: StudyParams::from_canonical(&canonical).ok(),
        })
    };
    store.one(
        "SELECT name, purpose, responsible_party, contact, last_day, canonical_params FROM study_terms WHERE number = ?1",
        [number],
        read,
    )
}

impl fmt::Display for StudyTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = &self.about;
        let line = |f: &mut fmt::Formatter<'_>, what: &str, text: Option<&str>| {
            let text = text.map_or_else(|| "not stated".to_owned(), printable);
            writeln!(f, "{what:<13}{text}")
        };
        line(f, "name", self.name.as_deref())?;
        line(f, "purpose", about.purpose.as_deref())?;
        line(f, "responsible", about.responsible_party.as_deref())?;
        line(f, "contact", about.contact.as_deref())?;
        let last_day = about.last_day.map(|day| format!("{day} (UTC)"));
        line(f, "last day", last_day.as_deref())?;
        let Some(parameters) = &self.parameters else {
            return line(f, "parameters", Some("not accepted by this version"));
        };
        let preprocessing = parameters.preprocessing();
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
                for feature in features {
                    writeln!(
                        f,
                        "  {}: center {}, scale {}",
                        printable(&feature.name),
                        feature.center,
                        feature.scale
                    )?;
                }
                Ok(())
            }
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

/// Others' text without control characters, which a terminal obeys.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
