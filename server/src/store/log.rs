//! Reads back what SQLite wrote, to the write-ahead log after each commit and to the main file after each checkpoint: the
//! state of a file tells nothing while SQLite itself writes to it, and that is nearly all the time under load.
//!
//! The format is SQLite's (sqlite.org/fileformat2.html): a header, then frames of a header and a page. The checksum in a
//! frame is of all frames before it, too, so that neither a hole nor a frame of an older copy fits.

use std::{collections::HashMap, fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::schema::PAGE_BYTES;

const HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES as usize;

/// Pages outside the log that are compared after a checkpoint.
const SAMPLE_PAGES: usize = 64;

type Checksum = [u32; 2];

/// The log as it was last read, and pages of the main file.
pub(super) struct Log {
    file: File,
    /// Open for as long as the connections are: closing it releases the locks that SQLite has on this file.
    main: File,
    /// Zeros for an empty log.
    header: [u8; HEADER_BYTES as usize],
    frames: u64,
    /// Of the last frame.
    checksum: Checksum,
    /// The last frame of each page in this log, and the page's checksum.
    pages: HashMap<u32, (u64, Checksum)>,
    /// Pages in the database after the last commit.
    database_pages: u32,
    /// So many frames are known to be in the main file.
    copied: u64,
    /// Pages of the main file before this log: some from all of it, then those of the log before.
    earlier: Vec<(u32, Checksum)>,
}

impl Log {
    /// Reads the log as far as it is valid, which is to the last commit if nothing else writes.
    pub(super) fn open(path: &Path, main: &Path) -> io::Result<Self> {
        let mut log = Self {
            file: File::open(path)?,
            main: File::open(main)?,
            header: [0; HEADER_BYTES as usize],
            frames: 0,
            checksum: [0; 2],
            pages: HashMap::new(),
            database_pages: 0,
            copied: 0,
            earlier: Vec::new(),
        };
        log.start_over()?;
        // Ends with false, or an error at the end of the file.
        let _ = log.read_to(u64::MAX);
        Ok(log)
    }

    /// Whether what was read before is still there. A commit that failed for lack of space may have started the log over,
    /// which SQLite does once all of it is in the main file; it then has nothing yet.
    pub(super) fn is_there(&mut self) -> bool {
        self.frames == 0 || self.extends_to(0)
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
            self.start_over()?;
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
            let [number, database_pages] = words(head);
            let content = (self.frames, sum([0; 2], page, true));
            self.pages.insert(number, content);
            if database_pages > 0 {
                self.database_pages = database_pages;
            }
        }
        Ok(true)
    }

    /// Begins a log without frames.
    fn start_over(&mut self) -> io::Result<()> {
        (self.frames, self.copied) = (0, 0);
        self.earlier.clear();
        let pages = u32::try_from(self.main.metadata()?.len() / PAGE_BYTES).unwrap_or(u32::MAX);
        for number in (1..=pages).step_by((pages as usize).div_ceil(SAMPLE_PAGES).max(1)) {
            self.earlier.push((number, self.read_page(number)?));
        }
        let last = self.pages.drain().map(|(number, (_, sum))| (number, sum));
        self.earlier.extend(last);
        Ok(())
    }

    /// To be called after a checkpoint of so many frames: whether the main file has them, and still has what it had.
    ///
    /// A file that was overwritten meanwhile by an older copy lacks the checkpoint's pages, or, if all of these were
    /// written later, those of the checkpoint before: one of them is enough. Not noticed is a change of a part of the file
    /// that has none of the pages looked at.
    pub(super) fn is_copied(&mut self, frames: u64) -> bool {
        let copied = |(_, (frame, _)): &(_, (u64, _))| (self.copied + 1..=frames).contains(frame);
        let new = self.pages.iter().map(|(&number, &page)| (number, page));
        let new = new.filter(copied).map(|(number, (_, sum))| (number, sum));
        let earlier = self.earlier.iter().copied();
        let earlier = earlier.filter(|(number, _)| !self.pages.contains_key(number));
        let same = new
            .chain(earlier.take(2 * SAMPLE_PAGES))
            .filter(|&(number, _)| number <= self.database_pages)
            .all(|(number, sum)| self.read_page(number).is_ok_and(|found| found == sum));
        self.copied = self.copied.max(frames);
        same
    }

    /// The checksum of a page of the main file.
    fn read_page(&self, number: u32) -> io::Result<Checksum> {
        let mut page = vec![0; PAGE_BYTES as usize];
        let offset = (u64::from(number) - 1) * PAGE_BYTES;
        self.main.read_exact_at(&mut page, offset)?;
        Ok(sum([0; 2], &page, true))
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Where the next frame begins.
    fn position(&self) -> u64 {
        HEADER_BYTES + self.frames * FRAME_BYTES as u64
    }

    /// SQLite's checksum, continued; the header tells the order of the bytes.
    fn sum(&self, from: Checksum, bytes: &[u8]) -> Checksum {
        sum(from, bytes, self.header[3] & 1 == 1)
    }
}

fn sum(from: Checksum, bytes: &[u8], is_big_endian: bool) -> Checksum {
    let word = if is_big_endian {
        u32::from_be_bytes
    } else {
        u32::from_le_bytes
    };
    let [mut even, mut odd] = from;
    for &[a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
        even = even.wrapping_add(word([a, b, c, d])).wrapping_add(odd);
        odd = odd.wrapping_add(word([e, f, g, h])).wrapping_add(even);
    }
    [even, odd]
}

/// Whether a log with the second header is the one that SQLite writes after that with the first: the salt counts up. (The
/// number before it counts up too, but each connection has a count of its own.)
fn is_next(before: &[u8], after: &[u8]) -> bool {
    let salt = |header: &[u8]| words(&header[16..24])[0];
    salt(after) == salt(before).wrapping_add(1)
}

/// The first two big-endian words.
fn words(bytes: &[u8]) -> [u32; 2] {
    let &[a, b, c, d, e, f, g, h, ..] = bytes else {
        return [0; 2];
    };
    [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes)
}
