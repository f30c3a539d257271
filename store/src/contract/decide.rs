//! What may be done, decided in one place for every engine; and what becomes of a report, in the order of arrival, over
//! what the engine knows of it.
//!
//! A decision is called inside the engine's transaction: what it reads and takes there is committed with the report, or
//! not at all.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{EstimateState, StudyState},
    enrolment::{AdmissionKey, Enrolment},
    error,
};

use super::study::{NewStudy, Study, StudyId};

/// The outcome of a report, after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// Stored durably and counted now.
    Accepted,
    /// Stored before; counted once.
    Duplicate,
    /// Not stored before, and the study does not accept reports.
    NotOpen,
    /// Not stored before, and the study's last day is over.
    Ended,
    /// Not stored before, and rejected: `token-required`, `participant-token-unknown` or `token-spent`;
    /// `implausible-report` for a site's report that failed the test.
    NotAdmitted(ErrorCode),
    /// Not stored before, and the study of sites keeps as many reports as it may.
    NoRoom,
    /// The study was deleted.
    StudyDeleted,
}

/// The study's conditions for a report, as the transaction reads them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRules {
    pub(crate) is_open: bool,
    /// Its last day is over.
    pub(crate) is_over: bool,
    pub(crate) enrolment: Enrolment,
    /// Reports for which there is room: of sites, all of which need a token.
    pub(crate) room: u64,
}

/// A report as far as it decides.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'a> {
    pub(crate) id: &'a [u8; 16],
    pub(crate) key: Option<&'a AdmissionKey>,
    /// Whether it passed the test of a site's report; `None` where there is none, or no unspent token.
    pub(crate) passed: Option<bool>,
}

/// The outcome for the key of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    Now,
    Before,
    Unknown,
}

/// The reports and keys of a study that a transaction knows, and adds.
pub(crate) trait Facts {
    type Failure;

    /// Whether a report with this identifier was counted.
    fn is_known(&mut self, id: &[u8; 16]) -> Result<bool, Self::Failure>;

    /// Inserts the identifier of a report that is counted now; false if it was counted before.
    fn insert_id(&mut self, id: &[u8; 16]) -> Result<bool, Self::Failure>;

    /// Spends a key.
    fn spend(&mut self, key: &AdmissionKey) -> Result<Spent, Self::Failure>;
}

/// Decides about one report.
///
/// A report that was counted before is a duplicate, whatever the study's state and whatever it comes with: it has spent
/// its key. One that is refused takes nothing, so that it may come again with another key in the same commit. One that is
/// accepted takes room.
pub(crate) fn admit<F: Facts>(
    rules: &mut AdmissionRules,
    facts: &mut F,
    claim: Claim<'_>,
) -> Result<SubmitOutcome, F::Failure> {
    let Claim { id, key, .. } = claim;
    if !rules.is_open || rules.is_over {
        return Ok(match (facts.is_known(id)?, rules.is_over) {
            (true, _) => SubmitOutcome::Duplicate,
            (false, true) => SubmitOutcome::Ended,
            (false, false) => SubmitOutcome::NotOpen,
        });
    }
    if rules.enrolment == Enrolment::Token && !facts.is_known(id)? {
        match claim.passed {
            Some(false) => return Ok(SubmitOutcome::NotAdmitted(ErrorCode::ImplausibleReport)),
            Some(true) if rules.room == 0 => return Ok(SubmitOutcome::NoRoom),
            _ => {}
        }
        let refused = match key.map(|key| facts.spend(key)).transpose()? {
            Some(Spent::Now) => None,
            Some(Spent::Before) => Some(ErrorCode::TokenSpent),
            Some(Spent::Unknown) => Some(ErrorCode::ParticipantTokenUnknown),
            None => Some(ErrorCode::TokenRequired),
        };
        if let Some(code) = refused {
            return Ok(SubmitOutcome::NotAdmitted(code));
        }
    }
    if !facts.insert_id(id)? {
        return Ok(SubmitOutcome::Duplicate);
    }
    rules.room = rules.room.saturating_sub(1);
    Ok(SubmitOutcome::Accepted)
}

/// Whether a study of this state moves to the wanted one; false if it has it already.
///
/// # Errors
/// `invalid-transition` for any step but draft to open to closed.
pub(crate) fn changes_state(id: StudyId, from: StudyState, wanted: StudyState) -> Result<bool> {
    match (from, wanted) {
        (from, to) if from == to => Ok(false),
        (StudyState::Draft, StudyState::Open) | (StudyState::Open, StudyState::Closed) => Ok(true),
        (from, to) => Err(error!(
            InvalidTransition,
            "study {id} is {} and cannot become {}; a study goes from draft to open to closed",
            from.as_str(),
            to.as_str()
        )),
    }
}

