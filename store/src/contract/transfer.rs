//! An export as it is handed to an engine.

use std::{
    fs::File,
    io::{Seek, SeekFrom},
    sync::Arc,
};

use eigenveil_shared::{Result, api::ImportOutcome, mechanism::PayloadKind};

use super::{
    archive::{self, ArchiveItem, Header},
    failure::Failure,
    study::{NewStudy, Study, StudyId},
    sums::decode_sum,
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
        let (id, design) = header.study()?;
        let p = design.params.report_dimension();
        let form = design.params.mechanism().payload_kind();
        let bound = design.params.mechanism().norm_bound(p);
        let sha256 = reader.read_items(&header, &design.params, |item| match item {
            ArchiveItem::Section { n, bytes, .. } if form != PayloadKind::Seed => {
                let sums = decode_sum(p, n, &bytes).map_err(|_| archive::malformed("a sum"))?;
                // The check that every uploaded report gets.
                if let Some(bound) = &bound {
                    bound.check_sum(sums.sum().as_slice(), n)?;
                }
                Ok(())
            }
            _ => Ok(()),
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
