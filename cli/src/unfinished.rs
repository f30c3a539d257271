//! A file that takes its name when it is complete.

use std::{
    fs::{File, Permissions},
    io,
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD};
use tempfile::{Builder, TempPath};

/// A file without a name: if the command is killed, nothing of it is left. On file systems that have no such files it
/// has a name of its own, which a signal leaves behind.
pub(crate) struct Unfinished {
    file: File,
    name: Option<TempPath>,
}

impl Unfinished {
    /// In the folder of `path`, with this mode before the umask.
    pub(crate) fn beside(path: &Path, mode: u32) -> io::Result<Self> {
        if let Some(file) = unnamed(parent(path), mode) {
            return Ok(Self { file, name: None });
        }
        let named = names()
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(parent(path))?;
        let (file, name) = named.into_parts();
        Ok(Self {
            file,
            name: Some(name),
        })
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it this name, in place of what has it.
    pub(crate) fn replace(self, path: &Path) -> io::Result<()> {
        let name = match self.name {
            Some(name) => name,
            // A link replaces nothing, a rename does.
            None => names()
                .make_in(parent(path), |name| link(&self.file, name))?
                .into_temp_path(),
        };
        name.persist(path).map_err(|failed| failed.error)
    }

    /// Gives it this name, which must be free.
    pub(crate) fn add(self, path: &Path) -> io::Result<()> {
        match self.name {
            Some(name) => name.persist_noclobber(path).map_err(|failed| failed.error),
            None => link(&self.file, path),
        }
    }
}

fn names<'a>() -> Builder<'a, 'a> {
    let mut names = Builder::new();
    names.prefix(".eigenveil-").suffix(".partial");
    names
}

/// A file without a name, which can be given one later; `None` where there is no such thing.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path, mode: u32) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)).ok()?);
    descriptor(&file).exists().then_some(file)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path, _: u32) -> Option<File> {
    None
}

fn descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn link(file: &File, name: &Path) -> io::Result<()> {
    rustix::fs::linkat(CWD, descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// The folder of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
