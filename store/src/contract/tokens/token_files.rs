//! The operator token in its file, and a staged one in a second file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use eigenveil_shared::{Error, Result};

use super::token::TokenHash;
use crate::contract::failure::{Failure, is_disk_full, unavailable};

/// The operator token in force.
pub(crate) const TOKEN: &str = "operator.token";
/// The staged operator token, about to replace it.
pub(crate) const NEXT_TOKEN: &str = "operator.token.new";
/// Far more than a token has.
const MAX_TOKEN_FILE_BYTES: u64 = 1_024;

/// The file of the operator token, and of the staged one.
#[derive(Clone, Debug)]
pub(crate) struct TokenFiles {
    directory: PathBuf,
}

impl TokenFiles {
    pub(crate) fn in_directory(path: &Path) -> Self {
        Self {
            directory: path.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(TOKEN)
    }

    pub(crate) fn next(&self) -> PathBuf {
        self.directory.join(NEXT_TOKEN)
    }

    /// The token that was staged and neither adopted nor discarded.
    fn staged(&self) -> Result<Option<String>> {
        let path = self.next();
        let read = || {
            if !fs::symlink_metadata(&path)?.is_file() {
                return Err(io::Error::other(format!(
                    "{NEXT_TOKEN} is not a regular file"
                )));
            }
            let mut text = String::new();
            File::open(&path)?
                .take(MAX_TOKEN_FILE_BYTES)
                .read_to_string(&mut text)?;
            Ok(text)
        };
        match read() {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes a token durably to the staging file, readable by its owner only. It is not valid yet.
    pub(crate) fn stage(&self, token: &str) -> Result<()> {
        let write = || -> io::Result<()> {
            // Created anew: others might be able to read an existing file.
            self.remove_staged()?;
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(self.next())?;
            writeln!(file, "{token}")?;
            file.sync_all()?;
            self.sync()
        };
        write().map_err(|error| self.failed(&error))
    }

    /// The staged token replaces the one in force.
    pub(crate) fn adopt(&self) -> Result<()> {
        fs::rename(self.next(), self.path())
            .and_then(|()| self.sync())
            .map_err(|error| self.failed(&error))
    }

    /// After an interruption: the staged token, if it has this hash, replaces the one in force. Whether it does.
    pub(crate) fn adopt_if_valid(&self, hash: &TokenHash) -> Result<bool> {
        let staged = self.staged()?;
        let is_valid = staged.is_some_and(|staged| TokenHash::new(&staged).matches(hash));
        if is_valid {
            self.adopt()?;
        }
        Ok(is_valid)
    }

    /// Adopts like [`adopt_if_valid`](Self::adopt_if_valid), and removes another one, where nobody else can be
    /// committing its hash.
    pub(crate) fn settle(&self, hash: &TokenHash) -> Result<()> {
        match self.adopt_if_valid(hash)? {
            true => Ok(()),
            false => self.discard(),
        }
    }

    pub(crate) fn discard(&self) -> Result<()> {
        self.remove_staged().map_err(|error| self.failed(&error))
    }

    fn remove_staged(&self) -> io::Result<()> {
        match fs::remove_file(self.next()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn failed(&self, error: &io::Error) -> Error {
        if is_disk_full(error) {
            return Failure::Full.into_error();
        }
        unavailable(format!(
            "the operator token cannot be written to {} ({error}); check the permissions of the directory",
            self.path().display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    #[test]
    fn a_token_that_finds_no_room_is_not_a_matter_of_permissions() {
        let files = TokenFiles::in_directory(Path::new("data"));
        for (why, code) in [
            (io::ErrorKind::StorageFull, ErrorCode::StoreFull),
            (io::ErrorKind::QuotaExceeded, ErrorCode::StoreFull),
            (io::ErrorKind::PermissionDenied, ErrorCode::StoreUnavailable),
        ] {
            assert_eq!(files.failed(&why.into()).code(), code);
        }
    }
}
