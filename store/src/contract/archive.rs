//! The export of a study as bytes (`docs/protocol.md`, "The export of a study").
//!
//! A header, the identifiers in ascending order, one section for each bucket with reports, or the reports of sites, and
//! a SHA-256 of it all. Written and read as a stream: never more than one bucket or report is in memory.

use std::io::{BufReader, BufWriter, Read, Write};

use eigenveil_shared::{
    Error,
    about::StudyNotice,
    api::StudyState,
    enrolment::Enrolment,
    error,
    estimate::ComponentCount,
    mechanism::{PayloadKind, double_cap::SEED_LEN},
    packed::packed_len,
    parameters::{Parameters, StudyUnit},
    report::ReportId,
    study::{from_hex, to_hex},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    failure::Failure,
    study::{
        MAX_BUCKETS, MAX_NAME_BYTES, NewStudy, Study, StudyId, check_component_count,
        check_enrolment, check_features, check_name,
    },
};

/// First bytes of an export; the last digit is the version of the format: 2 of a study of sites.
const fn magic(unit: StudyUnit) -> &'static [u8; 8] {
    match unit {
        StudyUnit::Row => b"EVSTUDY1",
        StudyUnit::Site => b"EVSTUDY2",
    }
}
/// Largest header: canonical parameters of 65,536 named features, in hexadecimal.
const MAX_HEADER: u64 = 65 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: StudyState,
    pub(crate) canonical: String,
    pub(crate) default_k: ComponentCount,
    pub(crate) buckets: u32,
    pub(crate) created_at_ms: u64,
    pub(crate) reports: u64,
    /// Buckets with reports; 0 of a study of sites.
    pub(crate) sections: u32,
    /// Who may take part. Participant tokens are not exported: one known to two servers could be spent on both.
    #[serde(default, skip_serializing_if = "is_open")]
    pub(crate) enrolment: Enrolment,
    #[serde(default, skip_serializing_if = "StudyNotice::is_empty")]
    pub(crate) about: StudyNotice,
}

fn is_open(enrolment: &Enrolment) -> bool {
    *enrolment == Enrolment::Open
}

impl Header {
    /// The header of an export of this study in this state, with this many reports in this many buckets.
    pub(crate) fn of(study: &Study, state: StudyState, reports: u64, sections: usize) -> Self {
        let document = study.document();
        Self {
            id: document.id,
            name: document.name,
            state,
            canonical: to_hex(&study.params().canonical_bytes()),
            default_k: study.default_k(),
            buckets: study.buckets(),
            created_at_ms: document.created_at_ms,
            reports,
            sections: sections as u32,
            enrolment: study.enrolment(),
            about: document.about,
        }
    }

    pub(crate) fn study(&self, unit: StudyUnit) -> Result<(StudyId, NewStudy), Failure> {
        let id = StudyId::parse(&self.id).ok_or_else(|| malformed("the study's identifier"))?;
        let canonical =
            from_hex(&self.canonical).ok_or_else(|| malformed("the canonical parameters"))?;
        let params = Parameters::from_canonical(&canonical)?;
        if params.unit() != unit {
            return Err(malformed("the first eight bytes, which do not fit the parameters").into());
        }
        check_enrolment(unit, self.enrolment)?;
        check_name("the name of the study", &self.name)?;
        // The last day may have passed: the reports arrived before.
        self.about.check()?;
        check_features(&self.about, &params)?;
        check_component_count(self.default_k, params.dimension())?;
        let sections = match unit {
            StudyUnit::Row => self.buckets,
            StudyUnit::Site => 0,
        };
        if !(1..=MAX_BUCKETS).contains(&self.buckets) || self.sections > sections {
            return Err(malformed("the number of buckets").into());
        }
        if i64::try_from(self.created_at_ms).is_err() {
            return Err(malformed("the creation time of the study").into());
        }
        let design = NewStudy {
            name: self.name.clone(),
            params,
            default_k: self.default_k,
            state: self.state,
            buckets: self.buckets,
            enrolment: self.enrolment,
            about: self.about.clone(),
        };
        Ok((id, design))
    }
}

pub(crate) struct ArchiveWriter<W: Write> {
    out: BufWriter<W>,
    hash: Sha256,
}

impl<W: Write> ArchiveWriter<W> {
    pub(crate) fn new(out: W, unit: StudyUnit, header: &Header) -> Result<Self, Failure> {
        let mut writer = Self {
            out: BufWriter::with_capacity(1 << 16, out),
            hash: Sha256::new(),
        };
        let header = serde_json::to_vec(header).map_err(Failure::damaged)?;
        writer.put(magic(unit))?;
        writer.put(&(header.len() as u64).to_le_bytes())?;
        writer.put(&header)?;
        Ok(writer)
    }

    /// Begins the section of a bucket; its bytes follow.
    pub(crate) fn section(&mut self, bucket: u32, n: u64, length: u64) -> Result<(), Failure> {
        self.put(&bucket.to_le_bytes())?;
        self.put(&n.to_le_bytes())?;
        self.put(&length.to_le_bytes())
    }

    /// Appends the report of a site.
    pub(crate) fn report(&mut self, site: &str, payload: &[u8]) -> Result<(), Failure> {
        for part in [site.as_bytes(), payload] {
            self.put(&(part.len() as u64).to_le_bytes())?;
            self.put(part)?;
        }
        Ok(())
    }

    /// Appends an identifier, or bytes of the section.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.hash.update(bytes);
        self.out.write_all(bytes).map_err(Failure::file)
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let hash = self.hash.finalize();
        self.out.write_all(&hash).map_err(Failure::file)?;
        self.out.flush().map_err(Failure::file)
    }
}

