//! Where a file is, which one it is, and the names of what SQLite keeps beside it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Device and number of a file: the same for all its names.
pub(super) type FileId = (u64, u64);

/// Which file this is, and how many names it has.
#[cfg(unix)]
pub(super) fn identity(found: &fs::Metadata) -> (FileId, u64) {
    use std::os::unix::fs::MetadataExt;
    ((found.dev(), found.ino()), found.nlink())
}

/// Unknown on this platform: assumes that every file has one name and keeps it.
#[cfg(not(unix))]
pub(super) fn identity(_: &fs::Metadata) -> (FileId, u64) {
    ((0, 0), 1)
}

/// The address by which SQLite reads a file without its log and its locks.
pub(super) fn immutable(at: &Path) -> String {
    let path = at.as_os_str().as_encoded_bytes();
    let mut uri = String::from("file:");
    if !path.starts_with(b"/") {
        // A drive's letter.
        uri.push('/');
    }
    for &byte in path {
        match byte {
            b'\\' if cfg!(windows) => uri.push('/'),
            b'/' | b':' | b'.' | b'-' | b'_' => uri.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

/// Path of the file that SQLite keeps beside this one.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The path without links, by which SQLite names the files beside.
pub(super) fn real(at: &Path) -> PathBuf {
    fs::canonicalize(at).unwrap_or_else(|_| at.to_owned())
}

pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a folder that is not there, or in which no file may be made.
#[cfg(unix)]
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(not(unix))]
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    fs::metadata(folder).map(drop)
}

/// Whether the file's log holds anything.
pub(super) fn has_log(at: &Path) -> bool {
    fs::metadata(beside(&real(at), "-wal")).is_ok_and(|log| log.len() > 0)
}

/// Makes a new file's name durable too. Where a folder cannot be opened or synced there is nothing more to do.
pub(super) fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
