//! The journal of finished runs, one line per run, from which an interrupted exhibit resumes.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Seek, Write},
    path::Path,
};

use eigenveil_shared::{Error, Result, error};
use serde::{Deserialize, Serialize};

use crate::plan::Point;

/// The first line: the exhibit, size and version of the runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) exhibit: String,
    pub(crate) size: String,
    pub(crate) version: String,
}

/// A finished run.
#[derive(Serialize, Deserialize)]
struct Line {
    cell: Vec<String>,
    repeat: u64,
    /// Coordinate and values of each point; null for NaN.
    points: Vec<(Option<f64>, Vec<Option<f64>>)>,
}

/// The finished runs, by cell and repeat.
pub(crate) type CompletedRuns = BTreeMap<(Vec<String>, u64), Vec<Point>>;

pub(crate) struct Journal {
    file: File,
}

impl Journal {
    /// Opens the journal and reads its runs: none if it belongs to another exhibit, size or version. A torn last line
    /// is cut off.
    pub(crate) fn open(path: &Path, header: &Header) -> Result<(Self, CompletedRuns)> {
        let failed =
            |error: std::io::Error| error!(Internal, "cannot write {}: {error}", path.display());
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        // Two processes would run everything twice and truncate each other's lines.
        file.try_lock().map_err(|_| {
            Error::invalid_request(format!(
                "{} is in use by another run; wait for it, or give another directory",
                path.display()
            ))
        })?;
        let text = std::fs::read(path).map_err(failed)?;
        let mut done = CompletedRuns::new();
        let mut valid_bytes = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let complete = line.ends_with(b"\n");
            let fits = if valid_bytes == 0 {
                serde_json::from_slice::<Header>(line).is_ok_and(|found| found == *header)
            } else {
                match serde_json::from_slice::<Line>(line) {
                    Ok(line) if complete => {
                        let points = line.points.into_iter().map(|(at, values)| Point {
                            at,
                            values: values
                                .into_iter()
                                .map(|value| value.unwrap_or(f64::NAN))
                                .collect(),
                        });
                        done.insert((line.cell, line.repeat), points.collect());
                        true
                    }
                    _ => false,
                }
            };
            if !(fits && complete) {
                break;
            }
            valid_bytes += line.len();
        }
        file.set_len(valid_bytes as u64).map_err(failed)?;
        file.seek(std::io::SeekFrom::End(0)).map_err(failed)?;
        let mut journal = Self { file };
        if valid_bytes == 0 {
            journal.append(header)?;
        }
        Ok((journal, done))
    }

    /// Appends a run and syncs it to disk.
    pub(crate) fn add(&mut self, cell: &[String], repeat: u64, points: &[Point]) -> Result<()> {
        let number = |value: &f64| Some(*value).filter(|value| value.is_finite());
        self.append(&Line {
            cell: cell.to_vec(),
            repeat,
            points: points
                .iter()
                .map(|point| (point.at, point.values.iter().map(number).collect()))
                .collect(),
        })
    }

    fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let failed = |error: String| error!(Internal, "cannot write the journal: {error}");
        let mut line = serde_json::to_vec(line).map_err(|error| failed(error.to_string()))?;
        line.push(b'\n');
        // In one write: only the last line can be torn.
        self.file
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(size: &str) -> Header {
        Header {
            exhibit: "wang-xu-table-1".to_owned(),
            size: size.to_owned(),
            version: "1".to_owned(),
        }
    }

    #[test]
    fn appended_runs_are_read_back_and_a_torn_line_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let key = ["isolet".to_owned()];
        let points = [Point {
            at: Some(3.0),
            values: vec![0.1 + 0.2, f64::NAN],
        }];
        let (mut journal, done) = Journal::open(&path, &header("quick")).unwrap();
        assert!(done.is_empty());
        journal.add(&key, 0, &points).unwrap();
        journal.add(&key, 1, &points).unwrap();
        drop(journal);
        let text = std::fs::read(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let (_, done) = Journal::open(&path, &header("quick")).unwrap();
            let lines = text[..cut].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(done.len(), lines.saturating_sub(1), "cut at {cut}");
            // Whatever was cut, the file can be added to.
            let (mut journal, _) = Journal::open(&path, &header("quick")).unwrap();
            journal.add(&key, 7, &points).unwrap();
            drop(journal);
            let (_, done) = Journal::open(&path, &header("quick")).unwrap();
            let point = &done[&(key.to_vec(), 7)][0];
            assert_eq!(point.at, Some(3.0));
            assert_eq!(point.values[0], 0.1 + 0.2);
            assert!(point.values[1].is_nan());
        }
    }

    #[test]
    fn two_runs_do_not_share_a_journal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (first, _) = Journal::open(&path, &header("quick")).unwrap();
        let error = Journal::open(&path, &header("quick")).err().unwrap();
        assert!(error.detail().contains("another run"), "{error}");
        drop(first);
        assert!(Journal::open(&path, &header("quick")).is_ok());
    }

    #[test]
    fn another_size_starts_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (mut journal, _) = Journal::open(&path, &header("quick")).unwrap();
        journal.add(&["a".to_owned()], 0, &[]).unwrap();
        drop(journal);
        let (_, done) = Journal::open(&path, &header("full")).unwrap();
        assert!(done.is_empty());
        let (_, done) = Journal::open(&path, &header("quick")).unwrap();
        assert!(done.is_empty());
    }
}
