//! Names by which a person calls a study: its identifier, the beginning of it, or its name. Only the identifier always
//! means the same study.

#[cfg(feature = "http")]
use eigenveil_shared::api::StudySummary;
use eigenveil_shared::{Error as SharedError, ErrorCode};

use crate::{
    error::{Error, Result},
    study_info::StudyInfo,
};

#[cfg(feature = "http")]
const ID_DIGITS: usize = 32;
/// Fewest digits accepted as the beginning of an identifier.
const MIN_DIGITS: usize = 4;
const MAX_STUDIES_SHOWN: usize = 5;

/// The identifier of the only study of a server that is called so, as [`find_study`] finds it. A whole identifier is
/// returned without waiting for the server's list.
///
/// # Errors
/// Those of [`find_study`] and of `list`.
#[cfg(feature = "http")]
pub(crate) async fn resolve_study_id(
    list: impl Future<Output = Result<Vec<StudySummary>>>,
    called: &str,
) -> Result<String> {
    if called.len() == ID_DIGITS && called.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(called.to_owned());
    }
    let mut studies = list.await?;
    let named = studies.iter();
    let named = named.map(|study| (study.id.as_str(), Some(study.name.as_str())));
    let at = find_study(named, called, "of the server")?;
    Ok(studies.swap_remove(at).id)
}

fn id_begins_with(id: &str, called: &str) -> bool {
    called.len() >= MIN_DIGITS && id.starts_with(&called.to_ascii_lowercase())
}

/// The place of the only one of these studies, given by identifier and name, that has this identifier; or else this
/// name; or else an identifier that begins so. `whose`: the server or the ledger that has the studies, in words.
///
/// # Errors
/// `study-not-found` if there is none; `usage` with the identifiers if there are several.
pub(crate) fn find_study<'a>(
    studies: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    called: &str,
    whose: &str,
) -> Result<usize> {
    let studies: Vec<(&str, Option<&str>)> = studies.into_iter().collect();
    let with = |is_called: &dyn Fn(&str, Option<&str>) -> bool| -> Vec<usize> {
        let places = 0..studies.len();
        let fits = |at: &usize| is_called(studies[*at].0, studies[*at].1);
        places.filter(fits).collect()
    };
    let mut matching = with(&|id, _| id == called);
    if matching.is_empty() {
        matching = with(&|_, name| name == Some(called));
    }
    if matching.is_empty() {
        matching = with(&|id, _| id_begins_with(id, called));
    }
    match matching.as_slice() {
        [at] => Ok(*at),
        [] => Err(SharedError::new(
            ErrorCode::StudyNotFound,
            format!(
                "no study {whose} has the name {called:?} or an identifier that begins with it (at least {MIN_DIGITS} digits)"
            ),
        )
        .into()),
        several => {
            let line = |at: &usize| {
                let (id, name) = studies[*at];
                format!("\n  {id}  {}", name.unwrap_or_default())
            };
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
    use super::*;

    #[test]
    fn a_study_is_found_by_name_or_prefix_of_its_identifier() {
        let studies = [
            ("abcd1", "wine"),
            ("abcd2", "heights"),
            ("ffff", "abcd1"),
            ("1234", "twice"),
            ("5678", "twice"),
        ];
        let studies = studies.map(|(id, name)| (format!("{id:0<32}"), name));
        let lookup = |text: &str| {
            let studies = studies.iter().map(|(id, name)| (id.as_str(), Some(*name)));
            find_study(studies, text, "of the server").map_err(|error| error.to_string())
        };
        assert_eq!((lookup("wine"), lookup("ABCD2")), (Ok(0), Ok(1)));
        // A name takes precedence over the beginning of an identifier, and a whole identifier over a name.
        assert_eq!(lookup("abcd1"), Ok(2));
        let named_like_it = [("7", Some("8")), ("8", None)];
        assert_eq!(find_study(named_like_it, "8", "").unwrap(), 1);
        assert!(lookup("abcd").unwrap_err().contains("2 studies"));
        let twice = lookup("twice").unwrap_err();
        for (id, _) in &studies[3..] {
            assert!(twice.contains(id.as_str()), "{twice}");
        }
        for none in ["fff", "win", "", "ffff0f"] {
            let error = lookup(none).unwrap_err();
            assert!(error.contains("at least 4 digits"), "{error}");
        }
    }
}
