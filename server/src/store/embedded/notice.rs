//! Counts of acknowledged reports that a server leaves for the next start when it stops because its files were replaced.
//! An older copy of the files may be consistent in itself, so that nothing else tells that reports are missing.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension};

use super::directory::NOTICE;
use crate::store::{
    failure::{Failure, unavailable},
    study::StudyIndex,
};

/// The file in a data directory.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(NOTICE)
}

/// Writes down durably how many reports of each study were acknowledged.
pub(super) fn leave(directory: &Path, studies: &StudyIndex) -> io::Result<()> {
    let mut file = File::create(path(directory))?;
    for study in studies.list() {
        writeln!(file, "{} {}", study.id(), study.reports_accepted())?;
    }
    file.sync_all()
}

/// Fails if the last server acknowledged reports that are missing; without a notice nothing is known to be.
pub(super) fn settle(connection: &Connection, directory: &Path) -> Result<(), Failure> {
    let path = path(directory);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::file(error)),
    };
    let mut count =
        connection.prepare("SELECT reports_accepted FROM studies WHERE lower(hex(id)) = ?")?;
    for (study, acknowledged) in text.lines().filter_map(|line| line.split_once(' ')) {
        let found: Option<u64> = count.query_row([study], |row| row.get(0)).optional()?;
        let found = found.unwrap_or(0);
        if acknowledged
            .parse()
            .is_ok_and(|acknowledged: u64| found < acknowledged)
        {
            return Err(unavailable(format!(
                "the database was replaced while a server ran, and what is there now lacks acknowledged reports: study {study} has {found} of {acknowledged} reports. \
                 Devices do not send them again: put the right files back and start again. If you have none, or go on from a backup, remove {}: that accepts the loss",
                path.display()
            ))
            .into());
        }
    }
    fs::remove_file(path).map_err(Failure::file)
}
