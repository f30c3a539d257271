//! Finds a study by its name or by the first digits of its identifier.

use eigenveil_shared::api::StudySummary;

use crate::error::{CliError, Result};

const ID_DIGITS: usize = 32;
/// Fewest digits accepted as the beginning of an identifier.
const MIN_DIGITS: usize = 4;
const MAX_STUDIES_SHOWN: usize = 5;

/// The identifier of the one study with this identifier or name, or whose identifier begins with it. A whole identifier
/// is returned without waiting for the server's list.
/// Wrong usage if there is none, or several; network failures.
pub(crate) async fn resolve_study_id(
    list: impl Future<Output = eigenveil_client::Result<Vec<StudySummary>>>,
    text: &str,
) -> Result<String> {
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    if digits && text.len() == ID_DIGITS {
        return Ok(text.to_owned());
    }
    find_study(&list.await?, text)
}

fn find_study(studies: &[StudySummary], text: &str) -> Result<String> {
    let named: Vec<&StudySummary> = studies.iter().filter(|study| study.name == text).collect();
    let lower = text.to_ascii_lowercase();
    let begun = |study: &&StudySummary| text.len() >= MIN_DIGITS && study.id.starts_with(&lower);
    let matching = if named.is_empty() {
        studies.iter().filter(begun).collect()
    } else {
        named
    };
    match matching.as_slice() {
        [study] => Ok(study.id.clone()),
        [] => Err(CliError::usage(format!(
            "no study has the name {text:?} or an identifier that begins with it (at least {MIN_DIGITS} digits); `eigenveil study list` lists the studies"
        ))),
        several => {
            let line = |study: &&StudySummary| format!("\n  {}  {}", study.id, study.name);
            let listed: String = several.iter().take(MAX_STUDIES_SHOWN).map(line).collect();
            Err(CliError::usage(format!(
                "{} studies have the name {text:?} or an identifier that begins with it; give more of the identifier:{listed}",
                several.len()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{api::StudyState, mechanism::MechanismKind};

    use super::*;

    fn study(id: &str, name: &str) -> StudySummary {
        serde_json::from_value(serde_json::json!({
            "id": format!("{id:0<32}"),
            "name": name,
            "state": StudyState::Open,
            "fingerprint": "00",
            "dimension": 2,
            "mechanism": MechanismKind::DoubleCap,
            "epsilon": 1.0,
            "delta": 0.0,
            "reports_accepted": 0,
            "created_at_ms": 0,
            "enrolment": "open"
        }))
        .unwrap()
    }

    #[test]
    fn a_study_is_found_by_name_or_prefix_of_its_identifier() {
        let studies = [
            study("abcd1", "wine"),
            study("abcd2", "heights"),
            study("ffff", "abcd1"),
            study("1234", "twice"),
            study("5678", "twice"),
        ];
        let lookup = |text: &str| find_study(&studies, text).map_err(|error| error.to_string());
        assert_eq!(lookup("wine").unwrap(), studies[0].id);
        assert_eq!(lookup("ABCD2").unwrap(), studies[1].id);
        // A name takes precedence over the beginning of an identifier.
        assert_eq!(lookup("abcd1").unwrap(), studies[2].id);
        assert!(lookup("abcd").unwrap_err().contains("2 studies"));
        assert!(lookup("twice").unwrap_err().contains(&studies[4].id));
        for none in ["fff", "win", "", "ffff0f"] {
            let error = lookup(none).unwrap_err();
            assert!(error.contains("at least 4 digits"), "{error}");
        }
    }
}
