//! Tables that are read in blocks of rows, so that memory does not grow with the table: once to find its rows and whose
//! they are, and then each block again when its rows are asked for.
//!
//! CSV and similar text, LIBSVM text and `.npy` are read so; Parquet and text in UTF-16 are read as a whole.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use eigenveil_shared::preprocess::Row;
use sha2::{Digest, Sha256};

use crate::{
    checked_format,
    columns::{ColumnMapping, ExpectedColumns},
    encoding::{is_utf_16, lines_in_utf8},
    error::{Error, Result},
    formats::{
        libsvm,
        npy::Layout,
        text::{self, TextForm},
    },
    parse,
    problems::{Problems, UnreadableReason},
    settings::{Format, Settings},
    table::{RowTable, check_is_text, lines_of, mapping_without_names, no_rows},
};

/// Lines of text, or rows of an array, in a block: as many as a table's sum asks for at a time.
const BLOCK_LINES: usize = 512;
/// Bytes that are read at once, in which the header of an array must end.
const READ_BYTES: usize = 1 << 20;

/// The bytes of a table, which several threads read at any position: a file, or memory.
pub trait ReadAt: Sync {
    /// Number of bytes.
    fn size(&self) -> u64;
    /// Fills the buffer with the bytes from this position on.
    ///
    /// # Errors
    /// They cannot be read, or there are fewer.
    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        let bytes = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A table that is read in blocks of rows.
pub struct BlockTable<S> {
    source: S,
    path: PathBuf,
    settings: Settings,
    expected: ExpectedColumns,
    form: Form,
    blocks: Vec<Block>,
    rows: usize,
    digest: [u8; 32],
    hasher: RandomState,
    told: Mutex<Told>,
}

/// How a block is read.
enum Form {
    Text(TextForm),
    Libsvm(ColumnMapping),
    Array(Layout, ColumnMapping),
    /// There are no blocks.
    Whole(RowTable),
}

/// Some consecutive rows.
#[derive(Clone, Copy)]
struct Block {
    /// Place of lines of text in the file, and how many bytes they have.
    position: u64,
    len: usize,
    /// Number of the first line, from 1.
    first_line: usize,
    first_row: usize,
    rows: usize,
    hash: u64,
}

/// The problems of the cells in the blocks that were read.
#[derive(Default)]
struct Told {
    problems: Problems,
    /// Blocks that were read.
    seen: Vec<bool>,
}

impl<S: ReadAt> BlockTable<S> {
    /// Finds the rows of a table, which is read like [`parse`] reads one. `label` gets the label of each row in order,
    /// if the settings name a column of labels; `progress` gets the number of bytes that were read.
    ///
    /// # Errors
    /// Those of [`parse`] that concern the form; those of `label`; the bytes cannot be read.
    pub fn open(
        path: &Path,
        source: S,
        settings: Settings,
        expected: &ExpectedColumns,
        label: &mut dyn FnMut(&str) -> Result<()>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let at_path = |error: Error| error.context(path.display());
        let expected = expected.with_normalized_names();
        let format = checked_format(path, &settings).map_err(at_path)?;
        let beginning = source.size().min(READ_BYTES as u64) as usize;
        let beginning = read(&source, 0, beginning).map_err(at_path)?;
        let is_whole = match format {
            Format::Parquet => true,
            Format::Npy => false,
            Format::Csv | Format::Tsv | Format::Libsvm => is_utf_16(&beginning, settings.encoding),
        };
        let mut scan = Scan {
            source: &source,
            settings: &settings,
            expected: &expected,
            hasher: RandomState::new(),
            digest: Sha256::new(),
            blocks: Vec::new(),
            rows: 0,
            label,
            progress,
        };
        let form = match format {
            _ if is_whole => scan.whole(path)?,
            Format::Npy => scan.array(&beginning).map_err(at_path)?,
            Format::Libsvm => scan.lines(None).map_err(at_path)?,
            format => scan.lines(Some(format == Format::Tsv)).map_err(at_path)?,
        };
        let Scan {
            hasher,
            digest,
            blocks,
            rows,
            ..
        } = scan;
        if rows == 0 {
            return Err(at_path(no_rows()));
        }
        let problems = match &form {
            Form::Whole(table) => table.problems.clone(),
            _ => Problems::default(),
        };
        Ok(Self {
            path: path.to_owned(),
            told: Mutex::new(Told {
                problems,
                seen: vec![false; blocks.len()],
            }),
            source,
            settings,
            expected,
            form,
            blocks,
            rows,
            digest: digest.finalize().into(),
            hasher,
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row: always false.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// A digest of the bytes, the same for the same bytes.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Notes on how the columns were selected.
    pub fn notes(&self) -> &[String] {
        &self.mapping().notes
    }

    /// The file's column, from 0, of each column of the table.
    pub fn file_columns(&self) -> &[usize] {
        &self.mapping().file_columns
    }

    /// The rows with these numbers, from 0, on any thread.
    ///
    /// # Errors
    /// The bytes cannot be read, or have changed since they were first read.
    pub fn rows(&self, numbers: Range<usize>) -> Result<Vec<Row>> {
        if let Form::Whole(table) = &self.form {
            return Ok(numbers.map(|number| table.row(number)).collect());
        }
        let ends = |block: &Block| block.first_row + block.rows;
        let first = self
            .blocks
            .partition_point(|block| ends(block) <= numbers.start);
        let mut rows = Vec::with_capacity(numbers.len());
        for (at, block) in self.blocks.iter().enumerate().skip(first) {
            if block.first_row >= numbers.end {
                break;
            }
            let table = self.block(at, block);
            let table = table.map_err(|error| error.context(self.path.display()))?;
            let from = numbers.start.max(block.first_row) - block.first_row;
            let to = numbers.end.min(ends(block)) - block.first_row;
            rows.extend((from..to).map(|row| table.row(row)));
        }
        Ok(rows)
    }

    /// The unreadable cells of the rows that were asked for, as [`RowTable::unreadable`] describes them. Only for the
    /// person who holds the rows.
    pub fn unreadable(&self, missing_cells: bool) -> Option<String> {
        let known = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut problems = known.problems.clone();
        if missing_cells {
            problems = problems.without(UnreadableReason::Missing);
        }
        problems.describe(|at| self.mapping().column(at))
    }

    fn mapping(&self) -> &ColumnMapping {
        match &self.form {
            Form::Text(form) => &form.mapping,
            Form::Libsvm(mapping) | Form::Array(_, mapping) => mapping,
            Form::Whole(table) => table.mapping(),
        }
    }

    /// The table of a block.
    fn block(&self, at: usize, block: &Block) -> Result<RowTable> {
        let (settings, expected) = (&self.settings, Some(&self.expected));
        let bytes = match &self.form {
            Form::Array(layout, _) => read_array(&self.source, layout, block)?,
            _ => read(&self.source, block.position, block.len)?,
        };
        if self.hasher.hash_one(&bytes[..]) != block.hash {
            return Err(changed());
        }
        let table = match &self.form {
            Form::Text(form) => {
                let text = lines_in_utf8(&bytes, settings.encoding);
                form.read(
                    numbered(&text, block.first_line).collect(),
                    settings,
                    expected,
                )?
            }
            Form::Array(layout, mapping) => {
                let table = RowTable::new(layout.columns, values(layout, &bytes, block), None)?;
                let table = table.with_columns_selected(mapping.clone());
                Some(table.judged_from(block.first_row, expected)?)
            }
            Form::Libsvm(_) | Form::Whole(_) => {
                libsvm::parse_lines(numbered(&bytes, block.first_line), settings, expected)?
            }
        };
        let table = table.filter(|table| table.len() == block.rows);
        let table = table.ok_or_else(changed)?;
        let mut known = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut known.seen[at], true) {
            known.problems.merge(&table.problems);
        }
        Ok(table)
    }
}

/// Nothing of the rows.
impl<S> std::fmt::Debug for BlockTable<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockTable({} rows)", self.rows)
    }
}

/// The first reading of a table.
struct Scan<'a, S> {
    source: &'a S,
    settings: &'a Settings,
    expected: &'a ExpectedColumns,
    hasher: RandomState,
    digest: Sha256,
    blocks: Vec<Block>,
    rows: usize,
    label: &'a mut dyn FnMut(&str) -> Result<()>,
    progress: &'a mut dyn FnMut(u64),
}

