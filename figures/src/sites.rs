//! The sites behind an estimate as tables, formatted once for pages, files and the terminal.

use eigenveil_estimation::format::{three_digits, with_thousands};
use eigenveil_shared::{
    estimate::Estimate,
    site_estimate::{SiteDifference, SiteLine},
    wording::percent,
};

use crate::DataTable;

/// One line for each site: rows, share, how it compares, and by how much the components move without it. `None` where each
/// report is of one row.
pub fn site_table(estimate: &Estimate) -> Option<DataTable> {
    let sites = estimate.sites.as_ref()?;
    let names = estimate.feature_names();
    let rows = sites.sites.iter().map(|line| {
        vec![
            line.site.clone(),
            counted(line),
            percent(line.share),
            verdict(line),
            difference(line.means.as_ref(), &names),
            difference(line.moments.as_ref(), &names),
            number(line.movement),
            number(line.expected_movement),
            line.robust_factor.map_or_else(dash, percent),
        ]
    });
    let headers = [
        "Site",
        "Rows",
        "Share",
        "Beside the others",
        "Means differ by",
        "Second moments differ by",
        "Components move without it",
        "If it is alike",
        "Weight kept in the robust estimate",
    ];
    Some(DataTable::new("Sites", headers, rows))
}

/// The intervals of each component's variance, by target; `None` where each report is of one row, and without components.
pub fn interval_table(estimate: &Estimate) -> Option<DataTable> {
    let sites = estimate.sites.as_ref().filter(|_| estimate.k > 0)?;
    let rows = sites.intervals.iter().enumerate().map(|(j, of)| {
        let ends = [of.rows, of.populations, of.sites].map(interval);
        [vec![(j + 1).to_string()], ends.to_vec()].concat()
    });
    let headers = [
        "Component",
        "These very rows",
        "The populations that they are from",
        "Sites like these",
    ];
    let caption = "Variance of each component, 95 % intervals by target";
    Some(DataTable::new(caption, headers, rows))
}

/// "other means", or that another site may be the one.
fn verdict(line: &SiteLine) -> String {
    match line.verdict {
        Some(verdict) if line.one_of_several => {
            format!("{}: it, or another one that stands out", verdict.in_words())
        }
        Some(verdict) => verdict.in_words().to_owned(),
        None if line.rows > 0.0 => dash(),
        None => "not compared: no rows that show".to_owned(),
    }
}

/// "12,345 in 2 reports".
fn counted(line: &SiteLine) -> String {
    let rows = with_thousands(line.rows.max(0.0).round() as u64);
    match line.reports {
        1 => rows,
        many => format!("{rows} in {many} reports"),
    }
}

/// "0.093 (0.081 to 0.105), most in hba1c: +0.090 ± 0.012".
fn difference(found: Option<&SiteDifference>, names: &[String]) -> String {
    found.map_or_else(dash, |found| {
        let (low, high) = found.interval;
        let sign = if found.along_feature < 0.0 {
            "−"
        } else {
            "+"
        };
        format!(
            "{} ({} to {}), most in {}: {sign}{} ± {}",
            three_digits(found.size),
            three_digits(low),
            three_digits(high),
            names.get(found.feature).map_or("", String::as_str),
            three_digits(found.along_feature.abs()),
            three_digits(found.along_feature_se)
        )
    })
}

fn interval(ends: Option<(f64, f64)>) -> String {
    ends.map_or_else(dash, |(low, high)| {
        format!("{} to {}", three_digits(low), three_digits(high))
    })
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(dash, three_digits)
}

fn dash() -> String {
    "–".to_owned()
}
