//! `docs/papers.md`, made from the stored tables.

use crate::{
    exhibit::{Exhibit, Paper},
    registry::ALL,
    table::Table,
};

const PAGE_HEAD: &str = "\
# The papers, run again

Every figure and table of the five papers, each with the command that makes it again. This page is made from the tables
in [papers/](papers), which `eigenveil reproduce` writes; neither is written by hand.

<!-- made by: cargo run --release -p eigenveil -- reproduce page --results docs/papers --out docs/papers.md -->

**How to read it.** Cells are mean ± standard deviation over the repeats, with the true ε at the same δ in brackets.
`as-published` is the paper's noise; `accounted` is the same algorithm with the least noise that keeps its claim;
`double-cap` is what we use instead. An item \"agrees\" if each of its claims holds in our numbers. We have the papers'
text, not their figures, so each figure is compared with what the text says about it. What we refuted on the way is in
[what did not hold](findings.md).
";

/// The page, from the stored tables; an exhibit without a table is listed as not run.
pub fn page(mut table: impl FnMut(&Exhibit) -> Option<Table>) -> String {
    let mut text = PAGE_HEAD.to_owned();
    let run: Vec<(&Exhibit, Option<Table>)> = ALL
        .iter()
        .map(|exhibit| (exhibit, table(exhibit)))
        .collect();
    text.push_str("\n| | item | verdict | what it shows |\n|---|---|---|---|\n");
    for (exhibit, table) in &run {
        let word = table.as_ref().map_or("not run", |table| {
            (exhibit.check_claims)(table).summary_word()
        });
        text.push_str(&format!(
            "| [{0}](#{0}) | {1} | {word} | {2} |\n",
            exhibit.id, exhibit.item, exhibit.caption
        ));
    }
    for paper in Paper::ALL {
        text.push_str(&format!("\n## {}\n", paper.citation()));
        for (exhibit, table) in run.iter().filter(|(exhibit, _)| exhibit.paper == paper) {
            text.push_str(&section(exhibit, table.as_ref()));
        }
    }
    text
}

fn section(exhibit: &Exhibit, table: Option<&Table>) -> String {
    let Exhibit { id, caption, .. } = exhibit;
    let size = table
        .and_then(|table| table.records().first())
        .map_or("full", |record| record.text("run_size"));
    let mut text = format!(
        "\n### {id}\n{}`eigenveil reproduce {id} --{size}",
        wrap(&format!("{caption}."))
    );
    if !exhibit.data.is_empty() {
        text.push_str(" --data DIR");
    }
    text.push('`');
    if table.is_some() {
        text.push_str(&format!(" · [CSV](papers/{id}.csv)"));
    }
    text.push('\n');
    if let Some(differs_from_paper) = exhibit.differs_from_paper {
        text.push_str(&wrap(&format!(
            "**Not as in the paper**: {differs_from_paper}."
        )));
    }
    let Some(table) = table else {
        text.push_str("\nNot run yet.\n");
        return text;
    };
    let verdict = (exhibit.check_claims)(table);
    text.push_str(&wrap(&format!("**It {}.**", verdict.summary_word())));
    for claim in &verdict.claims {
        let word = if claim.holds {
            "holds"
        } else {
            "**does not hold**"
        };
        text.push_str(&wrap(&format!(
            "* {}: {word}; {}.",
            claim.claim, claim.evidence
        )));
    }
    let picture = wrap(&format!("![{caption}](papers/{id}.svg)"));
    text.push_str(&format!("\n{picture}\n"));
    text.push_str(&(exhibit.to_markdown)(table));
    text
}

/// Lines of at most 120 characters.
fn wrap(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > 118 {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}
