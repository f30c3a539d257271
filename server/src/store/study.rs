//! One study as the server holds it: frozen parameters, and what moves.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use eigenveil_shared::{
    Error, ErrorCode, Result,
    about::{About, is_readable},
    api::{CreateStudy, StudyDocument, StudyState, StudySummary},
    codec::{self, StudyShape},
    enrolment::Enrolment,
    estimate::Rank,
    mechanism::PayloadForm,
    packed::packed_len,
    privacy::PrivacyStatement,
    study::{StudyDesign, StudyParams, from_hex, to_hex},
};

/// Most buckets of one study.
pub const MAX_BUCKETS: u32 = 32;
/// Longest name of a study in bytes.
const MAX_NAME: usize = 200;

/// Identifier of a study: 16 random bytes, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StudyId(pub [u8; 16]);

impl StudyId {
    /// The identifier written as 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        from_hex(text)?.try_into().ok().map(Self)
    }
}

impl fmt::Display for StudyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for StudyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StudyId({self})")
    }
}

/// A study: its frozen parameters, and the state and count of its last commit.
#[derive(Debug)]
pub struct Study {
    pub(super) row: i64,
    id: StudyId,
    shape: StudyShape,
    buckets: u32,
    /// Everything anybody may see; state and count are put in when it is asked for.
    document: StudyDocument,
    state: AtomicU8,
    reports_accepted: AtomicU64,
}

impl Study {
    pub(super) fn new(row: i64, id: StudyId, design: NewStudy, created_at_ms: u64) -> Self {
        let NewStudy {
            name,
            params,
            default_k,
            state,
            buckets,
            enrolment,
            about,
        } = design;
        let shape = StudyShape::new(&params);
        let payload_len = shape.payload_len();
        Self {
            row,
            id,
            shape,
            buckets,
            document: StudyDocument {
                id: id.to_string(),
                name,
                state,
                fingerprint: shape.fingerprint().to_string(),
                canonical_params: to_hex(&params.canonical_bytes()),
                privacy: PrivacyStatement::new(&params),
                params,
                reports_accepted: 0,
                default_k,
                report_bytes: codec::report_len(payload_len),
                max_batch_reports: codec::max_batch(payload_len),
                created_at_ms,
                enrolment,
                about,
            },
            state: AtomicU8::new(state as u8),
            reports_accepted: AtomicU64::new(0),
        }
    }

    /// Its identifier.
    pub fn id(&self) -> StudyId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.document.name
    }

    /// Its frozen parameters.
    pub fn params(&self) -> &StudyParams {
        &self.document.params
    }

    /// What its reports must fit.
    pub fn shape(&self) -> &StudyShape {
        &self.shape
    }

    /// Components an estimate gives when it does not say.
    pub fn default_k(&self) -> Rank {
        self.document.default_k
    }

    /// How many buckets its commits are spread over.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// What is promised to each participant.
    pub fn privacy(&self) -> &PrivacyStatement {
        &self.document.privacy
    }

    /// When it was made, in milliseconds since 1970-01-01 UTC.
    pub fn created_at_ms(&self) -> u64 {
        self.document.created_at_ms
    }

    /// Who may take part.
    pub fn enrolment(&self) -> Enrolment {
        self.document.enrolment
    }

    /// What the people who are asked are told.
    pub fn about(&self) -> &About {
        &self.document.about
    }

    /// Draft, open or closed, as of the last commit.
    pub fn state(&self) -> StudyState {
        match self.state.load(Ordering::Acquire) {
            state if state == StudyState::Draft as u8 => StudyState::Draft,
            state if state == StudyState::Open as u8 => StudyState::Open,
            _ => StudyState::Closed,
        }
    }

    /// Distinct reports durably accepted, as of the last commit.
    pub fn reports_accepted(&self) -> u64 {
        self.reports_accepted.load(Ordering::Acquire)
    }

    /// The study in a list.
    pub(crate) fn summary(&self) -> StudySummary {
        StudySummary {
            state: self.state(),
            reports_accepted: self.reports_accepted(),
            ..StudySummary::from(&self.document)
        }
    }

    /// The study as anybody may see it.
    pub fn document(&self) -> StudyDocument {
        StudyDocument {
            state: self.state(),
            reports_accepted: self.reports_accepted(),
            ..self.document.clone()
        }
    }

    /// Called by the writer after a commit, with what was committed.
    pub(super) fn publish_state(&self, state: StudyState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Called by the writer after a commit, with what was committed.
    pub(super) fn publish_count(&self, reports_accepted: u64) {
        self.reports_accepted
            .store(reports_accepted, Ordering::Release);
    }
}

