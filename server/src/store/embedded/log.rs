//! Reads back what SQLite wrote, to the write-ahead log after each commit and to the main file after each checkpoint: the
//! state of a file tells nothing while SQLite itself writes to it, and that is nearly all the time under load.
//!
//! The format is SQLite's (sqlite.org/fileformat2.html): a header, then frames of a header and a page. The checksum in a
//! frame is of all frames before it, too, so that neither a hole nor a frame of an older copy fits. After a commit the
//! headers are read and the last page is checked: a log that was truncated meanwhile, or copied over, does not have them
//! all. Whether the other pages are what their headers say is checked once they are copied to the main file, if no later
//! commit has written them again.

use std::{
    array,
    collections::HashMap,
    fs::File,
    io::{self, BufReader},
    mem,
    os::unix::fs::FileExt as _,
    path::Path,
};

pub(super) const PAGE_BYTES: u64 = 8_192;

const HEADER_BYTES: u64 = 32;
/// What a header begins with, but for its last bit, which tells the order of the bytes in checksums.
const MAGIC: u32 = 0x377f_0682;
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES as usize;

/// Frames in memory at once where all are looked through for damage.
const CHUNK_FRAMES: usize = 16;

/// Pages outside the log that are compared after a checkpoint.
const SAMPLE_PAGES: usize = 64;

const IS_BIG_ENDIAN: bool = cfg!(target_endian = "big");

type Checksum = [u32; 2];

/// Whose pages are compared with the frames' headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    All,
    Last,
}

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
    frame: Vec<u8>,
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
            frame: Vec::new(),
            pages: HashMap::new(),
            database_pages: 0,
            copied: 0,
            earlier: Vec::new(),
        };
        log.start_over()?;
        let bytes = log.file.metadata()?.len().saturating_sub(HEADER_BYTES);
        // Ends with false, or an error where there is no header yet.
        let _ = log.read_to(bytes / FRAME_BYTES as u64, Pages::All);
        Ok(log)
    }

    /// Whether what was read before is still there, as far as the header and the last frame tell. A commit that failed for
    /// lack of space may have started the log over, which SQLite does once all of it is in the main file; it then has
    /// nothing yet.
    pub(super) fn is_there(&mut self) -> bool {
        self.frames == 0 || self.extends_to(0)
    }

    /// Whether the log has so many frames now, and what was read before is [still there](Self::is_there).
    pub(super) fn extends_to(&mut self, frames: u64) -> bool {
        // A short file is an error.
        self.read_to(frames, Pages::Last).unwrap_or(false)
    }

    fn read_to(&mut self, frames: u64, pages: Pages) -> io::Result<bool> {
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
        let mut frame = mem::take(&mut self.frame);
        frame.resize(FRAME_BYTES, 0);
        let mut is_valid = true;
        while is_valid && self.frames < frames {
            let has_page = pages == Pages::All
                || self.frames + 1 == frames
                || self.is_big_endian() != IS_BIG_ENDIAN;
            let bytes = match has_page {
                true => FRAME_BYTES,
                false => FRAME_HEADER_BYTES,
            };
            let frame = &mut frame[..bytes];
            self.file.read_exact_at(frame, self.position())?;
            is_valid = self.add(frame);
        }
        self.frame = frame;
        Ok(is_valid)
    }

    /// Takes the next frame, with its page or without, if it is one.
    fn add(&mut self, frame: &[u8]) -> bool {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        let before = self.sum(self.checksum, &head[..8]);
        let checksum = words(&head[16..]);
        let has_sum = page.is_empty() || self.sum(before, page) == checksum;
        if head[8..16] != self.header[16..24] || !has_sum {
            return false;
        }
        let page = match self.is_big_endian() == IS_BIG_ENDIAN {
            // The sum is linear: the page's own is what the frames before did not add.
            true => array::from_fn(|i| {
                let of_before = row_times(OF_PAGE[i], before);
                checksum[i].wrapping_sub(of_before)
            }),
            false => page_sum(page),
        };
        self.checksum = checksum;
        self.frames += 1;
        let [number, database_pages] = words(head);
        self.pages.insert(number, (self.frames, page));
        if database_pages > 0 {
            self.database_pages = database_pages;
        }
        true
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
        let mut page = [0; PAGE_BYTES as usize];
        let offset = (u64::from(number) - 1) * PAGE_BYTES;
        self.main.read_exact_at(&mut page, offset)?;
        Ok(page_sum(&page))
    }

    /// Whether a page beside this one is another in the log than in the main file.
    pub(super) fn changes_more_than(&self, page: u32) -> bool {
        let pages = self.pages.iter().map(|(&number, &(_, sum))| (number, sum));
        pages
            .filter(|&(number, _)| number != page && number <= self.database_pages)
            .any(|(number, sum)| self.read_page(number).ok() != Some(sum))
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
        sum_in_order(self.is_big_endian(), from, bytes)
    }

    /// Whether the machine that began the log is.
    fn is_big_endian(&self) -> bool {
        self.header[3] & 1 == 1
    }
}