impl<S: ReadAt> Scan<'_, S> {
    fn whole(&mut self, path: &Path) -> Result<Form> {
        let size = usize::try_from(self.source.size()).unwrap_or(usize::MAX);
        let bytes = read(self.source, 0, size).map_err(|error| error.context(path.display()))?;
        let table = parse(path, &bytes, self.settings, Some(self.expected))?;
        for label in table.labels() {
            (self.label)(label)?;
        }
        self.digest.update(&bytes);
        self.rows = table.len();
        Ok(Form::Whole(table))
    }

    fn array(&mut self, beginning: &[u8]) -> Result<Form> {
        let layout = Layout::read(beginning, self.source.size());
        let layout = layout.map_err(|error| Error::new(error.detail()))?;
        let mapping = mapping_without_names(layout.columns, self.settings, Some(self.expected))?;
        self.digest.update(&beginning[..layout.begins]);
        while self.rows < layout.rows {
            let mut block = Block {
                position: 0,
                len: 0,
                first_line: 0,
                first_row: self.rows,
                rows: BLOCK_LINES.min(layout.rows - self.rows),
                hash: 0,
            };
            let bytes = read_array(self.source, &layout, &block)?;
            block.hash = self.take(&bytes);
            self.rows += block.rows;
            self.blocks.push(block);
            (self.progress)((self.rows * layout.columns * layout.width()) as u64);
        }
        Ok(Form::Array(layout, mapping))
    }

    /// Scans lines of CSV (`Some`; whether the name says that tabs separate the columns) or of LIBSVM text.
    fn lines(&mut self, is_tsv: Option<bool>) -> Result<Form> {
        let mut pieces = Pieces::new(self.source);
        let first = pieces.next_piece()?.unwrap_or_default();
        let (form, head_lines, head) = match is_tsv {
            Some(is_tsv) => self.text_form(&first, is_tsv)?,
            None => {
                check_is_text(&first, false)?;
                let columns = libsvm::columns_for(self.expected.dimension, self.settings);
                let mapping = mapping_without_names(columns, self.settings, Some(self.expected))?;
                (Form::Libsvm(mapping), 0, mark_len(&first))
            }
        };
        self.digest.update(&first[..head]);
        pieces.restart(head);
        let (mut position, mut line) = (head as u64, head_lines + 1);
        while let Some(bytes) = pieces.next_piece()? {
            let rows = match &form {
                Form::Text(form) => {
                    let text = lines_in_utf8(&bytes, self.settings.encoding);
                    let lines = numbered(&text, line).collect();
                    form.scan(lines, Some(self.expected), self.label)?
                }
                _ => libsvm::count_rows(numbered(&bytes, line)),
            };
            let block = Block {
                position,
                len: bytes.len(),
                first_line: line,
                first_row: self.rows,
                rows,
                hash: self.take(&bytes),
            };
            if rows > 0 {
                self.blocks.push(block);
            }
            self.rows += rows;
            position += bytes.len() as u64;
            line += lines_of(&bytes).count();
            (self.progress)(position);
        }
        Ok(form)
    }

    /// The form of a text table by its first lines, the number of lines before its rows, and their bytes.
    fn text_form(&self, first: &[u8], is_tsv: bool) -> Result<(Form, usize, usize)> {
        let text = text::as_text(first, self.settings)?;
        let mut lines: Vec<(usize, &[u8])> = lines_of(&text).collect();
        let all = lines.len();
        let form = text::find_form(&mut lines, is_tsv, self.settings, Some(self.expected))?;
        let head_lines = all - lines.len();
        let head = first
            .split_inclusive(|byte| *byte == b'\n')
            .take(head_lines);
        let head: usize = head.map(<[u8]>::len).sum();
        Ok((Form::Text(form), head_lines, head.max(mark_len(first))))
    }

    /// Takes the bytes of a block into the digest; returns their hash.
    fn take(&mut self, bytes: &[u8]) -> u64 {
        self.digest.update(bytes);
        self.hasher.hash_one(bytes)
    }
}