/// A study that has been checked but not stored.
pub(super) struct NewStudy {
    pub(super) name: String,
    pub(super) params: StudyParams,
    pub(super) default_k: Rank,
    pub(super) state: StudyState,
    pub(super) buckets: u32,
    pub(super) enrolment: Enrolment,
    pub(super) about: About,
}

impl NewStudy {
    /// Checks and freezes what an operator asked for now.
    pub(super) fn from_request(
        request: CreateStudy,
        sum_cache_bytes: u64,
        now_ms: u64,
    ) -> Result<Self> {
        check_name("the name of the study", &request.name)?;
        check_about(&request.about, now_ms)?;
        let params = frozen(&request)?;
        check_rank(request.default_k, params.dimension())?;
        Ok(Self {
            name: request.name,
            buckets: buckets_within(sum_cache_bytes, &params),
            params,
            default_k: request.default_k,
            state: if request.draft {
                StudyState::Draft
            } else {
                StudyState::Open
            },
            enrolment: request.enrolment,
            about: request.about,
        })
    }
}

/// Refuses what cannot be shown to the people who are asked, and a last day that is over.
pub(crate) fn check_about(about: &About, now_ms: u64) -> Result<()> {
    about.check()?;
    match about.last_day {
        Some(day) if day.is_over(now_ms) => Err(Error::new(
            ErrorCode::InvalidAbout,
            format!(
                "the last day is {day} (UTC), which is over: nobody could take part; give a day that is still to come"
            ),
        )),
        _ => Ok(()),
    }
}

/// The parameters of a study that is asked for, with what is derived from them.
pub(crate) fn frozen(request: &CreateStudy) -> Result<StudyParams> {
    StudyParams::freeze(StudyDesign {
        features: request.features.clone(),
        norm: request.norm,
        centring: request.centring,
        calibration: request.calibration,
        ..StudyDesign::new(
            request.mechanism,
            request.dimension,
            request.mechanism.budget(request.epsilon, request.delta)?,
        )
    })
}

/// Refuses a number of components that rows of this dimension do not have.
pub(crate) fn check_rank(rank: Rank, dimension: usize) -> Result<()> {
    match rank {
        Rank::Fixed(k) if !(1..=dimension).contains(&k) => Err(Error::invalid_request(format!(
            "k is {k}; rows of dimension {dimension} have 1 to {dimension} components"
        ))),
        _ => Ok(()),
    }
}

pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    if name.len() <= MAX_NAME && is_readable(name) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidName,
        format!(
            "{what} has {} bytes; it needs 1 to {MAX_NAME} printable ones, not all of them blank",
            name.len()
        ),
    ))
}

/// How many bucket sums of these reports fit the memory budget: 1 to [`MAX_BUCKETS`]; for seeds always the most.
fn buckets_within(sum_cache_bytes: u64, params: &StudyParams) -> u32 {
    if params.mechanism().payload_form() == PayloadForm::Seed {
        // Nothing is added up before an estimate is asked for.
        return MAX_BUCKETS;
    }
    let bucket_bytes = (8 * packed_len(params.report_dimension())).max(1) as u64;
    let fit = sum_cache_bytes / bucket_bytes;
    u32::try_from(fit)
        .unwrap_or(MAX_BUCKETS)
        .clamp(1, MAX_BUCKETS)
}

