//! The files that commands read and write.
//!
//! What a command reads it does not write over. What it writes is whole or not there: a file takes its name when it is
//! complete, and has none before. A link is followed, a file that is replaced keeps its mode, and a pipe or device is
//! written to directly.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::{
    error::{CliError, Result},
    unfinished::{Unfinished, parent},
};

/// Names of this process's standard output.
const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Most links from one name to the next, as in Linux.
const MAX_LINKS: usize = 40;

/// The files that this command has read, kept open so that no other file gets their number.
static INPUTS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// All bytes of an input file.
/// Wrong usage if it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let cannot = |error| CliError::usage(format!("cannot read {}: {error}", path.display()));
    let mut file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(cannot)?;
    let mut inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    inputs.push(file);
    Ok(bytes)
}

/// The text of an input file.
/// As [`read`]; wrong usage if it is not UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| CliError::usage(format!("{} is not text in UTF-8", path.display())))
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

/// Where a write to a path goes.
enum Target {
    /// To this file, which is there or not.
    File(PathBuf, Option<fs::Metadata>),
    /// Into a pipe, a device, a socket, or a file that is open already and known by its descriptor.
    Stream,
}

/// Follows links from this path. Refuses a directory, and what this command has read.
fn target(path: &Path) -> Result<Target> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let at = links(path).last().unwrap_or_else(|| path.to_owned());
            return Ok(Target::File(at, None));
        }
        Err(error) => return Err(cannot_write(path, &error)),
    };
    if found.is_dir() {
        return Err(CliError::usage(format!(
            "cannot write {}: it is a directory; name a file",
            path.display()
        )));
    }
    let inputs = INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_found = |input: &File| {
        let input = input.metadata();
        input.is_ok_and(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()))
    };
    if found.is_file() && inputs.iter().any(is_found) {
        return Err(CliError::usage(format!(
            "{} is an input of this command and is not written over; give another name",
            path.display()
        )));
    }
    // What a descriptor's link says is no path: `pipe:[123]`, or a file that may have been removed.
    let in_memory = fs::canonicalize(parent(path)).is_ok_and(|at| at.starts_with("/dev/shm"));
    if is_transient(path) && !(found.is_file() && in_memory) {
        return Ok(Target::Stream);
    }
    let at = fs::canonicalize(path).map_err(|error| cannot_write(path, &error))?;
    Ok(Target::File(at, Some(found)))
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", path.display()))
}

/// Refuses what [`write`] would refuse, before the work whose result it writes.
pub(crate) fn check_writable(path: Option<&PathBuf>) -> Result<()> {
    path.map_or(Ok(()), |path| target(path).map(drop))
}

/// The same for a figure, whose name says what it is: `--plot rows.csv` is a slip.
pub(crate) fn check_figure(path: &Path) -> Result<()> {
    let ending = path.extension().unwrap_or_default();
    if !ending.eq_ignore_ascii_case("svg") && !is_transient(path) {
        return Err(CliError::usage(format!(
            "--plot is {}, and a figure is written as SVG; give a name that ends in .svg",
            path.display()
        )));
    }
    target(path).map(drop)
}