/// Parts of a text, of [`BLOCK_LINES`] lines each, the last of fewer.
struct Pieces<'a, S> {
    source: &'a S,
    /// Where the next bytes are read.
    position: u64,
    buffer: Vec<u8>,
    /// In the buffer: where the next part begins, up to where its lines were counted, and how many there are.
    begins: usize,
    counted: usize,
    lines: usize,
}

impl<'a, S: ReadAt> Pieces<'a, S> {
    fn new(source: &'a S) -> Self {
        Self {
            source,
            position: 0,
            buffer: Vec::new(),
            begins: 0,
            counted: 0,
            lines: 0,
        }
    }

    /// Begins again at this place of the first part, which was the last one to be cut.
    fn restart(&mut self, begins: usize) {
        (self.begins, self.counted, self.lines) = (begins, begins, 0);
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            while self.counted < self.buffer.len() {
                self.counted += 1;
                self.lines += usize::from(self.buffer[self.counted - 1] == b'\n');
                if self.lines == BLOCK_LINES {
                    return Ok(Some(self.cut()));
                }
            }
            let left = self.source.size() - self.position;
            if left == 0 {
                return Ok((self.begins < self.buffer.len()).then(|| self.cut()));
            }
            self.buffer.drain(..self.begins);
            self.counted -= self.begins;
            self.begins = 0;
            let more = left.min(READ_BYTES as u64) as usize;
            self.buffer.extend(read(self.source, self.position, more)?);
            self.position += more as u64;
        }
    }

    /// The bytes up to where lines were counted.
    fn cut(&mut self) -> Vec<u8> {
        let piece = self.buffer[self.begins..self.counted].to_vec();
        self.begins = self.counted;
        self.lines = 0;
        piece
    }
}

