//! What an exhibit runs: cells, each with its repeats.

use std::fmt;

use eigenveil_shared::Result;

/// How much to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSize {
    /// Fewer repeats (at least five) and coarser sweeps.
    Quick,
    /// The paper's size.
    Full,
}

impl RunSize {
    /// Picks the setting for this size.
    pub fn choose<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }

    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        self.choose("quick", "full")
    }
}

impl fmt::Display for RunSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The result of one run at one coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The coordinate, if the exhibit has one.
    pub at: Option<f64>,
    /// Values of [`Exhibit::per_cell`](crate::Exhibit::per_cell), then those of
    /// [`Exhibit::measures`](crate::Exhibit::measures); NaN where there is none.
    pub values: Vec<f64>,
}

impl Point {
    /// The only point of a run.
    pub fn single(values: impl Into<Vec<f64>>) -> Self {
        Self {
            at: None,
            values: values.into(),
        }
    }
}

/// A run: takes the number of the repeat, which is its seed, and returns its points.
type RunFn = Box<dyn Fn(u64) -> Result<Vec<Point>> + Send + Sync>;

/// A setting with its repeats.
pub struct Cell {
    /// One part for each of [`Exhibit::key_columns`](crate::Exhibit::key_columns).
    pub key: Vec<String>,
    /// Number of repeats.
    pub repeats: u64,
    pub(crate) work: RunFn,
}

impl Cell {
    /// A cell whose runs are calls of `work`.
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
    /// Whether one run uses all cores; otherwise each run uses one core, and as many run at once as there are cores.
    pub one_run_at_a_time: bool,
}
