//! A book as records of any key-value store.

use std::collections::BTreeSet;

use eigenveil_shared::{
    about::{StudyNotice, UtcDate},
    enrolment::ParticipantToken,
    privacy::Budget,
    report::ReportId,
    study::{Fingerprint, from_hex, to_hex},
};
use serde::{Deserialize, Serialize};

use super::entry::{Entry, EntryState};
use crate::{
    error::{Error, Result},
    rules::{Limits, StudyTerms},
};

/// The record that has limits, layout and revision.
const HEAD: &str = "head";
/// Prefix of the keys of entries.
const ENTRY: &str = "entry/";
/// 2: reports may be given up, and features are described.
const VERSION: u32 = 2;

/// A random number that identifies one write to a store.
pub type Revision = [u8; 16];

/// A write to a store: atomic, durable, and only if the store's revision is `expected_revision`. Afterwards the
/// revision, which is also in the record `head`, is `new_revision`.
pub struct Write {
    /// `None`: only if there is no record yet.
    pub expected_revision: Option<Revision>,
    /// The revision afterwards.
    pub new_revision: Revision,
    /// Records to put, replacing any with the same keys.
    pub put: Vec<(String, Vec<u8>)>,
    /// Records to delete.
    pub delete: Vec<String>,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    revision: String,
    limits: Limits,
    entries: usize,
}

#[derive(Serialize, Deserialize)]
struct Record {
    number: u64,
    servers: Vec<String>,
    study: String,
    fingerprint: String,
    payload_len: usize,
    mechanism: String,
    dimension: u64,
    neighbours: String,
    sentence: String,
    charge: Budget,
    day: u64,
    report: String,
    state: EntryState,
    token: Option<String>,
    name: Option<String>,
    about: StudyNotice,
    canonical_params: String,
}

/// Shows the keys only: records hold reports and tokens.
impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let put: Vec<&str> = self.put.iter().map(|(key, _)| key.as_str()).collect();
        write!(f, "Write(put {put:?}, delete {:?})", self.delete)
    }
}

impl Write {
    /// A write of these entries in their current state, and of the payload of the first one if it is new.
    pub(super) fn new(
        expected_revision: Option<Revision>,
        new_revision: Revision,
        (limits, count): (Limits, usize),
        entries: &[Entry],
        payload: Option<&Vec<u8>>,
    ) -> Result<Self> {
        let to_record = |record: serde_json::Result<Vec<u8>>| {
            record.map_err(|error| Error::usage(format!("a record cannot be written: {error}")))
        };
        let head = Head {
            version: VERSION,
            revision: to_hex(&new_revision),
            limits,
            entries: count,
        };
        let mut put = vec![(HEAD.to_owned(), to_record(serde_json::to_vec(&head))?)];
        let mut delete = Vec::new();
        for entry in entries {
            let record = to_record(serde_json::to_vec(&Record::new(entry)))?;
            put.push((format!("{ENTRY}{}", entry.number), record));
            if !entry.state.can_be_sent() {
                delete.push(entry.payload_key());
            }
        }
        if let (Some(payload), Some(entry)) = (payload, entries.first()) {
            put.push((entry.payload_key(), payload.clone()));
        }
        Ok(Self {
            expected_revision,
            new_revision,
            put,
            delete,
        })
    }
}

/// Reads the records of a store; the payload records may be omitted.
pub(super) fn read(
    records: impl IntoIterator<Item = (String, Vec<u8>)>,
    damaged: impl Fn(&str) -> Error,
) -> Result<(Revision, Limits, Vec<Entry>)> {
    let records: Vec<(String, Vec<u8>)> = records.into_iter().collect();
    let head = records.iter().find(|(key, _)| key == HEAD);
    let (_, head) = head.ok_or_else(|| damaged("it has no record head"))?;
    // First of all: a later version writes what this one cannot read.
    if let Ok(Version { version }) = serde_json::from_slice(head)
        && version > VERSION
    {
        return Err(Error::usage(format!(
            "the store was written by a later Eigenveil (version {version} of its records, this program knows {VERSION}); update it"
        )));
    }
    let head: Head = serde_json::from_slice(head).map_err(|_| damaged("record head"))?;
    let mut entries = Vec::new();
    for (key, value) in &records {
        if key.starts_with(ENTRY) {
            let entry = serde_json::from_slice::<Record>(value).ok();
            let entry = entry.and_then(Record::entry);
            entries.push(entry.ok_or_else(|| damaged(&format!("record {key}")))?);
        }
    }
    entries.sort_by_key(|entry| entry.number);
    let numbered = (1..)
        .zip(&entries)
        .all(|(number, entry)| entry.number == number);
    if !numbered || entries.len() != head.entries {
        return Err(damaged("an entry is missing"));
    }
    let studies: BTreeSet<&str> = entries.iter().map(|entry| entry.study.as_str()).collect();
    if studies.len() != entries.len() {
        return Err(damaged("two entries are of one study"));
    }
    let revision = array_from_hex(&head.revision).ok_or_else(|| damaged("its head"))?;
    Ok((revision, head.limits, entries))
}

fn array_from_hex<const N: usize>(hex: &str) -> Option<[u8; N]> {
    from_hex(hex)?.try_into().ok()
}

impl Record {
    fn new(entry: &Entry) -> Self {
        Self {
            number: entry.number,
            servers: entry.servers.iter().map(ToString::to_string).collect(),
            study: entry.study.clone(),
            fingerprint: entry.fingerprint.to_string(),
            payload_len: entry.payload_len,
            mechanism: entry.mechanism.clone(),
            dimension: entry.dimension,
            neighbours: entry.neighbours.clone(),
            sentence: entry.sentence.clone(),
            charge: entry.charge,
            day: entry.day.0,
            report: entry.report.to_string(),
            state: entry.state.clone(),
            token: entry.token.as_ref().map(ParticipantToken::reveal),
            name: entry.terms.name.clone(),
            about: entry.terms.about.clone(),
            canonical_params: to_hex(&entry.canonical_params),
        }
    }

    fn entry(self) -> Option<Entry> {
        let servers = self.servers.iter().map(|server| server.parse().ok());
        let servers: Vec<_> = servers.collect::<Option<_>>()?;
        let token = match self.token {
            Some(token) => Some(ParticipantToken::parse(&token).ok()?),
            None => None,
        };
        let canonical_params = from_hex(&self.canonical_params)?;
        (!servers.is_empty()).then_some(Entry {
            number: self.number,
            servers,
            study: self.study,
            fingerprint: Fingerprint(array_from_hex(&self.fingerprint)?),
            payload_len: self.payload_len,
            mechanism: self.mechanism,
            dimension: self.dimension,
            neighbours: self.neighbours,
            sentence: self.sentence,
            charge: self.charge,
            day: UtcDate(self.day),
            report: ReportId(array_from_hex(&self.report)?),
            state: self.state,
            token,
            terms: StudyTerms::new(self.name, self.about, &canonical_params),
            canonical_params,
        })
    }
}
