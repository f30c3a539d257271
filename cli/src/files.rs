//! The files that commands read and write.
//!
//! What a command reads it does not write over. A file takes its name when it is complete. A link is followed, a file
//! that is replaced keeps its mode, and a pipe or device is written to directly.

use std::{
    cell::RefCell,
    fs::{self, File, Metadata, Permissions},
    io::{self, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use eigenveil_tables::ReadAt;
use rustix::fs::Access;
use tempfile::{Builder, NamedTempFile};

use crate::error::{CliError, Result};

/// Most links from one name to the next, as in Linux.
const MAX_LINKS: usize = 40;

thread_local! {
    /// Device and inode of each file that this command, which runs on this thread, has read.
    static INPUTS: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// All bytes of an input file.
/// Wrong usage if it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let (mut file, _) = open_file(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(|error| cannot_read(path, &error))?;
    Ok(bytes)
}

/// An input file that is read at any position; a pipe or a device is read as a whole.
pub(crate) enum Input {
    File(File, u64),
    Bytes(Vec<u8>),
}

impl ReadAt for Input {
    fn size(&self) -> u64 {
        match self {
            Self::File(_, size) => *size,
            Self::Bytes(bytes) => bytes.size(),
        }
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.read_exact_at(buffer, position),
            Self::Bytes(bytes) => bytes.read_at(position, buffer),
        }
    }
}

/// Opens an input file.
/// Wrong usage if it cannot be read.
pub(crate) fn open(path: &Path) -> Result<Input> {
    let (mut file, metadata) = open_file(path)?;
    if metadata.is_file() {
        return Ok(Input::File(file, metadata.len()));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .map_err(|error| cannot_read(path, &error))?;
    Ok(Input::Bytes(bytes))
}

fn cannot_read(path: &Path, error: &io::Error) -> CliError {
    CliError::usage(format!("cannot read {}: {error}", path.display()))
}

fn open_file(path: &Path) -> Result<(File, Metadata)> {
    let file = File::open(path).map_err(|error| cannot_read(path, &error))?;
    let metadata = file.metadata().map_err(|error| cannot_read(path, &error))?;
    if metadata.is_dir() {
        return Err(CliError::usage(format!(
            "{} is a folder; name a file, such as one of its part files",
            path.display()
        )));
    }
    INPUTS.with_borrow_mut(|inputs| inputs.push(identity(&metadata)));
    Ok((file, metadata))
}

/// The text of an input file, which [`read`] reads; wrong usage if it is neither UTF-8 nor UTF-16 with its mark.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let text = eigenveil_tables::read_text(&read(path)?);
    text.ok_or_else(|| CliError::usage(format!("{} is not text in UTF-8", path.display())))
}

/// Whether what is at this path, or at the end of its links, is a pipe, a device or an open descriptor: beside it nothing
/// can be kept.
pub(crate) fn is_transient(path: &Path) -> bool {
    let of_the_system = |at: PathBuf| {
        let folder = fs::canonicalize(parent(&at)).unwrap_or_default();
        ["/dev", "/proc", "/sys"]
            .iter()
            .any(|root| folder.starts_with(root))
    };
    fs::metadata(path).is_ok_and(|found| !found.is_file() || links(path).any(of_the_system))
}

/// This path, and those that its links lead to.
fn links(path: &Path) -> impl Iterator<Item = PathBuf> {
    let next = |at: &PathBuf| {
        let link = fs::read_link(at).ok()?;
        Some(at.parent().unwrap_or(Path::new("")).join(link))
    };
    std::iter::successors(Some(path.to_owned()), next).take(MAX_LINKS + 1)
}

/// The folder of a file.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a folder that takes no new files.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        return Err(CliError::usage(format!(
            "{} is not a directory; give another place for the output",
            folder.display()
        )));
    }
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        CliError::failed(format!(
            "cannot write to {}: {error}; give another place for the output",
            folder.display()
        ))
    })
}

/// The end of the links that begin at an output's path, and what is there.
/// Refuses a directory, an input of this command, and a file in a folder that takes none.
fn target(path: &Path) -> Result<(PathBuf, Option<Metadata>)> {
    let at = links(path).last().unwrap_or_default();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_folder(parent(&at))?;
            return Ok((at, None));
        }
        Err(error) => return Err(cannot_write(path, &error)),
    };
    let wrong = |what: &str| Err(CliError::usage(format!("{} is {what}", path.display())));
    if metadata.is_dir() {
        return wrong("a directory; name a file");
    }
    if metadata.is_file() && INPUTS.with_borrow(|inputs| inputs.contains(&identity(&metadata))) {
        return wrong("an input of this command and is not written over; give another name");
    }
    if metadata.is_file() && !is_stdout(&metadata) {
        check_folder(parent(&at))?;
    }
    Ok((at, Some(metadata)))
}

