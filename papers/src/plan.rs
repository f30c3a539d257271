//! What an exhibit runs: cells, each so many times.

use std::fmt;

use eigenveil_shared::Result;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSize {
    /// Enough to see what it shows: fewer repeats, never below five seeds, and coarser sweeps.
    Quick,
    /// As the paper has it.
    Full,
}

impl RunSize {
    /// The one of two settings that belongs to this run size.
    pub fn choose<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// As written on the command line.
    pub fn as_str(self) -> &'static str {
        self.choose("quick", "full")
    }
}

impl fmt::Display for RunSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one run gives at one coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The coordinate, where the exhibit has one.
    pub at: Option<f64>,
    /// Those of [`Exhibit::per_cell`](crate::Exhibit::constants), then those of
    /// [`Exhibit::measures`](crate::Exhibit::measures); not a number where there is none.
    pub values: Vec<f64>,
}

impl Point {
    /// The only point of a run.
    pub fn only(values: impl Into<Vec<f64>>) -> Self {
        Self {
            at: None,
            values: values.into(),
        }
    }
}

/// A run: from the number of the repeat, which is its seed, to its points.
type Work = Box<dyn Fn(u64) -> Result<Vec<Point>> + Send + Sync>;

/// A setting with its repeats.
pub struct Cell {
    /// One part for each of [`Exhibit::key_columns`](crate::Exhibit::key_columns).
    pub key: Vec<String>,
    /// How often it runs.
    pub repeats: u64,
    pub(crate) work: Work,
}

impl Cell {
    /// A cell that `work` runs.
    pub fn new<const N: usize>(
        key: [&dyn fmt::Display; N],
        repeats: u64,
        work: impl Fn(u64) -> Result<Vec<Point>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            key: key.iter().map(ToString::to_string).collect(),
            repeats,
            work: Box::new(work),
        }
    }
}

/// All of an exhibit's cells.
#[derive(Default)]
pub struct RunPlan {
    /// In the order of the CSV.
    pub cells: Vec<Cell>,
    /// Whether one run takes all cores; otherwise each takes one, and as many run at once as there are cores.
    pub together: bool,
}