pub(crate) fn may_delete(id: StudyId, state: StudyState) -> Result<()> {
    match state {
        StudyState::Open => Err(error!(
            InvalidTransition,
            "study {id} is open; close it before you delete it"
        )),
        StudyState::Draft | StudyState::Closed => Ok(()),
    }
}

/// Whether participant tokens can be made for a study.
pub(crate) fn may_issue(id: StudyId, state: StudyState, enrolment: Enrolment) -> Result<()> {
    let why = match (enrolment, state) {
        (Enrolment::Open, _) => {
            "has open enrolment and uses no tokens; create a study with enrolment token"
        }
        (Enrolment::Token, StudyState::Closed) => {
            "is closed and accepts no reports, so tokens for it would be useless"
        }
        (Enrolment::Token, StudyState::Draft | StudyState::Open) => return Ok(()),
    };
    Err(error!(InvalidTransition, "study {id} {why}"))
}

/// Whether one more estimate may wait, of all studies.
pub(crate) fn is_room_for_job(waiting: u32, limit: u32) -> Result<()> {
    match waiting < limit {
        true => Ok(()),
        false => Err(error!(
            TooManyRequests,
            "{waiting} estimates are waiting already and the limit is {limit}; retry when one is done"
        )),
    }
}

/// Whether an estimate can be cancelled; one that is cancelled can.
pub(crate) fn may_cancel(number: u64, state: EstimateState) -> Result<()> {
    match state {
        EstimateState::Running | EstimateState::Cancelled => Ok(()),
        EstimateState::Done | EstimateState::Failed => Err(error!(
            InvalidTransition,
            "estimate {number} is {}; only a running one can be cancelled",
            state.as_str()
        )),
    }
}

/// Maximum number of analyst tokens: each presented token is compared with all of them.
const MAX_ANALYST_TOKENS: usize = 1_000;

pub(crate) fn is_room_for_analyst(existing: usize) -> Result<()> {
    match existing < MAX_ANALYST_TOKENS {
        true => Ok(()),
        false => Err(Error::invalid_request(format!(
            "there are {existing} analyst tokens and the limit is {MAX_ANALYST_TOKENS}; revoke some first"
        ))),
    }
}

/// Whether the reports of an exported study may be added to this one: people gave them to somebody, for a stated
/// purpose.
pub(crate) fn may_merge(into: &Study, exported: &NewStudy) -> Result<()> {
    let (own, other) = (into.params().fingerprint(), exported.params.fingerprint());
    if own != other {
        return Err(error!(
            WrongFingerprint,
            "the export has the parameters {other} but study {} has {own}; only studies with the same parameters can be merged",
            into.id()
        ));
    }
    if (into.enrolment(), exported.enrolment) == (Enrolment::Token, Enrolment::Open) {
        return Err(error!(
            InvalidTransition,
            "study {0} counts one report a token, but the exported study let anybody in; nothing was imported: import without naming a study, or into one with open enrolment",
            into.id()
        ));
    }
    let Some((term, ..)) = exported.about.first_changed_term(into.about()) else {
        return Ok(());
    };
    Err(error!(
        InvalidNotice,
        "the {term} of study {} differs from the one that the exported reports were given for; nothing was imported: import without naming a study, or into one that states the same",
        into.id()
    ))
}

/// Whether a study still has its identifiers: without them an export could count a report twice when it is imported,
/// and so could an import into it. `instead` is what can be done then.
pub(crate) fn has_identifiers(study: StudyId, kept: bool, instead: &str) -> Result<()> {
    match kept {
        true => Ok(()),
        false => Err(error!(
            InvalidTransition,
            "the identifiers of study {study} were deleted (retain_ids_days), so an import could count a report twice; {instead}"
        )),
    }
}

pub(crate) const EXPORT_INSTEAD: &str = "use a backup instead";
pub(crate) const IMPORT_INSTEAD: &str =
    "nothing was imported: import into another study of the same parameters";

/// Whether an export of so many reports can be added, `overlap` of which were counted before.
pub(crate) fn none_is_counted(study: StudyId, overlap: u64, reports: u64) -> Result<()> {
    match overlap {
        0 => Ok(()),
        _ => Err(error!(
            AlreadyCounted,
            "study {study} has already counted {overlap} of the {reports} exported reports, and they cannot be taken out of its sums; nothing was imported"
        )),
    }
}

