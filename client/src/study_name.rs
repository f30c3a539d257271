//! Names by which a person calls a study: its identifier, the beginning of it, or its name. Only the identifier always
//! means the same study.

use eigenveil_shared::{Error as SharedError, ErrorCode, api::StudySummary};

use crate::{
    error::{Error, Result},
    study_info::StudyInfo,
};

const ID_DIGITS: usize = 32;
/// Fewest digits accepted as the beginning of an identifier.
const MIN_DIGITS: usize = 4;
const MAX_STUDIES_SHOWN: usize = 5;

/// The identifier of the only study with the name `called`, or whose identifier begins with it. A whole identifier is
/// returned without waiting for the server's list.
///
/// # Errors
/// `study-not-found` if there is none; `usage` if there are several; those of `list`.
pub async fn resolve_study_id(
    list: impl Future<Output = Result<Vec<StudySummary>>>,
    called: &str,
) -> Result<String> {
    if called.len() == ID_DIGITS && called.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(called.to_owned());
    }
    find_study(&list.await?, called)
}

fn id_begins_with(id: &str, called: &str) -> bool {
    called.len() >= MIN_DIGITS && id.starts_with(&called.to_ascii_lowercase())
}

fn find_study(studies: &[StudySummary], called: &str) -> Result<String> {
    let named: Vec<&StudySummary> = studies
        .iter()
        .filter(|study| study.name == called)
        .collect();
    let matching = if named.is_empty() {
        let prefixed = studies
            .iter()
            .filter(|study| id_begins_with(&study.id, called));
        prefixed.collect()
    } else {
        named
    };
    match matching.as_slice() {
        [study] => Ok(study.id.clone()),
        [] => Err(SharedError::new(
            ErrorCode::StudyNotFound,
            format!(
                "no study has the name {called:?} or an identifier that begins with it (at least {MIN_DIGITS} digits)"
            ),
        )
        .into()),
        several => {
            let line = |study: &&StudySummary| format!("\n  {}  {}", study.id, study.name);
            let listed: String = several.iter().take(MAX_STUDIES_SHOWN).map(line).collect();
            Err(Error::usage(format!(
                "{} studies have the name {called:?} or an identifier that begins with it; give more of the identifier:{listed}",
                several.len()
            )))
        }
    }
}

/// Refuses a new study that was called by a name which meant another study of the same server before: one of `known`,
/// given by identifier and name, in which `who` took part. A study that was deleted and created again has the same
/// name, and would be charged again.
///
/// # Errors
/// `already-participated`, with both identifiers.
pub(crate) fn check_called<'a>(
    study: &StudyInfo,
    who: &str,
    known: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<()> {
    let Some(called) = study.called_by() else {
        return Ok(());
    };
    let mut known = known.into_iter();
    let earlier = known.find(|(id, name)| id_begins_with(id, called) || *name == Some(called));
    let Some((before, _)) = earlier else {
        return Ok(());
    };
    let now = study.id();
    Err(SharedError::new(
        ErrorCode::AlreadyParticipated,
        format!(
            "{who} took part in study {before}, which {called:?} meant on this server; now it means study {now}, and another report would be charged: give the whole identifier {now} if you want that, or {before}"
        ),
    )
    .into())
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
