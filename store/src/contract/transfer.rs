//! An export as it is handed to an engine.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
    sync::Arc,
};

use eigenveil_estimation::check_site_report;
use eigenveil_shared::{Result, api::ImportOutcome, parameters::Parameters};

use super::{
    archive::{self, ArchiveItem, Header, is_of_seeds},
    failure::Failure,
    study::{NewStudy, Study, StudyFormat, StudyId},
    sums::{answer_counts, decode_sum},
};

/// An export that was read to its end and verified.
pub struct VerifiedExport {
    pub(crate) file: File,
    pub(crate) header: Header,
    pub(crate) id: StudyId,
    pub(crate) design: NewStudy,
    pub(crate) sha256: [u8; 32],
}

impl VerifiedExport {
    /// Reads and verifies an export. Blocks.
    pub fn read(file: File) -> Result<Self> {
        Self::checked(file).map_err(Failure::into_error)
    }

    fn checked(file: File) -> Result<Self, Failure> {
        let file = rewind(file)?;
        let (header, reader) = archive::read_header(&file)?;
        let (id, design) = header.study(reader.unit)?;
        let format = StudyFormat::new(&design.params);
        // The check that every uploaded report gets.
        let sha256 = reader.read_items(&header, &design.params, |item| match item {
            ArchiveItem::Identifier(_) => Ok(()),
            ArchiveItem::Section { n, bytes, .. } => check_sum(&design.params, n, &bytes),
            ArchiveItem::Report { payload, .. } => check_report(&format, &design.params, &payload),
        })?;
        Ok(Self {
            file,
            header,
            id,
            design,
            sha256,
        })
    }
}

fn check_sum(params: &Parameters, n: u64, bytes: &[u8]) -> Result<(), Failure> {
    if is_of_seeds(params) {
        return Ok(());
    }
    let p = params.sum_dimension();
    let sums = decode_sum(p, n, bytes).map_err(|_| archive::malformed("a sum"))?;
    match params {
        Parameters::Rows(params) => {
            if let Some(bound) = params.mechanism().norm_bound(p) {
                bound.check_sum(sums.sum().as_slice(), n)?;
            }
        }
        Parameters::Preparation(params) => {
            if answer_counts(params, &sums).is_none() {
                return Err(archive::malformed("the counts of answers").into());
            }
        }
        Parameters::Sites(_) => return Err(archive::malformed("a section").into()),
    }
    Ok(())
}

/// The token of a report stays behind, so that its rows are as many as the study allows.
fn check_report(format: &StudyFormat, params: &Parameters, payload: &[u8]) -> Result<(), Failure> {
    let (StudyFormat::Sites(format), Parameters::Sites(params)) = (format, params) else {
        return Err(archive::malformed("a report").into());
    };
    let table = params.mechanism().decode(&format.payload(payload)?);
    Ok(check_site_report(params, &table, params.terms().max_rows)?)
}

/// The outcome of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The study that has the reports now.
    pub study: Arc<Study>,
    /// The outcome.
    pub outcome: ImportOutcome,
    /// Number of reports added.
    pub reports: u64,
}

pub(crate) fn rewind(mut file: File) -> Result<File, Failure> {
    file.seek(SeekFrom::Start(0)).map_err(Failure::file)?;
    Ok(file)
}
