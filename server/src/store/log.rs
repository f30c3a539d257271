//! Reads back what SQLite wrote to the write-ahead log, after each commit: the state of a file tells nothing while SQLite
//! itself writes to it, and that is nearly all the time under load.
//!
//! The format is SQLite's (sqlite.org/fileformat2.html): a header, then frames of a header and a page. The checksum in a
//! frame is of all frames before it, too, so that neither a hole nor a frame of an older copy fits.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::schema::PAGE_BYTES;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES as usize;

type Checksum = [u32; 2];

/// The log as it was last read.
pub(super) struct Log {
    file: File,
    /// Zeros for an empty log.
    header: [u8; HEADER_BYTES as usize],
    frames: u64,
    /// Of the last frame.
    checksum: Checksum,
}

impl Log {
    /// Reads the log as far as it is valid, which is to the last commit if nothing else writes.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut log = Self {
            file: File::open(path)?,
            header: [0; HEADER_BYTES as usize],
            frames: 0,
            checksum: [0; 2],
        };
        // Ends with false, or an error at the end of the file.
        let _ = log.read_to(u64::MAX);
        Ok(log)
    }

    /// Whether what was read before is still there.
    pub(super) fn is_there(&mut self) -> bool {
        self.frames == 0 || self.extends_to(self.frames)
    }

    /// Whether the log has so many frames now, and what was read before is still there.
    pub(super) fn extends_to(&mut self, frames: u64) -> bool {
        // A short file is an error.
        self.read_to(frames).unwrap_or(false)
    }

    fn read_to(&mut self, frames: u64) -> io::Result<bool> {
        let mut header = [0; HEADER_BYTES as usize];
        self.file.read_exact_at(&mut header, 0)?;
        if header == self.header {
            let mut checksum = [0; 8];
            if self.frames > 0 {
                let last = self.position() - PAGE_BYTES - 8;
                self.file.read_exact_at(&mut checksum, last)?;
                if words(&checksum) != self.checksum {
                    return Ok(false);
                }
            }
        } else if self.frames == 0 || is_next(&self.header, &header) {
            // SQLite starts the log over once all of it is in the main file.
            self.header = header;
            self.frames = 0;
            self.checksum = self.sum([0; 2], &header[..24]);
        } else {
            return Ok(false);
        }
        let mut frame = vec![0; FRAME_BYTES];
        while self.frames < frames {
            self.file.read_exact_at(&mut frame, self.position())?;
            let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
            let checksum = self.sum(self.sum(self.checksum, &head[..8]), page);
            if head[8..16] != self.header[16..24] || words(&head[16..]) != checksum {
                return Ok(false);
            }
            self.checksum = checksum;
            self.frames += 1;
        }
        Ok(true)
    }

    /// Where the next frame begins.
    fn position(&self) -> u64 {
        HEADER_BYTES + self.frames * FRAME_BYTES as u64
    }

    /// SQLite's checksum, continued; the header tells the order of the bytes.
    fn sum(&self, from: Checksum, bytes: &[u8]) -> Checksum {
        let is_big_endian = self.header[3] & 1 == 1;
        let [mut even, mut odd] = from;
        for pair in bytes.chunks_exact(8) {
            let [mut first, mut second] = words(pair);
            if !is_big_endian {
                (first, second) = (first.swap_bytes(), second.swap_bytes());
            }
            even = even.wrapping_add(first).wrapping_add(odd);
            odd = odd.wrapping_add(second).wrapping_add(even);
        }
        [even, odd]
    }
}

/// Whether a log with the second header is the one that SQLite writes after that with the first: number and salt count up.
fn is_next(before: &[u8], after: &[u8]) -> bool {
    let (before, after) = (words(&before[12..20]), words(&after[12..20]));
    after == before.map(|word| word.wrapping_add(1))
}

/// The first two big-endian words.
fn words(bytes: &[u8]) -> [u32; 2] {
    let word = |at: usize| {
        let bytes = bytes[at..at + 4].try_into();
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    [word(0), word(4)]
}
