//! The directory of an embedded store: who may use it, what format it has, what room there is.
//!
//! | file | |
//! |---|---|
//! | `format` | one line, `sidereal store, format 1`; written before anything else |
//! | `in-use` | locked while a process has the store open |
//! | `version`, `lock`, `keyspaces`, `*.jnl` | fjall's |

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::embedded::journal;
use crate::{Error, Result};

/// The format that this version reads and writes.
const FORMAT: u32 = 1;
const FORMAT_FILE: &str = "format";
const FORMAT_TITLE: &str = "sidereal store, format ";
const LOCK_FILE: &str = "in-use";
/// fjall writes it last when it creates a store.
const FJALL_MARKER: &str = "version";
const JOURNAL_EXTENSION: &str = "jnl";

/// A locked directory with a known format.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Whether all data is in tables, so that the journal can be cut when nobody uses the store any more.
    journal_is_spare: AtomicBool,
    /// Unlocks when it is dropped.
    _lock: File,
}

impl Directory {
    /// Creates the directory if need be, locks it and checks its format.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let refuse = |what: &str, error: &io::Error| {
            Error::Open(format!("cannot {what} the data directory {}: {error}", path.display()))
        };
        std::fs::create_dir_all(path).map_err(|error| refuse("create", &error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK_FILE))
            .map_err(|error| refuse("write to", &error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::Open(format!(
                "the data directory {} is in use by another process: stop that one, or choose another directory",
                path.display()
            )),
            TryLockError::Error(error) => refuse("lock", &error),
        })?;
        let directory =
            Self { path: path.into(), journal_is_spare: AtomicBool::new(false), _lock: lock };
        directory.check_format()?;
        if directory.has_store() {
            let mut journals = directory.journals().map_err(|error| refuse("read", &error))?;
            journals.sort();
            let paths: Vec<_> = journals.into_iter().map(|(_, path)| path).collect();
            journal::check(&paths)?;
        } else {
            directory.remove_stillborn().map_err(|error| refuse("write to", &error))?;
        }
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether fjall has finished creating a store here.
    pub(super) fn has_store(&self) -> bool {
        self.path.join(FJALL_MARKER).exists()
    }

    /// Turns what fjall says when it does not open into what a person can use.
    pub(super) fn cannot_open(&self, error: &fjall::Error) -> Error {
        let path = self.path.display();
        Error::Open(match error {
            fjall::Error::Locked => format!(
                "the data directory {path} is in use by another process: stop that one, or choose another directory"
            ),
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
                format!("cannot read or write the data directory {path}: {error}")
            }
            error => format!(
                "the data in {path} is damaged and cannot be opened; restore a copy of it: {error}"
            ),
        })
    }

    /// Free bytes on the disk, for this user.
    pub(super) fn free_bytes(&self) -> Result<u64> {
        let disk = rustix::fs::statvfs(&self.path)
            .map_err(|error| Error::Full(format!("cannot tell what is free: {error}")))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Bytes that journals take on disk.
    pub(super) fn journal_bytes(&self) -> u64 {
        let journals = self.journals().unwrap_or_default();
        journals.iter().filter_map(|(_, path)| allocated_bytes(path).ok()).sum()
    }

    /// The number and length of the journal that is being written.
    pub(super) fn newest_journal(&self) -> Result<(u64, u64)> {
        let newest = self.journals().and_then(|journals| {
            let (number, path) = journals.into_iter().max().ok_or(ErrorKind::NotFound)?;
            Ok((number, path.metadata()?.len()))
        });
        newest.map_err(|error| {
            Error::Open(format!("cannot find the journal in {}: {error}", self.path.display()))
        })
    }

    pub(super) fn journal_exists(&self, number: u64) -> bool {
        self.path.join(format!("{number}.{JOURNAL_EXTENSION}")).exists()
    }

    /// Says that the journal holds nothing that is not in tables, and nobody will write to it any more.
    pub(super) fn drop_journal(&self) {
        self.journal_is_spare.store(true, Ordering::Release);
    }

    /// Takes [`Directory::drop_journal`] back.
    pub(super) fn keep_journal(&self) {
        self.journal_is_spare.store(false, Ordering::Release);
    }

    fn check_format(&self) -> Result<()> {
        let path = self.path.display();
        let file = self.path.join(FORMAT_FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound && !self.has_store() => {
                return self.write_format().map_err(|error| {
                    Error::Open(format!("cannot write to the data directory {path}: {error}"))
                });
            }
            Err(error) => {
                let file = file.display();
                return Err(Error::Open(format!("cannot read {file}: {error}")));
            }
        };
        let format =
            text.trim().strip_prefix(FORMAT_TITLE).and_then(|number| number.parse::<u32>().ok());
        match format {
            Some(FORMAT) => Ok(()),
            Some(format) if format > FORMAT => Err(Error::Open(format!(
                "the data in {path} was written by a newer version of Sidereal (format {format}; this version \
                 knows {FORMAT}): use that version"
            ))),
            _ => Err(Error::Open(format!(
                "{path} does not hold data of Sidereal (its file '{FORMAT_FILE}' says something else): choose another \
                 directory"
            ))),
        }
    }

    fn write_format(&self) -> io::Result<()> {
        let draft = self.path.join(format!("{FORMAT_FILE}.new"));
        let mut file = File::create(&draft)?;
        writeln!(file, "{FORMAT_TITLE}{FORMAT}")?;
        file.sync_all()?;
        std::fs::rename(&draft, self.path.join(FORMAT_FILE))?;
        self.sync()
    }

    /// Removes what fjall left if it was stopped while it created a store; it would not overwrite its own first journal.
    fn remove_stillborn(&self) -> io::Result<()> {
        for (_, journal) in self.journals()? {
            std::fs::remove_file(journal)?;
        }
        Ok(())
    }

    /// Cuts the journal. It must stay, empty: without one, fjall would start to count from nothing.
    fn cut_journal(&self) -> io::Result<()> {
        for (_, journal) in self.journals()? {
            let file = OpenOptions::new().write(true).open(journal)?;
            file.set_len(0)?;
            file.sync_all()?;
        }
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn journals(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut journals = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == JOURNAL_EXTENSION)
                && let Some(number) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
            {
                journals.push((number, path));
            }
        }
        Ok(journals)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.journal_is_spare.load(Ordering::Acquire)
            && let Err(error) = self.cut_journal()
        {
            // Nothing is lost, the next start only takes longer.
            eprintln!("cannot cut the journal in {}: {error}", self.path.display());
        }
    }
}

/// Bytes that a file really takes: fjall's journals begin as holes of 64 MiB.
fn allocated_bytes(path: &Path) -> io::Result<u64> {
    let metadata = path.metadata()?;
    #[cfg(unix)]
    return Ok(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512);
    #[cfg(not(unix))]
    return Ok(metadata.len());
}