pub(crate) fn no_estimate(study: StudyId, number: u64) -> Error {
    error!(
        EstimateNotFound,
        "study {study} has no estimate {number}; list them with GET /v1/studies/{study}/estimates"
    )
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        convert::Infallible,
    };

    use super::*;

    /// The store as maps.
    #[derive(Default)]
    struct Maps {
        ids: BTreeSet<[u8; 16]>,
        /// Whether each key was spent.
        keys: BTreeMap<AdmissionKey, bool>,
    }

    impl Facts for Maps {
        type Failure = Infallible;

        fn is_known(&mut self, id: &[u8; 16]) -> Result<bool, Infallible> {
            Ok(self.ids.contains(id))
        }

        fn insert_id(&mut self, id: &[u8; 16]) -> Result<bool, Infallible> {
            Ok(self.ids.insert(*id))
        }

        fn spend(&mut self, key: &AdmissionKey) -> Result<Spent, Infallible> {
            Ok(match self.keys.get_mut(key) {
                None => Spent::Unknown,
                Some(true) => Spent::Before,
                Some(spent) => {
                    *spent = true;
                    Spent::Now
                }
            })
        }
    }

    fn rules(is_open: bool, is_over: bool, enrolment: Enrolment) -> AdmissionRules {
        AdmissionRules {
            is_open,
            is_over,
            enrolment,
            room: 2,
        }
    }

    fn decided(
        rules: &mut AdmissionRules,
        maps: &mut Maps,
        id: u8,
        key: Option<u8>,
        passed: Option<bool>,
    ) -> SubmitOutcome {
        let key = key.map(|byte| [byte; 32]);
        let claim = Claim {
            id: &[id; 16],
            key: key.as_ref(),
            passed,
        };
        let Ok(outcome) = admit(rules, maps, claim);
        outcome
    }

    /// In one group: refused for its key, and accepted with a good one; a copy beside its original, which spends
    /// nothing; two with one key.
    #[test]
    fn a_group_is_decided_in_the_order_of_arrival() {
        let mut open = rules(true, false, Enrolment::Token);
        let mut maps = Maps {
            keys: BTreeMap::from([([1; 32], false), ([2; 32], false)]),
            ..Maps::default()
        };
        let unknown = SubmitOutcome::NotAdmitted(ErrorCode::ParticipantTokenUnknown);
        for (id, key, expected) in [
            (7, Some(9), unknown),
            (
                7,
                None,
                SubmitOutcome::NotAdmitted(ErrorCode::TokenRequired),
            ),
            (7, Some(1), SubmitOutcome::Accepted),
            (7, Some(2), SubmitOutcome::Duplicate),
            (7, None, SubmitOutcome::Duplicate),
            (
                8,
                Some(1),
                SubmitOutcome::NotAdmitted(ErrorCode::TokenSpent),
            ),
            (8, Some(2), SubmitOutcome::Accepted),
        ] {
            let outcome = decided(&mut open, &mut maps, id, key, None);
            assert_eq!(outcome, expected, "{id} {key:?}");
        }
        // An open study asks for no key, nor about one that a report brings.
        let mut anybody = rules(true, false, Enrolment::Open);
        let outcome = decided(&mut anybody, &mut maps, 5, Some(9), None);
        assert_eq!(outcome, SubmitOutcome::Accepted);
        // Closed, or over: what was counted is still told.
        for (mut rules, refused) in [
            (rules(false, false, Enrolment::Open), SubmitOutcome::NotOpen),
            (rules(true, true, Enrolment::Open), SubmitOutcome::Ended),
            (rules(false, true, Enrolment::Token), SubmitOutcome::Ended),
        ] {
            let mut decided = |id| decided(&mut rules, &mut maps, id, None, None);
            assert_eq!(
                [decided(7), decided(9)],
                [SubmitOutcome::Duplicate, refused]
            );
        }
    }

    /// A report that failed the test, or finds no room, spends nothing; one that was counted is told so.
    #[test]
    fn a_site_may_try_again() {
        let mut rules = rules(true, false, Enrolment::Token);
        let mut maps = Maps {
            keys: [1, 2, 3].map(|byte| ([byte; 32], false)).into(),
            ..Maps::default()
        };
        let implausible = SubmitOutcome::NotAdmitted(ErrorCode::ImplausibleReport);
        let spent = SubmitOutcome::NotAdmitted(ErrorCode::TokenSpent);
        for (id, key, passed, expected, room) in [
            (7, 1, Some(false), implausible, 2),
            (7, 1, Some(true), SubmitOutcome::Accepted, 1),
            (7, 1, Some(false), SubmitOutcome::Duplicate, 1),
            (8, 2, Some(true), SubmitOutcome::Accepted, 0),
            (9, 3, Some(false), implausible, 0),
            (9, 3, Some(true), SubmitOutcome::NoRoom, 0),
            (9, 1, None, spent, 0),
            (8, 3, Some(true), SubmitOutcome::Duplicate, 0),
        ] {
            let outcome = decided(&mut rules, &mut maps, id, Some(key), passed);
            assert_eq!(
                (outcome, rules.room),
                (expected, room),
                "{id} {key} {passed:?}"
            );
        }
        assert!(!maps.keys[&[3_u8; 32]]);
        rules.room = 1;
        let outcome = decided(&mut rules, &mut maps, 9, Some(3), Some(true));
        assert_eq!(outcome, SubmitOutcome::Accepted);
    }
}
