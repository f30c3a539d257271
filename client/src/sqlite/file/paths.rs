//! Where a file is, which one it is, and the names of what SQLite keeps beside it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Device and inode number of a file, equal for all its hard links.
pub(super) type FileId = (u64, u64);

/// The identity of a file, and its number of hard links.
#[cfg(unix)]
pub(super) fn identity(metadata: &fs::Metadata) -> (FileId, u64) {
    use std::os::unix::fs::MetadataExt;
    ((metadata.dev(), metadata.ino()), metadata.nlink())
}

/// Unknown on this platform: assumes that every file has one name and keeps it.
#[cfg(not(unix))]
pub(super) fn identity(_: &fs::Metadata) -> (FileId, u64) {
    ((0, 0), 1)
}

/// The URI by which SQLite reads a file without its log and its locks.
pub(super) fn immutable_uri(absolute_path: &Path) -> String {
    let path = absolute_path.as_os_str().as_encoded_bytes();
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

/// The path with this suffix appended to its name: that of a file which SQLite keeps beside another.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The path without symbolic links, from which SQLite derives the names of the files beside it.
pub(super) fn canonical_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a folder that does not exist, or in which no file may be created.
#[cfg(unix)]
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(not(unix))]
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    fs::metadata(folder).map(drop)
}

/// Whether the file's log has any contents.
pub(super) fn has_log(absolute_path: &Path) -> bool {
    fs::metadata(with_suffix(&canonical_path(absolute_path), "-wal")).is_ok_and(|log| log.len() > 0)
}

/// Makes a new file's name durable, too. If the folder cannot be opened or synced, nothing more can be done.
pub(super) fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
