//! `eigenveil reproduce`: runs the papers' figures and tables again.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use eigenveil_papers::{
    ALL, Claim, Data, Exhibit, PaperVerdict, Progress, RunOptions, RunSize, find, page,
    run as run_exhibit,
};
use serde::Serialize;

use crate::{
    error::{CliError, Result},
    files, output, results,
};

/// Run figures and tables of the papers again and say whether they agree
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  eigenveil reproduce list\n  eigenveil reproduce wang-xu-figure-3\n  eigenveil reproduce wang-xu-table-1 wang-xu-table-2 --full --data ../shared/data\n  eigenveil reproduce all --data ../shared/data --out reproduced\n\nEach writes ID.csv and ID.svg to --out and prints one line: whether the paper's claims hold, and the evidence. An interrupted run resumes where it stopped; --overwrite replaces a finished one. Seeds are fixed: the same command gives the same numbers."
)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    command: Option<ReproduceCommand>,
    /// Names from `eigenveil reproduce list`, or all
    #[arg(required = true, value_name = "ID")]
    exhibits: Vec<String>,
    /// Fewer repeats (at least five) and coarser sweeps: all within 20 minutes on two cores (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Use the papers' sizes; takes hours
    #[arg(long)]
    full: bool,
    /// Directory of the data sets; `list` shows what each exhibit needs
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory for the results and for checkpoints; one that has a result of an exhibit already is refused
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// Replace existing results, each after its new one is computed
    #[arg(long)]
    overwrite: bool,
    /// Start over instead of resuming an interrupted run
    #[arg(long)]
    restart: bool,
}

#[derive(Debug, Subcommand)]
enum ReproduceCommand {
    /// List all figures and tables: what each shows, how long it takes, what data it needs
    #[command(after_help = "Example:\n  eigenveil reproduce list --json")]
    List,
    /// Make the page docs/papers.md from a directory of results, and redraw the figures
    #[command(
        after_help = "Example:\n  eigenveil reproduce page --results docs/papers --out docs/papers.md"
    )]
    Page {
        /// Directory with the CSV of each exhibit
        #[arg(long, value_name = "DIR")]
        results: PathBuf,
        /// Write the page here [default: to standard output]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Default, Serialize)]
struct Outcome {
    id: &'static str,
    verdict: Option<&'static str>,
    claims: Vec<Claim>,
    csv: Option<PathBuf>,
    svg: Option<PathBuf>,
    /// Why it was not run.
    not_run: Option<String>,
}

pub(crate) fn run(args: &ReproduceArgs, json: bool) -> Result<()> {
    match &args.command {
        Some(ReproduceCommand::List) => return list(json),
        Some(ReproduceCommand::Page { results, out }) => {
            return write_page(results, out.as_deref());
        }
        None => {}
    }
    let exhibits: Vec<&'static Exhibit> = match &args.exhibits[..] {
        [all] if all == "all" => ALL.iter().collect(),
        names => {
            let exhibits = names.iter().map(|name| find(name));
            exhibits.collect::<std::result::Result<_, _>>()?
        }
    };
    let size = match args.full {
        true => RunSize::Full,
        false => RunSize::Quick,
    };
    // An interrupted run may overwrite the files that it left.
    let without_journal = exhibits.iter();
    let without_journal =
        without_journal.filter(|exhibit| !journal_path(&args.out, exhibit).exists());
    let names =
        without_journal.flat_map(|exhibit| ["csv", "svg"].map(|kind| file_name(exhibit, kind)));
    let names: Vec<String> = names.collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    results::check(&args.out, &names, args.overwrite)?;
    let mut outcomes = Vec::new();
    for (index, exhibit) in exhibits.iter().enumerate() {
        let data = Data::new(args.data.as_deref());
        let outcome = match data.require(exhibit.id, exhibit.data) {
            // The other exhibits run anyway, and the command fails in the end.
            Err(error) => {
                output::print_warning(error.detail());
                Outcome {
                    id: exhibit.id,
                    not_run: Some(error.detail().to_owned()),
                    ..Outcome::default()
                }
            }
            Ok(()) => {
                std::fs::create_dir_all(&args.out)?;
                let title = format!("{} ({} of {})", exhibit.id, index + 1, exhibits.len());
                run_exhibit_to_files(exhibit, &data, args, size, &title, json)?
            }
        };
        outcomes.push(outcome);
    }
    // The journals are removed only now, so that an interrupted command does not repeat finished exhibits.
    for exhibit in &exhibits {
        // An exhibit that was not run has none.
        let _ = std::fs::remove_file(journal_path(&args.out, exhibit));
    }
    let missing = outcomes.iter().filter(|outcome| outcome.not_run.is_some());
    let missing: Vec<&str> = missing.map(|outcome| outcome.id).collect();
    if json {
        output::json(&serde_json::json!({ "run_size": size.as_str(), "exhibits": outcomes }))?;
    }
    match missing.len() {
        0 => Ok(()),
        count => Err(CliError::failed(format!(
            "{count} of {} exhibits were not run because their data is missing: {}",
            exhibits.len(),
            missing.join(", ")
        ))),
    }
}

