//! Every figure and table of the five papers, each as an [`Exhibit`] that can be run again.

mod data;
mod exhibit;
mod hardt_price;
mod journal;
mod liu;
mod maunu;
mod own;
mod page;
mod plan;
mod registry;
mod runner;
mod runs;
mod shang;
mod sweep;
mod table;
mod verdict;
mod wang_xu;

pub use data::Data;
pub use exhibit::{Exhibit, Minutes, Paper};
pub use page::page;
pub use plan::{Cell, Point, RunPlan, RunSize};
pub use registry::{ALL, find};
pub use runner::{Progress, RunOptions, run};
pub use table::{Record, Table};
pub use verdict::{Claim, PaperVerdict};

use eigenveil_figures::number;