/// Whether this is what standard output goes to. In a file it has a place, which no other descriptor knows.
fn is_stdout(found: &Metadata) -> bool {
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let stdout = stdout.and_then(|stdout| stdout.metadata());
    stdout.is_ok_and(|stdout| identity(&stdout) == identity(found))
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", path.display()))
}

/// Refuses what [`write`] would refuse, before the work whose result it writes.
pub(crate) fn check(path: &Path) -> Result<()> {
    target(path).map(drop)
}

/// Checks the path of a figure, whose name says what it is: `--plot rows.csv` is a slip.
pub(crate) fn check_figure(path: &Path) -> Result<()> {
    let ending = path.extension().unwrap_or_default();
    if !ending.eq_ignore_ascii_case("svg") && !is_transient(path) {
        return Err(CliError::usage(format!(
            "--plot is {}, and a figure is written as SVG; give a name that ends in .svg",
            path.display()
        )));
    }
    check(path)
}

/// Checks the path of a table, which is written as CSV whatever its name says.
pub(crate) fn check_table(path: &Path) -> Result<()> {
    let ending = path.extension().unwrap_or_default();
    let mut others = "tsv tab npy parquet libsvm svm svmlight".split(' ');
    if others.any(|other| ending.eq_ignore_ascii_case(other)) {
        return Err(CliError::usage(format!(
            "--out is {}, and the table is written as CSV; give a name that ends in .csv",
            path.display()
        )));
    }
    check(path)
}

/// Writes a file whole, in place of one that is there.
/// Refuses as [`check`] does; otherwise it could not be written, and what was there stays.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let (at, found) = target(path)?;
    let written = match &found {
        Some(found) if is_stdout(found) => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Some(found) if !found.is_file() => {
            let stream = fs::OpenOptions::new().write(true).open(path);
            stream.and_then(|mut stream| stream.write_all(bytes))
        }
        found => replace(&at, bytes, found.as_ref()),
    };
    written.map_err(|error| cannot_write(path, &error))
}

/// Puts these bytes in the place of what was found there.
fn replace(at: &Path, bytes: &[u8], found: Option<&Metadata>) -> io::Result<()> {
    let mut file = temporary(at, if found.is_some() { 0o600 } else { 0o666 })?;
    file.as_file_mut().write_all(bytes)?;
    // Whoever could read what stood there can read the new contents, and nobody else in between.
    if let Some(found) = found {
        // Only root may give a file away; anybody else's stays their own.
        let _ = std::os::unix::fs::fchown(file.as_file(), Some(found.uid()), Some(found.gid()));
        file.as_file().set_permissions(found.permissions())?;
    }
    file.persist(at).map(drop).map_err(|failed| failed.error)
}

/// A file beside this one, with this mode before the umask, which is removed unless it gets a name.
fn temporary(at: &Path, mode: u32) -> io::Result<NamedTempFile> {
    Builder::new()
        .prefix(".eigenveil-")
        .suffix(".partial")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(parent(at))
}

/// A file that must not be there yet, for its owner only; it takes its name when it is complete.
pub(crate) struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl NewFile {
    /// Begins the file.
    /// Wrong usage if the name is taken, also by a link to nothing; the folder cannot be written to.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(taken(path));
        }
        check_folder(parent(path))?;
        // Identifiers, perturbed reports and tokens are their owner's.
        let file = temporary(path, 0o600).map_err(|error| cannot_write(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub(crate) fn writer(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.writer().write_all(bytes);
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    pub(crate) fn persist(self) -> Result<()> {
        let synced = self.file.as_file().sync_all();
        synced.map_err(|error| cannot_write(&self.path, &error))?;
        match self.file.persist_noclobber(&self.path) {
            Ok(_) => Ok(()),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(taken(&self.path))
            }
            Err(failed) => Err(cannot_write(&self.path, &failed.error)),
        }
    }
}

fn taken(path: &Path) -> CliError {
    CliError::usage(format!(
        "{} exists; give another name or remove it first",
        path.display()
    ))
}
