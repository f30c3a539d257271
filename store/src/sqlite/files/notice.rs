//! Counts of acknowledged reports that a server leaves for the next start when it stops because its files were
//! replaced. An older copy of the files may be consistent in itself, so that nothing else tells that reports are
//! missing.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension};

use super::directory::NOTICE;
use crate::contract::{
    failure::{Failure, unavailable},
    study::StudyIndex,
};

/// The file in a data directory.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(NOTICE)
}

/// The last line, without which the rest may be missing.
const END: &str = "end\n";

/// Durably writes the number of acknowledged reports of each study.
pub(crate) fn write_notice(directory: &Path, studies: &StudyIndex) -> io::Result<()> {
    let mut file = File::create(path(directory))?;
    for study in studies.list() {
        writeln!(file, "{} {}", study.id(), study.reports_accepted())?;
    }
    file.write_all(END.as_bytes())?;
    file.sync_all()
}

/// Fails if the last server acknowledged reports that are missing; without a notice nothing is known to be.
pub(crate) fn settle(connection: &Connection, directory: &Path) -> Result<(), Failure> {
    let path = path(directory);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::file(error)),
    };
    let refuse = |lacks: &str| -> Result<(), Failure> {
        Err(unavailable(format!(
            "the database was replaced while a server ran, and {lacks}. Devices do not send acknowledged reports again: put the right files back and start again. \
             If you have none, or go on from a backup, remove {}: that accepts the loss",
            path.display()
        ))
        .into())
    };
    if !text.ends_with(END) {
        return refuse("how many reports it had acknowledged could not be written down");
    }
    // What was deleted is not missing.
    let mut count = connection.prepare(
        "SELECT NULL FROM deleted_studies WHERE lower(hex(id)) = ?1
         UNION ALL SELECT reports_accepted FROM studies WHERE lower(hex(id)) = ?1",
    )?;
    for (study, acknowledged) in text.lines().filter_map(|line| line.split_once(' ')) {
        let found = count.query_row([study], |row| row.get(0)).optional()?;
        let found: Option<u64> = found.unwrap_or(Some(0));
        let acknowledged = acknowledged.parse().unwrap_or(u64::MAX);
        if let Some(found) = found.filter(|found| *found < acknowledged) {
            return refuse(&format!(
                "what is there now lacks acknowledged reports: study {study} has {found} of {acknowledged} reports"
            ));
        }
    }
    fs::remove_file(&path).map_err(Failure::file)
}