/// Whether a log has content, but no header that fits: SQLite takes it for empty.
pub(super) fn lacks_header(log: &Path) -> io::Result<bool> {
    let mut file = File::open(log)?;
    let mut header = [0; HEADER_BYTES as usize];
    let has_header = read_all(&mut file, &mut header)? && header_fits(&header);
    Ok(!has_header && file.metadata()?.len() > 0)
}

fn header_fits(header: &[u8; HEADER_BYTES as usize]) -> bool {
    let sum = sum_in_order(header[3] & 1 == 1, [0; 2], &header[..24]);
    words(header)[0] & !1 == MAGIC && words(&header[24..]) == sum
}

/// Where a log is damaged, if commits that had been synced follow: SQLite would end it there, as after a crash, and
/// overwrite them.
///
/// A crash leaves at most one commit behind the first frame that does not fit, since the next is begun only once it is
/// synced. So two frames tell: a commit's, and one of this log that continues its checksum. Neither frames of an older
/// log are such, which have another salt, nor those of a commit that failed or was rolled back, whose checksums end where
/// the next commit was written over them.
pub(super) fn damaged_at(log: &Path) -> io::Result<Option<u64>> {
    let mut file = match File::open(log) {
        Ok(file) => BufReader::with_capacity(CHUNK_FRAMES * FRAME_BYTES, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut header = [0; HEADER_BYTES as usize];
    if !read_all(&mut file, &mut header)? {
        return Ok(None);
    }
    let is_big_endian = header[3] & 1 == 1;
    let mut before = sum_in_order(is_big_endian, [0; 2], &header[..24]);
    let header_fits = header_fits(&header);
    let is_big_endian = if header_fits {
        is_big_endian
    } else {
        IS_BIG_ENDIAN
    };
    let mut damaged = (!header_fits).then_some(0);
    let mut salt: [u8; 8] = array::from_fn(|i| header[16 + i]);
    // Of the frame before: what its checksum should be, which differs from `before` if that is damaged itself.
    let mut computed = before;
    let mut after_commit = false;
    let mut frame = vec![0; FRAME_BYTES];
    let mut position = HEADER_BYTES;
    while read_all(&mut file, &mut frame)? {
        let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
        let stored = words(&head[16..]);
        let of = |from| {
            let of_head = sum_in_order(is_big_endian, from, &head[..8]);
            sum_in_order(is_big_endian, of_head, page)
        };
        let from_stored = of(before);
        let continues = head[8..16] == salt
            && (from_stored == stored || computed != before && of(computed) == stored);
        match damaged {
            Some(at) if after_commit && continues => return Ok(Some(at)),
            None if !continues => damaged = Some(position),
            _ => {}
        }
        if !header_fits {
            salt.copy_from_slice(&head[8..16]);
        }
        (before, computed) = (stored, from_stored);
        after_commit = words(head)[1] > 0;
        position += FRAME_BYTES as u64;
    }
    Ok(None)
}

/// Fills the buffer; false at the end of the file.
fn read_all(file: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The checksum of a page by itself, in this machine's order.
fn page_sum(page: &[u8]) -> Checksum {
    sum([0; 2], page, u32::from_ne_bytes)
}

fn sum_in_order(is_big_endian: bool, from: Checksum, bytes: &[u8]) -> Checksum {
    match is_big_endian {
        true => sum(from, bytes, u32::from_be_bytes),
        false => sum(from, bytes, u32::from_le_bytes),
    }
}

fn sum(from: Checksum, bytes: &[u8], word: impl Fn([u8; 4]) -> u32) -> Checksum {
    let [mut even, mut odd] = from;
    for &[a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
        even = even.wrapping_add(word([a, b, c, d])).wrapping_add(odd);
        odd = odd.wrapping_add(word([e, f, g, h])).wrapping_add(even);
    }
    [even, odd]
}

/// What a page makes of the checksum before it, as the rows of a matrix: that of zeros, eight bytes at a time.
const OF_PAGE: [[u32; 2]; 2] = {
    let [mut even, mut odd] = [[1_u32, 0], [0, 1_u32]];
    let mut bytes = 0;
    while bytes < PAGE_BYTES {
        even = [even[0].wrapping_add(odd[0]), even[1].wrapping_add(odd[1])];
        odd = [odd[0].wrapping_add(even[0]), odd[1].wrapping_add(even[1])];
        bytes += 8;
    }
    [even, odd]
};

fn row_times(row: [u32; 2], [even, odd]: Checksum) -> u32 {
    row[0]
        .wrapping_mul(even)
        .wrapping_add(row[1].wrapping_mul(odd))
}

/// Whether a log with the second header is the one that SQLite writes after that with the first: the salt counts up. (So
/// does the number before it, but in each connection by itself: another program's is not the next one.)
fn is_next(before: &[u8], after: &[u8]) -> bool {
    words(&after[16..])[0] == words(&before[16..])[0].wrapping_add(1)
}

/// The first two big-endian words.
fn words(bytes: &[u8]) -> [u32; 2] {
    let &[a, b, c, d, e, f, g, h, ..] = bytes else {
        return [0; 2];
    };
    [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use rusqlite::Connection;

    use super::*;
    use crate::store::embedded::schema;

    /// A database whose log is never copied into it by itself.
    fn open(database: &Path) -> Connection {
        let connection = schema::open_for_writing(database, None).unwrap();
        connection
            .pragma_update(None, "wal_autocheckpoint", 0)
            .unwrap();
        connection
    }

    fn insert(connection: &Connection, pages: usize) {
        let insert = "INSERT INTO settings VALUES (hex(randomblob(8)), randomblob(7000))";
        for _ in 0..pages {
            connection.execute(insert, []).unwrap();
        }
    }

    fn commit(connection: &mut Connection, pages: usize) {
        let transaction = connection.transaction().unwrap();
        insert(&transaction, pages);
        transaction.commit().unwrap();
    }

    fn log_of(database: &Path) -> PathBuf {
        database.with_extension("db-wal")
    }

    fn found(folder: &Path, log: &[u8]) -> Option<u64> {
        let path = folder.join("log");
        fs::write(&path, log).unwrap();
        damaged_at(&path).unwrap()
    }

    #[test]
    fn a_flipped_bit_before_the_last_commit_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let mut connection = open(&database);
        let frames =
            || (fs::metadata(log_of(&database)).unwrap().len() / FRAME_BYTES as u64) as usize;
        commit(&mut connection, 3);
        commit(&mut connection, 1);
        commit(&mut connection, 3);
        let before_last = frames();
        commit(&mut connection, 3);
        let log = fs::read(log_of(&database)).unwrap();
        let flipped = |at: usize, bit: u8| {
            let mut log = log.clone();
            log[at] ^= bit;
            found(folder.path(), &log)
        };
        assert_eq!(found(folder.path(), &log), None);
        for at in [0, 3, 11, 12, 17, 21, 26, 31] {
            assert_eq!(flipped(at, 1), Some(0), "byte {at} of the header");
        }
        for frame in 0..frames() {
            let start = HEADER_BYTES as usize + frame * FRAME_BYTES;
            for at in [2, 9, 14, 18, 22, 24, 4_000, FRAME_BYTES - 1] {
                let wanted = (frame < before_last).then_some(start as u64);
                assert_eq!(flipped(start + at, 1), wanted, "byte {at} of {frame}");
            }
        }
    }

    #[test]
    fn what_a_crash_leaves_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let [database, copy] = ["a.db", "b.db"].map(|name| folder.path().join(name));
        let mut connection = open(&database);
        for pages in [2, 5, 1] {
            commit(&mut connection, pages);
        }
        let before = [&database, &log_of(&database)].map(|file| fs::read(file).unwrap());
        // Cut off anywhere.
        for end in (0..before[1].len()).step_by(1_001) {
            assert_eq!(found(folder.path(), &before[1][..end]), None, "{end}");
        }
        // Commits that failed once they were written, each under the next; and the one that did not.
        let mut log = Vec::new();
        for pages in [9, 5, 2] {
            fs::write(&copy, &before[0]).unwrap();
            fs::write(log_of(&copy), &before[1]).unwrap();
            commit(&mut open(&copy), pages);
            let next = fs::read(log_of(&copy)).unwrap();
            assert!(log.is_empty() || log.len() > next.len());
            log.splice(..next.len().min(log.len()), next);
        }
        assert_eq!(found(folder.path(), &log), None);
        // One that was rolled back when it was in the log in part.
        connection.pragma_update(None, "cache_size", 1).unwrap();
        let transaction = connection.transaction().unwrap();
        insert(&transaction, 60);
        transaction.rollback().unwrap();
        commit(&mut connection, 1);
        let spilled = fs::read(log_of(&database)).unwrap();
        assert!(spilled.len() > before[1].len() + 30 * FRAME_BYTES);
        assert_eq!(found(folder.path(), &spilled), None);
        // A new log over the frames of the one before.
        schema::checkpoint(&connection, "PASSIVE").unwrap();
        commit(&mut connection, 1);
        let over = fs::read(log_of(&database)).unwrap();
        assert!(over.len() == spilled.len() && over[..32] != spilled[..32]);
        assert_eq!(found(folder.path(), &over), None);
    }
}
