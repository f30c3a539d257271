//! One figure or table of a paper.

use eigenveil_shared::{Error, Result};

use crate::{
    data::Data,
    plan::{RunPlan, RunSize},
    table::Table,
    verdict::PaperVerdict,
};

/// The source papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Paper {
    /// Maunu, Yu & Lerman, *Stochastic and Private Nonconvex Outlier-Robust PCA*.
    Maunu,
    /// Shang et al., *PCA in the Stochastic Differential Privacy Model* (UAI 2021).
    Shang,
    /// Wang & Xu, *PCA in the Local Differential Privacy Model* (TCS 2020).
    WangXu,
    /// Liu, Kong, Jain & Oh, *DP-PCA* (NeurIPS 2022).
    Liu,
    /// Hardt & Price, *The Noisy Power Method* (NeurIPS 2014).
    HardtPrice,
    /// None of them: our own experiments.
    Ours,
}

impl Paper {
    /// All five, and our own.
    pub const ALL: [Self; 6] = [
        Self::WangXu,
        Self::Maunu,
        Self::Shang,
        Self::Liu,
        Self::HardtPrice,
        Self::Ours,
    ];

    /// Authors, title, place and year.
    pub fn citation(self) -> &'static str {
        match self {
            Self::Maunu => {
                "Maunu, Yu & Lerman, *Stochastic and Private Nonconvex Outlier-Robust PCA*"
            }
            Self::Shang => {
                "Shang et al., *PCA in the Stochastic Differential Privacy Model* (UAI 2021)"
            }
            Self::WangXu => "Wang & Xu, *PCA in the Local Differential Privacy Model* (TCS 2020)",
            Self::Liu => "Liu, Kong, Jain & Oh, *DP-PCA* (NeurIPS 2022)",
            Self::HardtPrice => "Hardt & Price, *The Noisy Power Method* (NeurIPS 2014)",
            Self::Ours => "Our own grids",
        }
    }
}

/// Minutes on two cores, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minutes {
    /// Minutes of a quick run.
    pub quick: f64,
    /// Minutes of a full run.
    pub full: f64,
}

impl Minutes {
    /// Minutes of a quick and of a full run.
    pub const fn new(quick: f64, full: f64) -> Self {
        Self { quick, full }
    }
}

/// One figure or table and how to reproduce it.
pub struct Exhibit {
    /// Name on the command line: the paper's authors and the item, `wang-xu-table-1`.
    pub id: &'static str,
    /// The paper.
    pub paper: Paper,
    /// The paper's name for it.
    pub item: &'static str,
    /// One line: what it shows.
    pub caption: &'static str,
    /// Files it needs.
    pub data: &'static [&'static str],
    /// How it differs from the paper's setting, such as which data set stands in for an unavailable one.
    pub differs_from_paper: Option<&'static str>,
    /// How long it takes.
    pub minutes: Minutes,
    /// Names of the parts of a cell's key, separated by blanks: the first columns of the CSV.
    pub key_columns: &'static str,
    /// Name of a point's coordinate if a run gives several points: `iteration`.
    pub coordinate: Option<&'static str>,
    /// Numbers that are equal in all repeats of a cell, separated by blanks: `true_epsilon`.
    pub per_cell: &'static str,
    /// Numbers that differ between repeats, separated by blanks.
    pub measures: &'static str,
    /// The cells to run.
    pub plan: fn(&Data, RunSize) -> Result<RunPlan>,
    /// Checks the paper's claims against the results.
    pub check_claims: fn(&Table) -> PaperVerdict,
    /// SVG of the results.
    pub to_svg: fn(&Table) -> String,
    /// Markdown table for `docs/papers.md`.
    pub to_markdown: fn(&Table) -> String,
}

impl Exhibit {
    /// An empty exhibit of this paper, to complete with `..`: no files, one point per run, and the error as its only
    /// measure.
    pub const fn of_paper(paper: Paper) -> Self {
        Self {
            id: "",
            paper,
            item: "",
            caption: "",
            data: &[],
            differs_from_paper: None,
            minutes: Minutes::new(0.0, 0.0),
            key_columns: "",
            coordinate: None,
            per_cell: "",
            measures: "error",
            plan: |_, _| Ok(RunPlan::default()),
            check_claims: |_| PaperVerdict { claims: Vec::new() },
            to_svg: |_| String::new(),
            to_markdown: |_| String::new(),
        }
    }

    /// Header of its CSV.
    pub fn header(&self) -> Vec<String> {
        let spread = self.measures.split_whitespace().flat_map(|measure| {
            ["mean", "sd", "q1", "median", "q3"].map(|what| format!("{measure}_{what}"))
        });
        let key = self.key_columns.split_whitespace().chain(self.coordinate);
        key.chain(self.per_cell.split_whitespace())
            .map(str::to_owned)
            .chain(spread)
            .chain(["repeats", "run_size"].map(str::to_owned))
            .collect()
    }

    /// Reads its CSV.
    pub fn parse(&self, text: &str) -> Result<Table> {
        Table::parse(self.header(), text).ok_or_else(|| {
            Error::invalid_request(format!(
                "the table of {0} was written by another version, its columns differ; run it again: eigenveil reproduce {0}",
                self.id
            ))
        })
    }

    /// How many numbers a point has: those per cell, and the measures.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let count = |names: &str| names.split_whitespace().count();
        (count(self.per_cell), count(self.measures))
    }
}