/// Refuses one file for two flags: the second would write over the first. A pipe or a device takes both.
pub(crate) fn check_different(
    (flag, path): (&str, &Path),
    (other_flag, other): (&str, &Path),
) -> Result<()> {
    let file = |path: &Path| match target(path) {
        Ok(Target::File(at, _)) => {
            let folder = fs::canonicalize(parent(&at)).ok()?;
            Some(folder.join(at.file_name()?))
        }
        _ => None,
    };
    match file(path) {
        Some(at) if file(other).as_ref() == Some(&at) => Err(CliError::usage(format!(
            "{flag} and {other_flag} are the same file, {}; give two names",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Writes a file whole, in place of one that is there.
/// Wrong usage for a directory and for an input of this command; otherwise it could not be written, and what was there
/// stays.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Written::begin(path, bytes)?.finish()
}

/// A file whose bytes are on disk and which has not its name yet. What goes into a pipe or device waits too.
pub(crate) struct Written<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    file: Option<(Unfinished, PathBuf)>,
}

impl<'a> Written<'a> {
    pub(crate) fn begin(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let file = match target(path)? {
            Target::Stream => None,
            Target::File(at, found) => {
                let file = unfinished(&at, bytes, found.as_ref());
                Some((file.map_err(|error| cannot_write(path, &error))?, at))
            }
        };
        Ok(Self { path, bytes, file })
    }

    pub(crate) fn finish(self) -> Result<()> {
        let is_stdout = |at| STDOUT.iter().any(|own| at == Path::new(own));
        let written = match self.file {
            Some((file, at)) => file.replace(&at),
            None if links(self.path).any(is_stdout) => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(self.bytes).and_then(|()| stdout.flush())
            }
            None => fs::OpenOptions::new()
                .append(true)
                .open(self.path)
                .and_then(|mut stream| stream.write_all(self.bytes)),
        };
        written.map_err(|error| cannot_write(self.path, &error))
    }
}

/// These bytes beside `at`, in place of what was found there.
fn unfinished(at: &Path, bytes: &[u8], found: Option<&fs::Metadata>) -> io::Result<Unfinished> {
    let mut unfinished = Unfinished::beside(at, if found.is_some() { 0o600 } else { 0o666 })?;
    let file = unfinished.file();
    file.write_all(bytes)?;
    // Whoever could read what stood there can read the new contents, and nobody else in between.
    if let Some(found) = found {
        // Only root may give a file away; anybody else's stays their own.
        let _ = std::os::unix::fs::fchown(&*file, Some(found.uid()), Some(found.gid()));
        file.set_permissions(Permissions::from_mode(found.mode() & 0o777))?;
    }
    Ok(unfinished)
}

pub(crate) fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| {
        CliError::failed(format!(
            "cannot make the directory {}: {error}",
            path.display()
        ))
    })
}

/// A file that must not be there yet, for its owner only; it takes its name when it is complete.
pub(crate) struct NewFile {
    path: PathBuf,
    file: Unfinished,
}

impl NewFile {
    /// Begins the file.
    /// Wrong usage if the name is taken, also by a link to nothing; the folder cannot be written to.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(taken(path));
        }
        // Identifiers, perturbed reports and tokens are their owner's.
        let file = Unfinished::beside(path, 0o600).map_err(|error| cannot_write(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub(crate) fn writer(&mut self) -> &mut File {
        self.file.file()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.file().write_all(bytes);
        written.map_err(|error| cannot_write(&self.path, &error))
    }

    pub(crate) fn persist(mut self) -> Result<()> {
        let synced = self.file.file().sync_all();
        synced.map_err(|error| cannot_write(&self.path, &error))?;
        self.file
            .add(&self.path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => taken(&self.path),
                _ => cannot_write(&self.path, &error),
            })
    }
}

fn taken(path: &Path) -> CliError {
    CliError::usage(format!(
        "{} exists; give another name or remove it first",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_link_to_nothing_makes_what_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(at("target"), at("dangling")).unwrap();
        write(&at("dangling"), b"made").unwrap();
        assert_eq!(fs::read(at("target")).unwrap(), b"made");
        fs::write(at("plain"), "").unwrap();
        assert_eq!(mode_of(&at("target")), mode_of(&at("plain")));
    }

    #[test]
    fn inputs_and_directories_are_refused_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("rows"), "1,2\n").unwrap();
        fs::hard_link(at("rows"), at("other name")).unwrap();
        assert_eq!(read_text(&at("rows")).unwrap(), "1,2\n");
        for name in ["rows", "other name"] {
            let error = write(&at(name), b"x").unwrap_err().to_string();
            assert!(error.contains("input of this command"), "{error}");
        }
        let error = write(folder.path(), b"x").unwrap_err().to_string();
        assert!(error.contains("directory"), "{error}");
        write(&at("no/folder"), b"x").unwrap_err();
        drop(NewFile::create(&at("half")).unwrap());
        assert_eq!(fs::read(at("rows")).unwrap(), b"1,2\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
