//! One figure or table of a paper.

use eigenveil_shared::Result;

use crate::{
    data::Data,
    plan::{RunPlan, RunSize},
    table::Table,
    verdict::Verdict,
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
    /// Our own experiments.
    Ours,
}

impl Paper {
    /// The five papers, then our own.
    pub const ALL: [Self; 6] = [
        Self::WangXu,
        Self::Maunu,
        Self::Shang,
        Self::Liu,
        Self::HardtPrice,
        Self::Ours,
    ];

    /// Authors as the names of its exhibits begin.
    pub fn id_prefix(self) -> &'static str {
        match self {
            Self::Maunu => "maunu",
            Self::Shang => "shang",
            Self::WangXu => "wang-xu",
            Self::Liu => "liu",
            Self::HardtPrice => "hardt-price",
            Self::Ours => "own",
        }
    }

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
    /// Of a quick run.
    pub quick: f64,
    /// Of a full run.
    pub full: f64,
}

impl Minutes {
    /// Of a quick run, and of a full one.
    pub const fn new(quick: f64, full: f64) -> Self {
        Self { quick, full }
    }
}

/// One figure or table, and how it is made again.
pub struct Exhibit {
    /// Name on the command line: the paper's authors and the item, `wang-xu-table-1`.
    pub id: &'static str,
    /// Its paper.
    pub paper: Paper,
    /// Its name in the paper.
    pub item: &'static str,
    /// What it shows, in one line.
    pub caption: &'static str,
    /// Files it needs.
    pub data: &'static [&'static str],
    /// Where the setting is not the paper's: what is missing, and its substitute.
    pub differs_from_paper: Option<&'static str>,
    /// How long it takes.
    pub minutes: Minutes,
    /// The first columns of the CSV, which together identify a cell.
    pub key_columns: &'static [&'static str],
    /// Column of the coordinate, where a run gives several points: `iteration`.
    pub coordinate: Option<&'static str>,
    /// Numbers equal in all repeats of a cell: `true_epsilon`.
    pub per_cell: &'static [&'static str],
    /// Numbers that differ between repeats.
    pub measures: &'static [&'static str],
    /// The cells to run.
    pub plan: fn(&Data, RunSize) -> Result<RunPlan>,
    /// Compares the paper's claims with the results.
    pub check_claims: fn(&Table) -> Verdict,
    /// SVG of the results.
    pub to_svg: fn(&Table) -> String,
    /// Markdown table for `docs/papers.md`: the paper's number, ours, spread.
    pub to_markdown: fn(&Table) -> String,
}

impl Exhibit {
    /// An exhibit of this paper that shows nothing yet: no files, nothing that cannot be had, one point a run, and the
    /// error as its only measure.
    pub const fn of(paper: Paper) -> Self {
        Self {
            id: "",
            paper,
            item: "",
            caption: "",
            data: &[],
            differs_from_paper: None,
            minutes: Minutes::new(0.0, 0.0),
            key_columns: &[],
            coordinate: None,
            per_cell: &[],
            measures: &["error"],
            plan: |_, _| Ok(RunPlan::default()),
            check_claims: |_| Verdict { claims: Vec::new() },
            to_svg: |_| String::new(),
            to_markdown: |_| String::new(),
        }
    }

    /// Header of its CSV.
    pub fn header(&self) -> Vec<String> {
        let spread = self.measures.iter().flat_map(|measure| {
            ["mean", "sd", "q1", "median", "q3"].map(|what| format!("{measure}_{what}"))
        });
        let fixed = [self.columns, self.coordinate.as_slice(), self.constants].concat();
        fixed
            .into_iter()
            .map(str::to_owned)
            .chain(spread)
            .chain(["repeats", "run_size"].map(str::to_owned))
            .collect()
    }
}