fn file_name(exhibit: &Exhibit, kind: &str) -> String {
    format!("{}.{kind}", exhibit.id)
}

fn journal_path(out: &Path, exhibit: &Exhibit) -> PathBuf {
    out.join(file_name(exhibit, "journal"))
}

fn run_exhibit_to_files(
    exhibit: &'static Exhibit,
    data: &Data,
    args: &ReproduceArgs,
    size: RunSize,
    title: &str,
    json: bool,
) -> Result<Outcome> {
    let bar = output::bar(0, title);
    let options = RunOptions {
        size,
        journal: journal_path(&args.out, exhibit),
        restart: args.restart,
    };
    let noted = std::sync::Once::new();
    let on_progress = |progress: Progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        noted.call_once(|| {
            if progress.resumed > 0 {
                bar.suspend(|| {
                    output::print_notes(&[format!(
                        "{}: {} of {} runs were done before; --restart forgets them",
                        exhibit.id, progress.resumed, progress.total
                    )]);
                });
            }
        });
    };
    let table = run_exhibit(exhibit, data, &options, &on_progress);
    bar.finish_and_clear();
    let table = table?;
    let [csv, svg] = ["csv", "svg"].map(|kind| args.out.join(file_name(exhibit, kind)));
    files::write(&csv, table.to_csv().as_bytes())?;
    files::write(&svg, (exhibit.to_svg)(&table).as_bytes())?;
    let verdict: PaperVerdict = (exhibit.check_claims)(&table);
    if !json {
        output::text(&format!("{} {}", exhibit.id, verdict.line()))?;
    }
    Ok(Outcome {
        id: exhibit.id,
        verdict: Some(verdict.summary_word()),
        claims: verdict.claims,
        csv: Some(csv),
        svg: Some(svg),
        not_run: None,
    })
}

fn list(json: bool) -> Result<()> {
    if json {
        let entry = |exhibit: &Exhibit| {
            serde_json::json!({
                "id": exhibit.id,
                "paper": exhibit.paper.citation(),
                "item": exhibit.item,
                "caption": exhibit.caption,
                "data": exhibit.data,
                "differs_from_paper": exhibit.differs_from_paper,
                "minutes_quick": exhibit.minutes.quick,
                "minutes_full": exhibit.minutes.full,
            })
        };
        let listed: Vec<_> = ALL.iter().map(entry).collect();
        return output::json(&serde_json::json!({ "exhibits": listed }));
    }
    let mut paper = None;
    for exhibit in ALL {
        if paper != Some(exhibit.paper) {
            output::text(exhibit.paper.citation())?;
            paper = Some(exhibit.paper);
        }
        output::text(&format!(
            "  {:<18} {:<10} {}\n    minutes    {} quick, {} full",
            exhibit.id, exhibit.item, exhibit.caption, exhibit.minutes.quick, exhibit.minutes.full
        ))?;
        if !exhibit.data.is_empty() {
            output::text(&format!("    data       {}", exhibit.data.join(", ")))?;
        }
        if let Some(differs_from_paper) = exhibit.differs_from_paper {
            output::text(&format!("    differs from the paper  {differs_from_paper}"))?;
        }
    }
    Ok(())
}

fn write_page(results: &Path, out: Option<&Path>) -> Result<()> {
    let mut first_error = None;
    let mut drawn = Vec::new();
    let text = page(|exhibit| {
        let path = results.join(format!("{}.csv", exhibit.id));
        let text = files::read_text(&path).ok()?;
        let table = exhibit
            .parse(&text)
            .map_err(|error| first_error = Some(error));
        let table = table.ok()?;
        drawn.push((exhibit.id, (exhibit.to_svg)(&table)));
        Some(table)
    });
    if let Some(error) = first_error {
        return Err(error.into());
    }
    match out {
        Some(path) => {
            // The page shows these figures, whose titles and sentences may have changed since the tables were made.
            for (id, svg) in drawn {
                files::write(&results.join(format!("{id}.svg")), svg.as_bytes())?;
            }
            files::write(path, text.as_bytes())
        }
        None => output::text(text.trim_end()),
    }
}
