//! A study in the server: frozen parameters, and the state that changes.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use eigenveil_shared::{
    Error, Result,
    about::{FeatureNotice, StudyNotice, is_readable},
    api::{CreateStudyRequest, StudyDocument, StudyState, StudySummary},
    codec::{self, ReportFormat, SiteReportFormat},
    enrolment::Enrolment,
    error,
    estimate::ComponentCount,
    mechanism::PayloadKind,
    packed::packed_len,
    parameters::{Parameters, StudyUnit},
    privacy::PrivacyStatement,
    study::{Fingerprint, from_hex, to_hex},
};

use super::{
    failure::Failure,
    listener::{Listener, Notice},
    study_json::StudyJson,
};
use crate::config::StoreConfig;

/// Maximum number of buckets of a study.
pub const MAX_BUCKETS: u32 = 32;
/// Maximum length of the name of a study, or of a site.
pub(crate) const MAX_NAME_BYTES: usize = 200;

/// Identifier of a study: 16 random bytes, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StudyId(pub [u8; 16]);

impl StudyId {
    /// Parses 32 hexadecimal digits.
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

/// An engine's key of a study, which no other study ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StudyKey(pub i64);

/// The format of a study's reports.
#[derive(Clone, Debug)]
pub(crate) enum StudyFormat {
    Rows(ReportFormat),
    Sites(SiteReportFormat),
}

impl StudyFormat {
    pub(crate) fn new(params: &Parameters) -> Self {
        match params {
            Parameters::Rows(params) => Self::Rows(ReportFormat::new(params)),
            Parameters::Sites(params) => Self::Sites(SiteReportFormat::new(params)),
            Parameters::Preparation(params) => Self::Rows(ReportFormat::of_preparation(params)),
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::Rows(format) => format.fingerprint(),
            Self::Sites(format) => format.fingerprint(),
        }
    }

