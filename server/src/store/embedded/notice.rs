//! What a server whose files were overwritten, or whose log is damaged, leaves for the next start: how many reports it
//! had acknowledged, as far as that is known.
//!
//! An older copy of the files may be consistent in itself, so that nothing else tells that reports are missing.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::directory::{NOTICE, TEMPORARY};
use crate::store::{
    failure::{Failure, unavailable},
    study::StudyIndex,
};

/// Studies named in an error.
const MAX_NAMED: usize = 5;

/// The file in a data directory.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join(NOTICE)
}

/// Writes down durably what was acknowledged.
pub(super) fn leave(directory: &Path, studies: &StudyIndex) -> io::Result<()> {
    let mut text = String::from(
        "# The database was overwritten while the server ran. Reports acknowledged until then, by study:\n",
    );
    for study in studies.list() {
        let _ = writeln!(text, "{} {}", study.id(), study.reports_accepted());
    }
    let temporary = directory.join(format!("{TEMPORARY}overwritten"));
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path(directory))?;
    File::open(directory)?.sync_all()
}

/// Has the next start check the database for damage, unless a notice is there, which does too.
pub(super) fn suspect(directory: &Path) -> io::Result<()> {
    let text = "# The write-ahead log was damaged: the next start checks the database, and removes this file.\n";
    let mut file = match File::create_new(path(directory)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    };
    file.write_all(text.as_bytes())
}

/// Fails if the last server acknowledged reports that are missing; without a notice nothing is known to be.
pub(super) fn settle(connection: &Connection, directory: &Path) -> Result<(), Failure> {
    let path = path(directory);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::file(error)),
    };
    let mut statement =
        connection.prepare("SELECT lower(hex(id)), reports_accepted FROM studies")?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found: HashMap<String, u64> = found.collect::<Result<_, _>>()?;
    let missing: Vec<String> = text
        .lines()
        .filter_map(|line| {
            let (study, acknowledged) = line.split_once(' ')?;
            let acknowledged: u64 = acknowledged.parse().ok()?;
            match found.get(study) {
                Some(&reports) if reports >= acknowledged => None,
                Some(reports) => Some(format!(
                    "study {study} has {reports} of {acknowledged} reports"
                )),
                None => Some(format!(
                    "study {study} is missing with {acknowledged} reports"
                )),
            }
        })
        .collect();
    if missing.is_empty() {
        return fs::remove_file(path).map_err(Failure::file);
    }
    let (named, path) = (missing.len().min(MAX_NAMED), path.display());
    let more = match missing.len() - named {
        0 => String::new(),
        more => format!(", and {more} more studies lack some"),
    };
    Err(unavailable(format!(
        "the database was overwritten while a server ran, and what is there now lacks acknowledged reports: {}{more}. Devices do not send them again: \
         put the right files back and start again. If you have none, or go on from a backup, remove {path}: that accepts the loss",
        missing[..named].join(", ")
    ))
    .into())
}