pub(crate) enum ArchiveItem {
    Identifier([u8; 16]),
    /// The sum or the seeds of one bucket.
    Section {
        bucket: u32,
        n: u64,
        bytes: Vec<u8>,
    },
    /// A site's report, of the right length.
    Report {
        site: String,
        payload: Vec<u8>,
    },
}

/// Reads the header; the returned reader continues after it.
pub(crate) fn read_header<R: Read>(file: R) -> Result<(Header, ArchiveReader<R>), Failure> {
    let mut reader = ArchiveReader {
        input: BufReader::with_capacity(1 << 16, file),
        hash: Sha256::new(),
        unit: StudyUnit::Row,
    };
    let first: [u8; 8] = reader.read_array()?;
    reader.unit = StudyUnit::ALL
        .into_iter()
        .find(|unit| *magic(*unit) == first)
        .ok_or_else(|| {
            malformed("the first eight bytes, which should be EVSTUDY1, or EVSTUDY2 of sites")
        })?;
    let length = u64::from_le_bytes(reader.read_array()?);
    if length > MAX_HEADER {
        return Err(malformed("the length of the header").into());
    }
    let bytes = reader.run(length)?;
    let header = serde_json::from_slice(&bytes).map_err(|_| malformed("the header"))?;
    Ok((header, reader))
}

/// Whether the sections of a study's export hold seeds rather than sums.
pub(crate) fn is_of_seeds(params: &Parameters) -> bool {
    params
        .rows()
        .is_ok_and(|params| params.mechanism().payload_kind() == PayloadKind::Seed)
}

pub(crate) struct ArchiveReader<R: Read> {
    input: BufReader<R>,
    hash: Sha256,
    pub(crate) unit: StudyUnit,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads and checks everything after the header; returns the SHA-256. Each item is checked on its own.
    pub(crate) fn read_items(
        mut self,
        header: &Header,
        params: &Parameters,
        mut visit: impl FnMut(ArchiveItem) -> Result<(), Failure>,
    ) -> Result<[u8; 32], Failure> {
        let mut last = None;
        for _ in 0..header.reports {
            let id: [u8; 16] = self.read_array()?;
            if !ReportId(id).is_well_formed() || last >= Some(id) {
                return Err(malformed("an identifier, or the order of identifiers").into());
            }
            last = Some(id);
            visit(ArchiveItem::Identifier(id))?;
        }
        match params {
            Parameters::Rows(_) | Parameters::Preparation(_) => {
                self.read_sections(header, params, visit)?;
            }
            Parameters::Sites(params) => {
                for _ in 0..header.reports {
                    visit(self.read_report(params.mechanism().payload_len())?)?;
                }
            }
        }
        let computed: [u8; 32] = self.hash.clone().finalize().into();
        if self.read_array::<32>()? != computed {
            return Err(malformed("the SHA-256 at the end").into());
        }
        if self.input.read(&mut [0]).map_err(Failure::file)? != 0 {
            return Err(malformed("its length: there are bytes after the end").into());
        }
        Ok(computed)
    }

    fn read_sections(
        &mut self,
        header: &Header,
        params: &Parameters,
        mut visit: impl FnMut(ArchiveItem) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (mut before, mut reports) = (None, 0_u64);
        for _ in 0..header.sections {
            let bucket = u32::from_le_bytes(self.read_array()?);
            let n = u64::from_le_bytes(self.read_array()?);
            let length = u64::from_le_bytes(self.read_array()?);
            let expected = match is_of_seeds(params) {
                true => n.checked_mul(SEED_LEN as u64),
                false => Some(8 * packed_len(params.sum_dimension()) as u64),
            };
            if bucket >= header.buckets
                || before >= Some(bucket)
                || n == 0
                || expected != Some(length)
            {
                return Err(malformed("the head of a bucket").into());
            }
            before = Some(bucket);
            reports = reports.saturating_add(n);
            let bytes = self.run(length)?;
            visit(ArchiveItem::Section { bucket, n, bytes })?;
        }
        if reports != header.reports {
            return Err(malformed("the number of reports").into());
        }
        Ok(())
    }

    fn read_report(&mut self, payload_len: usize) -> Result<ArchiveItem, Failure> {
        let of_site = || malformed("the name of a site");
        let length = u64::from_le_bytes(self.read_array()?);
        if length > MAX_NAME_BYTES as u64 {
            return Err(of_site().into());
        }
        let site = String::from_utf8(self.run(length)?).map_err(|_| of_site())?;
        check_name("the name of a site", &site)?;
        let length = u64::from_le_bytes(self.read_array()?);
        if length != payload_len as u64 {
            return Err(malformed("the length of a report").into());
        }
        Ok(ArchiveItem::Report {
            site,
            payload: self.run(length)?,
        })
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(cut_short)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    /// Reads this many bytes. Allocates only for bytes that are there, whatever length is announced.
    fn run(&mut self, length: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut limited = Read::by_ref(&mut self.input).take(length);
        limited.read_to_end(&mut bytes).map_err(Failure::file)?;
        if bytes.len() as u64 != length {
            return Err(malformed("its length: it is cut short").into());
        }
        self.hash.update(&bytes);
        Ok(bytes)
    }
}

fn cut_short(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        malformed("its length: it is cut short").into()
    } else {
        Failure::file(error)
    }
}

/// The error for an invalid export; `what` says what is invalid in it.
pub(crate) fn malformed(what: &str) -> Error {
    error!(
        MalformedExport,
        "this is not a complete export of a study (invalid: {what}); nothing was imported: export the study again"
    )
}