    fn payload_len(&self) -> usize {
        match self {
            Self::Rows(format) => format.payload_len(),
            Self::Sites(format) => format.payload_len(),
        }
    }
}

/// A study: its frozen parameters, and state and count as of its last commit.
#[derive(Debug)]
pub struct Study {
    pub(crate) key: StudyKey,
    id: StudyId,
    format: StudyFormat,
    buckets: u32,
    /// The public document; state and count are filled in when it is requested.
    document: StudyDocument,
    document_json: OnceLock<StudyJson>,
    summary_json: OnceLock<StudyJson>,
    state: AtomicU8,
    reports_accepted: AtomicU64,
}

impl Study {
    pub(crate) fn new(key: StudyKey, id: StudyId, design: NewStudy, created_at_ms: u64) -> Self {
        let NewStudy {
            name,
            params,
            default_k,
            state,
            buckets,
            enrolment,
            about,
        } = design;
        let format = StudyFormat::new(&params);
        let (payload_len, fingerprint) = (format.payload_len(), format.fingerprint());
        Self {
            key,
            id,
            format,
            buckets,
            document: StudyDocument {
                id: id.to_string(),
                name,
                state,
                fingerprint: fingerprint.to_string(),
                canonical_params: to_hex(&params.canonical_bytes()),
                privacy: params.privacy(),
                reports_accepted: 0,
                default_k,
                report_bytes: codec::report_len(payload_len),
                max_batch_reports: match params.unit() {
                    StudyUnit::Row => codec::max_batch(payload_len),
                    StudyUnit::Site => 1,
                },
                params,
                created_at_ms,
                enrolment,
                about,
            },
            document_json: OnceLock::new(),
            summary_json: OnceLock::new(),
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
    pub fn params(&self) -> &Parameters {
        &self.document.params
    }

    pub(crate) fn format(&self) -> &StudyFormat {
        &self.format
    }

    /// The fingerprint of its parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.format.fingerprint()
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        self.format.payload_len()
    }

    /// Whether its reports are seeds, which are kept as they are.
    pub fn has_seeds(&self) -> bool {
        matches!(&self.format, StudyFormat::Rows(format) if format.payload_kind() == Some(PayloadKind::Seed))
    }

    /// Whether its reports are tables of sites, which are kept apart.
    pub fn has_sites(&self) -> bool {
        matches!(self.format, StudyFormat::Sites(_))
    }

    /// How many reports it takes at most: those of sites are kept apart, up to `max_site_bytes`.
    pub(crate) fn max_reports(&self, config: &StoreConfig) -> u64 {
        match self.has_sites() {
            false => u64::MAX,
            true => config.max_site_bytes / self.payload_len() as u64,
        }
    }

    /// Number of components of an estimate that does not specify it.
    pub fn default_k(&self) -> ComponentCount {
        self.document.default_k
    }

    /// Number of buckets its commits are spread over.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// The privacy promise to each participant.
    pub fn privacy(&self) -> &PrivacyStatement {
        &self.document.privacy
    }

    /// Creation time, in milliseconds since 1970-01-01 UTC.
    pub fn created_at_ms(&self) -> u64 {
        self.document.created_at_ms
    }

    /// Who may take part.
    pub fn enrolment(&self) -> Enrolment {
        self.document.enrolment
    }

    /// The notice to the people it invites.
    pub fn about(&self) -> &StudyNotice {
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

    /// Distinct reports accepted, as of the last commit.
    pub fn reports_accepted(&self) -> u64 {
        self.reports_accepted.load(Ordering::Acquire)
    }

    /// The entry in the list of studies ([`StudySummary`]), as JSON in parts.
    pub fn summary_json(&self) -> [Bytes; 5] {
        self.summary_json
            .get_or_init(|| {
                StudyJson::new(&StudySummary {
                    state: StudyState::Draft,
                    reports_accepted: 0,
                    ..StudySummary::from(&self.document)
                })
            })
            .with(self.state(), self.reports_accepted())
    }

    /// The public document, as JSON in parts.
    pub fn document_json(&self) -> [Bytes; 5] {
        self.document_json
            .get_or_init(|| {
                StudyJson::new(&StudyDocument {
                    state: StudyState::Draft,
                    reports_accepted: 0,
                    ..self.document.clone()
                })
            })
            .with(self.state(), self.reports_accepted())
    }

    /// The public document.
    pub fn document(&self) -> StudyDocument {
        StudyDocument {
            state: self.state(),
            reports_accepted: self.reports_accepted(),
            ..self.document.clone()
        }
    }

    /// Called by the engine after a commit, with what was committed.
    pub(crate) fn publish_count(&self, reports_accepted: u64) {
        self.reports_accepted
            .store(reports_accepted, Ordering::Release);
    }

    /// Publishes the count of one of several commits whose order is unknown: it never goes back.
    #[cfg(feature = "postgres")]
    pub(crate) fn publish_count_unordered(&self, reports_accepted: u64) {
        self.reports_accepted
            .fetch_max(reports_accepted, Ordering::AcqRel);
    }
}

/// Meanings of a study's features, as an engine stores them: JSON.
pub(crate) fn features_to_text(about: &StudyNotice) -> Result<Option<String>, Failure> {
    let text = about.features.as_ref().map(serde_json::to_string);
    text.transpose().map_err(Failure::damaged)
}

/// Meanings of the features of the study with this identifier, from its stored text.
pub(crate) fn features_from_text(
    text: Option<String>,
    id: StudyId,
) -> Result<Option<Vec<FeatureNotice>>, Failure> {
    let features = text.map(|text| serde_json::from_str(&text)).transpose();
    features.map_err(|_| Failure::damaged(format!("study {id} has unreadable notices of features")))
}

/// A study that was checked but not stored.
pub(crate) struct NewStudy {
    pub(crate) name: String,
    pub(crate) params: Parameters,
    pub(crate) default_k: ComponentCount,
    pub(crate) state: StudyState,
    pub(crate) buckets: u32,
    pub(crate) enrolment: Enrolment,
    pub(crate) about: StudyNotice,
}

impl NewStudy {
    pub(crate) fn from_request(
        request: CreateStudyRequest,
        config: &StoreConfig,
        now_ms: u64,
    ) -> Result<Self> {
        check_name("the name of the study", &request.name)?;
        check_about(&request.about, now_ms)?;
        let params = request.params()?;
        check_component_count(request.default_k, params.dimension())?;
        check_features(&request.about, &params)?;
        check_enrolment(params.unit(), request.enrolment)?;
        check_site_bytes(&params, config.max_site_bytes)?;
        Ok(Self {
            name: request.name,
            buckets: buckets_within(config.sum_cache_bytes, &params),
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

/// The error for an identifier that no study has.
pub fn study_not_found(id: StudyId) -> Error {
    error!(
        StudyNotFound,
        "there is no study {id}; GET /v1/studies lists them"
    )
}

/// The error for text that is not a study identifier.
pub fn invalid_study_id() -> Error {
    error!(
        StudyNotFound,
        "this is not a study identifier, which has 32 hexadecimal digits; GET /v1/studies lists the studies"
    )
}

/// Rejects notices of features that are not one for each named feature.
pub(crate) fn check_features(about: &StudyNotice, params: &Parameters) -> Result<()> {
    about.check_features(params.named_features())
}

/// Rejects text that cannot be shown to participants, and a last day in the past.
pub fn check_about(about: &StudyNotice, now_ms: u64) -> Result<()> {
    about.check()?;
    match about.last_day {
        Some(day) if day.is_over(now_ms) => Err(error!(
            InvalidNotice,
            "the last day is {day} (UTC), which is in the past, so nobody could take part; give a later day"
        )),
        _ => Ok(()),
    }
}

/// Rejects a number of components that rows of this dimension cannot have.
pub fn check_component_count(count: ComponentCount, dimension: usize) -> Result<()> {
    match count {
        ComponentCount::Fixed(k) if !(1..=dimension).contains(&k) => Err(Error::invalid_request(
            format!("k is {k}; rows of dimension {dimension} have 1 to {dimension} components"),
        )
        .with_field("k")),
        _ => Ok(()),
    }
}

/// Rejects a study of sites that anybody could send tables to, in any number and under any name.
pub fn check_enrolment(unit: StudyUnit, enrolment: Enrolment) -> Result<()> {
    match (unit, enrolment) {
        (StudyUnit::Site, Enrolment::Open) => Err(Error::invalid_request(
            "`enrolment` is open, but a study of sites counts one report a token, which has the site's name; give `enrolment` token",
        )
        .with_field("enrolment")),
        _ => Ok(()),
    }
}

/// Rejects a study of sites that could keep no report.
fn check_site_bytes(params: &Parameters, max_site_bytes: u64) -> Result<()> {
    let bytes = params.payload_len() as u64;
    if params.unit() == StudyUnit::Row || bytes <= max_site_bytes {
        return Ok(());
    }
    Err(error!(
        InvalidDimension,
        "a site's report of dimension {} has {bytes} bytes, and this server keeps at most {max_site_bytes} (max_site_bytes) of one study; use fewer features, or raise that",
        params.sum_dimension()
    ))
}

/// Rejects a name that is empty, too long or not readable; `subject` names the object in the message.
pub fn check_name(subject: &str, name: &str) -> Result<()> {
    if name.len() <= MAX_NAME_BYTES && is_readable(name) {
        return Ok(());
    }
    Err(error!(
        InvalidName,
        "{subject} has {} bytes; it must have 1 to {MAX_NAME_BYTES} bytes of printable text, not only blanks",
        name.len()
    ))
}

/// Number of buckets whose sums fit into the cache: 1 to [`MAX_BUCKETS`]; always the maximum for seeds, and one for the
/// reports of sites, which are not added up.
fn buckets_within(sum_cache_bytes: u64, params: &Parameters) -> u32 {
    match params {
        Parameters::Sites(_) => return 1,
        // Nothing is added up before an estimate is requested.
        Parameters::Rows(params) if params.mechanism().payload_kind() == PayloadKind::Seed => {
            return MAX_BUCKETS;
        }
        Parameters::Rows(_) | Parameters::Preparation(_) => {}
    }
    let bucket_bytes = (8 * packed_len(params.sum_dimension())).max(1) as u64;
    let fit = sum_cache_bytes / bucket_bytes;
    u32::try_from(fit)
        .unwrap_or(MAX_BUCKETS)
        .clamp(1, MAX_BUCKETS)
}

/// The state with this name in the database.
pub(crate) fn state_from(text: &str) -> Result<StudyState, Failure> {
    StudyState::ALL
        .into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| Failure::damaged("a study has an unknown state"))
}

/// All studies, oldest first. Only the engine changes it, after a commit, and listeners are notified of each change.
pub(crate) struct StudyIndex {
    studies: RwLock<Studies>,
    listener: Listener,
}

#[derive(Debug, Default)]
struct Studies {
    ordered: Vec<Arc<Study>>,
    by_id: std::collections::HashMap<StudyId, Arc<Study>>,
}

impl StudyIndex {
    pub(crate) fn new(listener: Listener) -> Self {
        Self {
            studies: RwLock::default(),
            listener,
        }
    }

    pub(crate) fn add(&self, study: Arc<Study>) {
        self.change(|studies| {
            studies.by_id.insert(study.id, Arc::clone(&study));
            let at = studies
                .ordered
                .partition_point(|other| other.key < study.key);
            studies.ordered.insert(at, study);
        });
    }

    pub(crate) fn remove(&self, id: StudyId) {
        self.change(|studies| {
            studies.by_id.remove(&id);
            studies.ordered.retain(|study| study.id != id);
        });
    }

    pub(crate) fn publish_state(&self, study: &Study, state: StudyState) {
        if study.state.swap(state as u8, Ordering::AcqRel) != state as u8 {
            self.listener.notify(Notice::StudiesChanged);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Studies)) {
        change(&mut self.studies.write().unwrap_or_else(PoisonError::into_inner));
        self.listener.notify(Notice::StudiesChanged);
    }

    pub(crate) fn get(&self, id: StudyId) -> Option<Arc<Study>> {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        studies.by_id.get(&id).cloned()
    }

    pub(crate) fn by_key(&self, key: StudyKey) -> Option<Arc<Study>> {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        studies.ordered.iter().find(|s| s.key == key).cloned()
    }

    /// The studies after this key that `wanted` accepts, oldest first: at most `limit`, and the key to continue from.
    pub(crate) fn page(
        &self,
        after: i64,
        limit: usize,
        wanted: impl Fn(&Study) -> bool,
    ) -> (Vec<Arc<Study>>, Option<i64>) {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        // Keys increase, and so does this list.
        let from = studies
            .ordered
            .partition_point(|study| study.key.0 <= after);
        let mut later = studies.ordered[from..].iter().filter(|study| wanted(study));
        let page: Vec<_> = later.by_ref().take(limit).cloned().collect();
        let next = later.next().and(page.last()).map(|last| last.key.0);
        (page, next)
    }

    pub(crate) fn list(&self) -> Vec<Arc<Study>> {
        let studies = self.studies.read().unwrap_or_else(PoisonError::into_inner);
        studies.ordered.clone()
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        mechanism::MechanismKind,
        study::{StudyDesign, StudyParams},
    };

    use super::*;

    #[test]
    fn study_identifiers_are_32_digits() {
        let id = StudyId([0xab; 16]);
        assert_eq!(StudyId::parse(&id.to_string()), Some(id));
        assert_eq!(StudyId::parse(&id.to_string().to_uppercase()), Some(id));
        for bad in ["", "ab", &"ab".repeat(17), &"g".repeat(32)] {
            assert_eq!(StudyId::parse(bad), None);
        }
    }

    #[test]
    fn buckets_shrink_with_the_cache() {
        let params = |mechanism: MechanismKind, dimension, centring| {
            let budget = mechanism.budget(1.0, None).unwrap();
            let params = StudyParams::freeze(StudyDesign {
                centring,
                ..StudyDesign::new(mechanism, dimension, budget)
            });
            Parameters::from(params.unwrap())
        };
        let dense = |p| params(MechanismKind::SymmetricGaussian, p, None);
        assert_eq!(buckets_within(1 << 30, &dense(100)), 32);
        assert_eq!(buckets_within(1 << 30, &dense(4_096)), 15);
        assert_eq!(buckets_within(0, &dense(4_096)), 1);
        assert_eq!(buckets_within(u64::MAX, &dense(2)), 32);
        // With private centring a report has one dimension more than a row.
        let centred = params(MechanismKind::SymmetricGaussian, 3, Some(0.5));
        assert_eq!(buckets_within(8 * 10 * 5, &centred), 5);
        // Seeds take no memory until they are added up.
        let seeds = params(MechanismKind::DoubleCap, 65_536, None);
        assert_eq!(buckets_within(0, &seeds), 32);
    }
}