fn read(source: &impl ReadAt, position: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let filled = source.read_at(position, &mut bytes);
    filled.map_err(|error| Error::new(format!("it cannot be read: {error}")))?;
    Ok(bytes)
}

/// The bytes of the numbers of a block, in the order of the file.
fn read_array(source: &impl ReadAt, layout: &Layout, block: &Block) -> Result<Vec<u8>> {
    let width = layout.width();
    let at = |number: usize| (layout.begins + number * width) as u64;
    if !layout.fortran_order {
        let columns = layout.columns;
        return read(
            source,
            at(block.first_row * columns),
            block.rows * columns * width,
        );
    }
    let mut bytes = Vec::with_capacity(block.rows * layout.columns * width);
    for column in 0..layout.columns {
        let first = at(column * layout.rows + block.first_row);
        bytes.extend(read(source, first, block.rows * width)?);
    }
    Ok(bytes)
}

/// The numbers of a block, row by row.
fn values(layout: &Layout, bytes: &[u8], block: &Block) -> Vec<f64> {
    let numbers = layout.numbers(bytes);
    if !layout.fortran_order {
        return numbers;
    }
    let places = (0..block.rows)
        .flat_map(|row| (0..layout.columns).map(move |column| column * block.rows + row));
    places.map(|place| numbers[place]).collect()
}

/// The lines of a part of a text that begins with this line.
fn numbered(text: &[u8], first_line: usize) -> impl Iterator<Item = (usize, &[u8])> {
    (first_line..).zip(lines_of(text).map(|(_, line)| line))
}

