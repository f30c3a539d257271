//! Every figure and table of the five papers, each as an [`Exhibit`] that runs again.
//!
//! * [`ALL`]: the exhibits; [`find`] by name.
//! * [`run()`]: runs one on all cores, resumes where an earlier run ended, and gives a [`Table`].
//! * [`Exhibit::check_claims`]: what the paper says, held against the table.
//! * [`page()`]: `docs/papers.md`, out of the tables that are kept in `docs/papers`.
//!
//! ```
//! let table_1 = eigenveil_papers::find("wang-xu-table-1")?;
//! assert_eq!(table_1.item, "Table 1");
//! assert!(table_1.data.contains(&"isolet.npy"));
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```

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
pub use plan::{Cell, Plan, Point, Scale};
pub use registry::{ALL, find};
pub use runner::{Progress, RunOptions, run};
pub use table::{Record, Table};
pub use verdict::{Claim, Verdict};

use eigenveil_figures::number;