/// The state with this name in the database.
pub(super) fn state_from(text: &str) -> Option<StudyState> {
    [StudyState::Draft, StudyState::Open, StudyState::Closed]
        .into_iter()
        .find(|state| state.as_str() == text)
}

/// All studies, oldest first. Only the writer changes it, after the commit.
#[derive(Debug, Default)]
pub(super) struct StudyIndex {
    studies: RwLock<Studies>,
}

#[derive(Debug, Default)]
struct Studies {
    ordered: Vec<Arc<Study>>,
    by_id: std::collections::HashMap<StudyId, Arc<Study>>,
}

impl StudyIndex {
    pub(super) fn add(&self, study: Arc<Study>) {
        let mut studies = self.studies.write().unwrap_or_else(PoisonError::into_inner);
        studies.by_id.insert(study.id, Arc::clone(&study));
        studies.ordered.push(study);
    }

    pub(super) fn remove(&self, id: StudyId) {
        let mut studies = self.studies.write().unwrap_or_else(PoisonError::into_inner);
        studies.by_id.remove(&id);
        studies.ordered.retain(|study| study.id != id);
    }

    pub(super) fn get(&self, id: StudyId) -> Option<Arc<Study>> {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        studies.by_id.get(&id).cloned()
    }

    pub(super) fn by_row(&self, row: i64) -> Option<Arc<Study>> {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        studies.ordered.iter().find(|s| s.pk == row).cloned()
    }

    /// The studies behind this row that `wanted` takes, oldest first: so many, and the row to go on behind.
    pub(super) fn page(
        &self,
        after: i64,
        limit: usize,
        wanted: impl Fn(&Study) -> bool,
    ) -> (Vec<Arc<Study>>, Option<i64>) {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        // Rows go up, and so does this list.
        let from = studies.ordered.partition_point(|study| study.pk <= after);
        let mut behind = studies.ordered[from..].iter().filter(|study| wanted(study));
        let page: Vec<_> = behind.by_ref().take(limit).cloned().collect();
        let next = behind.next().and(page.last()).map(|last| last.pk);
        (page, next)
    }

    pub(super) fn list(&self) -> Vec<Arc<Study>> {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        studies.ordered.clone()
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::mechanism::MechanismKind;

    use super::*;

    #[test]
    fn identifiers_are_32_digits() {
        let id = StudyId([0xab; 16]);
        assert_eq!(StudyId::parse(&id.to_string()), Some(id));
        assert_eq!(StudyId::parse(&id.to_string().to_uppercase()), Some(id));
        for bad in ["", "ab", &"ab".repeat(17), &"g".repeat(32)] {
            assert_eq!(StudyId::parse(bad), None);
        }
    }

    #[test]
    fn buckets_shrink_with_the_budget() {
        let params = |mechanism: MechanismKind, dimension, centring| {
            let budget = mechanism.budget(1.0, None).unwrap();
            StudyParams::freeze(StudyDesign {
                centring,
                ..StudyDesign::new(mechanism, dimension, budget)
            })
            .unwrap()
        };
        let dense = |p| params(MechanismKind::SymmetricGaussian, p, None);
        assert_eq!(buckets_within(1 << 30, &dense(100)), 32);
        assert_eq!(buckets_within(1 << 30, &dense(4_096)), 15);
        assert_eq!(buckets_within(0, &dense(4_096)), 1);
        assert_eq!(buckets_within(u64::MAX, &dense(2)), 32);
        // With private centring a report has one dimension more than the row.
        let centred = params(MechanismKind::SymmetricGaussian, 3, Some(0.5));
        assert_eq!(buckets_within(8 * 10 * 5, &centred), 5);
        // Seeds cost nothing until they are added up.
        let seeds = params(MechanismKind::DoubleCap, 65_536, None);
        assert_eq!(buckets_within(0, &seeds), 32);
    }
}