/// Bytes of the marks of UTF-8 at the beginning of a file.
fn mark_len(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some(next) = rest.strip_prefix("\u{feff}".as_bytes()) {
        rest = next;
    }
    bytes.len() - rest.len()
}

fn changed() -> Error {
    Error::new(
        "it has changed since it was first read; nothing was sent: leave it as it is until the command ends",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        formats::npy,
        settings::{Header, Label},
        testing::{assert_says, strings, study},
    };

    fn site(names: Option<&[&str]>, dimension: usize) -> ExpectedColumns {
        ExpectedColumns {
            site: true,
            ..study(names, dimension)
        }
    }

    fn open(
        name: &str,
        bytes: &[u8],
        settings: Settings,
        expected: &ExpectedColumns,
    ) -> Result<(BlockTable<Vec<u8>>, Vec<String>)> {
        let mut labels = Vec::new();
        let mut label = |label: &str| {
            labels.push(label.to_owned());
            Ok::<(), Error>(())
        };
        let bytes = bytes.to_vec();
        let (path, mut last) = (Path::new(name), 0);
        let table = BlockTable::open(path, bytes, settings, expected, &mut label, &mut |read| {
            assert!(read >= last);
            last = read;
        })?;
        Ok((table, labels))
    }

    /// Bits, as NaN is not equal to itself.
    fn bits(row: &Row) -> Vec<u64> {
        row.values().iter().map(|value| value.to_bits()).collect()
    }

    /// The rows and what is said of their cells, in blocks and as a whole.
    #[track_caller]
    fn as_a_whole(name: &str, bytes: &[u8], settings: &Settings, expected: &ExpectedColumns) {
        let whole = parse(Path::new(name), bytes, settings, Some(expected)).unwrap();
        let (table, labels) = open(name, bytes, settings.clone(), expected).unwrap();
        assert_eq!(table.len(), whole.len(), "{name}");
        assert_eq!(labels, whole.labels(), "{name}");
        assert_eq!(table.file_columns(), whole.file_columns());
        // In any order, across blocks, and twice.
        let len = table.len();
        for numbers in [len / 2..len, 0..len / 2 + 1, 0..0, len - 1..len] {
            let rows = table.rows(numbers.clone()).unwrap();
            let expected = numbers.map(|number| bits(&whole.row(number)));
            assert!(rows.iter().map(bits).eq(expected), "{name}");
        }
        for missing_cells in [false, true] {
            let unreadable = table.unreadable(missing_cells);
            assert_eq!(unreadable, whole.unreadable(missing_cells), "{name}");
        }
        assert_eq!(table.notes(), whole.notes());
    }

    #[test]
    fn blocks_are_the_table() {
        let mut csv = String::from("who,b,a\n");
        for row in 0..1_300 {
            csv += &match row % 97 {
                0 => format!("p{},NA,{row}\n", row % 400),
                1 => format!("p{},{row},<0.5\n", row % 400),
                _ => format!("p{},{row},{}\r\n", row % 400, row * 7 % 11),
            };
        }
        let names: &[&str] = &["a", "b"];
        let labelled = |persons| {
            let settings = Settings {
                label: Some(Label {
                    flag: "--person",
                    column: "who".to_owned(),
                }),
                ..Settings::default()
            };
            let expected = ExpectedColumns {
                persons,
                ..site(Some(names), 2)
            };
            (settings, expected)
        };
        let (settings, expected) = labelled(true);
        as_a_whole("a.csv", csv.as_bytes(), &settings, &expected);
        // A mark, no line feed at the end, and lines that are no rows or belong to nobody.
        let marked = format!("\u{feff}sep=,\n\n{csv},,\np,1,2");
        as_a_whole("a.csv", marked.as_bytes(), &settings, &expected);
        let (settings, expected) = labelled(false);
        let odd = format!("{csv},,\n\n1,2\n1,2,3,4\n");
        as_a_whole("a.csv", odd.as_bytes(), &settings, &expected);
        // UTF-16 is read as a whole.
        let wide: Vec<u8> = csv.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let wide = [&b"\xff\xfe"[..], &wide].concat();
        as_a_whole("a.csv", &wide, &settings, &expected);
        // Bytes that would be another file's beginning, at the beginning of a block.
        let mut bytes = Vec::new();
        for row in 0..1_100 {
            let cell: &[u8] = if row % 512 == 0 { b"\xff\xfe" } else { b"1" };
            bytes.extend([cell, b",2\n"].concat());
        }
        as_a_whole(
            "a.csv",
            &[b"b,a\n", &bytes[..]].concat(),
            &Settings::default(),
            &site(Some(names), 2),
        );
    }

    #[test]
    fn blocks_of_lines_and_arrays_are_the_table() {
        let lines = (0..1_100).map(|row| match row % 7 {
            0 => "# nobody\n".to_owned(),
            1 => "0 2:x\n".to_owned(),
            2 => "no row\n".to_owned(),
            _ => format!("0 1:{row} 3:2\n"),
        });
        let libsvm: String = lines.collect();
        as_a_whole(
            "a.libsvm",
            libsvm.as_bytes(),
            &Settings::default(),
            &site(None, 3),
        );
        let numbers = (0..1_100 * 3).map(|at| {
            if at % 31 == 0 {
                f64::INFINITY
            } else {
                f64::from(at)
            }
        });
        let array = npy::write(1_100, 3, numbers);
        let settings = Settings {
            keep: Some(strings(&["3", "1"])),
            ..Settings::default()
        };
        as_a_whole("a.npy", &array, &settings, &site(None, 2));
        let header = "{'descr': '|u1', 'fortran_order': True, 'shape': (1100, 3), }\n";
        let header_len = u16::try_from(header.len()).unwrap().to_le_bytes();
        let head = [b"\x93NUMPY\x01\x00", &header_len[..], header.as_bytes()].concat();
        let values = (0..3_300).map(|at| (at % 251) as u8);
        let array: Vec<u8> = head.into_iter().chain(values).collect();
        as_a_whole("a.npy", &array, &Settings::default(), &site(None, 3));
    }

    /// Whatever a site's cells are, its table is read: all are told of, and none refuses it.
    #[test]
    fn no_value_refuses_a_sites_table() {
        let names: &[&str] = &["a", "b"];
        for cells in ["x,y\n", "1\n", ",\n", "inf,1e999\n"] {
            let text = format!("a,b\n{}", cells.repeat(40));
            let (table, _) = open(
                "a.csv",
                text.as_bytes(),
                Settings::default(),
                &site(Some(&["a", "b"]), 2),
            )
            .unwrap();
            let rows = table.rows(0..40).unwrap();
            assert!(
                rows.iter()
                    .all(|row| row.values().iter().all(|value| value.is_nan()))
            );
            assert!(table.unreadable(false).is_some(), "{cells}");
        }
        let text = "0 a\n".repeat(40);
        let (table, _) = open(
            "a.libsvm",
            text.as_bytes(),
            Settings::default(),
            &site(None, 2),
        )
        .unwrap();
        assert_eq!(table.rows(0..40).unwrap().len(), 40);
        for (name, text, names, words) in [
            ("a.csv", "", Some(names), "no rows"),
            ("a.csv", "a,b\n", Some(names), "no rows"),
            ("a.csv", "a,c\n1,2\n", Some(names), "b"),
            ("a.libsvm", "# nobody\n", None, "no rows"),
        ] {
            let error = open(name, text.as_bytes(), Settings::default(), &site(names, 2));
            assert_says(&error.unwrap_err(), &[name, words], &[]);
        }
    }

    /// One line of a site's table without a header does not decide how the others are read: in UTF-8 and in UTF-16,
    /// with and without it, they are the same rows.
    #[test]
    fn no_line_of_a_site_decides_how_the_others_are_read() {
        let settings = Settings {
            header: Header::No,
            ..Settings::default()
        };
        let wide = |text: &str| {
            let units = text.encode_utf16().flat_map(u16::to_le_bytes);
            b"\xff\xfe".iter().copied().chain(units).collect()
        };
        let narrow = |text: &str| text.as_bytes().to_vec();
        let encodings: [fn(&str) -> Vec<u8>; 2] = [narrow, wide];
        // Half of the lines suit one reading, half another one, and the line decides between them.
        let semicolons = "0.6;0.8\n".repeat(100);
        let commas = "0.6,0.8\n".repeat(100);
        let long = "0.6,0.8,1\n".repeat(100);
        for (name, before, after, delimiter) in [
            (
                "a.csv",
                format!("{semicolons}{}", "\n".repeat(99)),
                "junk\n",
                None,
            ),
            ("a.csv", format!("{commas}{semicolons}"), "0.6;0.8\n", None),
            (
                "a.csv",
                format!("{semicolons}{commas}"),
                "0.6,0.8\n",
                Some(b';'),
            ),
            ("a.tsv", commas.clone(), "sep=,\n", None),
            ("a.csv", format!("{long}{commas}"), "0.6,0.8,1\n", None),
            ("a.csv", commas.clone(), "sep=;\n", None),
        ] {
            let settings = Settings {
                delimiter,
                ..settings.clone()
            };
            let last = (name, before.clone() + after, 0);
            let first = (name, after.to_owned() + &before, 1);
            for encode in encodings {
                let read = |text: &str| {
                    let table = open(name, &encode(text), settings.clone(), &site(None, 2));
                    let table = table.unwrap().0;
                    let rows = table.rows(0..table.len()).unwrap();
                    rows.iter().map(bits).collect::<Vec<_>>()
                };
                let without = read(&before);
                for (name, text, skipped) in [&last, &first] {
                    let with = read(text);
                    assert_eq!(with.len(), without.len() + 1, "{name} {after}");
                    let rest = &with[*skipped..*skipped + without.len()];
                    assert!(rest == without, "{name} {after}");
                }
            }
        }
        // What only the lines would say is asked for.
        for selection in [
            Settings {
                keep: Some(strings(&["1", "2"])),
                ..settings.clone()
            },
            Settings {
                drop: Some(strings(&["3"])),
                ..settings.clone()
            },
        ] {
            let error = open("a.csv", long.as_bytes(), selection, &site(None, 2));
            assert_says(
                &error.unwrap_err(),
                &["a.csv", "`keep` and `drop` need a header"],
                &[],
            );
        }
    }

    /// A source that changes under the table.
    struct Changing(Mutex<Vec<u8>>);

    impl ReadAt for &Changing {
        fn size(&self) -> u64 {
            self.0.lock().unwrap().size()
        }

        fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<()> {
            self.0.lock().unwrap().read_at(position, buffer)
        }
    }

    #[test]
    fn a_table_that_changes_while_it_is_read_is_refused() {
        let text = "a,b\n".to_owned() + &"1,2\n".repeat(600);
        let source = Changing(Mutex::new(text.into_bytes()));
        let (path, expected) = (Path::new("a.csv"), site(Some(&["a", "b"]), 2));
        let table = BlockTable::open(
            path,
            &source,
            Settings::default(),
            &expected,
            &mut |_| Ok(()),
            &mut |_| {},
        );
        let table = table.unwrap();
        source.0.lock().unwrap()[4 + 4 * 550] = b'7';
        assert_eq!(table.rows(0..512).unwrap().len(), 512);
        let error = table.rows(512..600).unwrap_err();
        assert_says(&error, &["a.csv", "has changed"], &["7"]);
        source.0.lock().unwrap().truncate(100);
        assert_says(&table.rows(0..1).unwrap_err(), &["cannot be read"], &[]);
    }
}
