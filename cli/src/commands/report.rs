//! `eigenveil report`: rows of a file as participants.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, IsTerminal as _},
    path::{Path, PathBuf},
    thread,
};

use clap::Args;
use eigenveil_client::{
    Limits, Outbox, PreparedReport, RowLedger, Spent,
    http::{Sent, Study, StudyClient, UploadMode, UploadSettings, Uploader},
};
use eigenveil_shared::{
    ErrorCode, api::StudyDocument, enrolment::ParticipantToken, privacy::delta_text,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::http_settings;
use crate::{
    args::ServerArgs,
    error::{CliError, Result},
    output,
    rows::{self, RowTable, TableArgs, Wanted},
    shares::Shares,
};

/// Rows perturbed before they are synced to the outbox together.
const PREPARED_AT_ONCE: usize = 1_024;
/// Name of the outbox in its directory.
const OUTBOX: &str = "outbox.db";
/// What of the row file the outbox remembers.
const ROWS_DIGEST: &str = "rows_sha256";
/// How it was read: rows of another header or of other columns are other rows.
const READ_AS: &str = "rows_read_as";

/// Perturb the rows of a file, one participant each, and upload them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil report --server http://127.0.0.1:8080 --study ID --rows rows.npy\n  eigenveil report --study ID --rows people.csv --drop id --ledger people.ledger --limit-epsilon 20\n\nColumns are matched by name with the study's features, where it has names, before anything is perturbed or charged.\nCSV and TSV: where the features have no names, --header yes or --header no says what the first line is; it is not\nguessed, because that would depend on the first participant's row.\n\nEach row is perturbed once and its report is written to the outbox (--state, default FILE.eigenveil) before it is sent.\nRunning the command again finishes what an earlier run did not, and never counts a row twice.\nThe outbox remembers which token goes with which row: --tokens is needed once.\nA row with a field that is missing, infinite or not a number, with too many fields or a LIBSVM index beyond the\nstudy's dimension, or longer than --norm require allows, is sent as the zero row: whether a row is sent must not tell what is in it. Only you are told how many such rows there were.\n\nThe ledger (--ledger, default FILE.ledger beside the rows) keeps what each row has spent in all studies, whatever\noutbox it was in, and refuses what would pass its limits, and a second report of a row for the same study. Row i of\nevery file that is used with a ledger is participant i. eigenveil receipt shows it."
)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Identifier of the study
    #[arg(long, value_name = "ID")]
    study: String,
    /// Fingerprint the study must have; refuses to take part in anything else
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
    /// Rows: .csv, .tsv, .parquet, .npy or .libsvm; one row = one participant
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// Directory of the outbox; beside the row file when absent
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// What each row has spent, over all studies and outboxes; beside the row file when absent
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    #[command(flatten)]
    limits: LimitArgs,
    /// The file has changed, but row i is still the same participant as row i of the earlier files
    #[arg(long)]
    same_participants: bool,
    /// One-time tokens of a study that wants them, one a line: line i is for row i (see study tokens)
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Send one report per request instead of batches
    #[arg(long)]
    no_batch: bool,
    /// Number of connections to use at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Send prepared reports although the study's purpose or responsible party has changed since
    #[arg(long)]
    accept_new_purpose: bool,
    /// Do not ask, on a terminal, when one column or the mean has most of the rows' squared length
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    table: TableArgs,
}

/// What each row may spend, as kept in the ledger.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Largest ε that a row may spend in all studies together; kept in the ledger [default in a new ledger: 16.01]
    #[arg(long, value_name = "EPSILON")]
    limit_epsilon: Option<f64>,
    /// Largest ε that a row may spend in one study; kept in the ledger [default in a new ledger: 8.001]
    #[arg(long, value_name = "EPSILON")]
    limit_epsilon_per_study: Option<f64>,
    /// Largest δ that a row may spend in all studies together; kept in the ledger [default in a new ledger: 1e-5]
    #[arg(long, value_name = "DELTA")]
    limit_delta: Option<f64>,
}

impl LimitArgs {
    /// Writes the limits that were given into the ledger.
    fn keep(&self, ledger: &mut RowLedger) -> Result<()> {
        let kept = ledger.limits()?;
        let wanted = Limits::new(
            self.limit_epsilon_per_study
                .unwrap_or(kept.epsilon_per_study()),
            self.limit_epsilon.unwrap_or(kept.epsilon_total()),
            self.limit_delta.unwrap_or(kept.delta_total()),
        )?;
        if wanted != kept {
            ledger.set_limits(wanted)?;
        }
        Ok(())
    }
}

/// What the ledger says after this run.
#[derive(Serialize)]
struct Charged {
    /// What this study costs each row: what the ledger was charged.
    epsilon: f64,
    delta: f64,
    /// Rows charged by this run; the others were before.
    rows: u64,
    /// What the row that spent most has spent, and may spend, in all studies.
    spent: Spent,
    limits: Limits,
    ledger: String,
}

#[derive(Serialize)]
struct Reported {
    study: String,
    rows: u64,
    accepted: u64,
    duplicates: u64,
    refused: u64,
    pending: u64,
    acknowledged: u64,
    unusable: u64,
    bytes: u64,
    retries: u64,
    seconds: f64,
    state: String,
    charged: Charged,
}

pub(crate) async fn run(args: &ReportArgs, json: bool) -> Result<()> {
    let client = StudyClient::with_settings(&args.server.server, &http_settings(&args.server)?)?;
    let study = client.fetch_study(&args.study).await?;
    if let Some(pinned) = &args.fingerprint
        && !pinned.eq_ignore_ascii_case(&study.fingerprint().to_string())
    {
        return Err(eigenveil_shared::Error::new(
            ErrorCode::WrongFingerprint,
            format!(
                "the study has fingerprint {}, not {pinned} as given; do not take part",
                study.fingerprint()
            ),
        )
        .into());
    }
    let state = args
        .state
        .clone()
        .unwrap_or_else(|| beside(&args.rows, ".eigenveil"));
    let participant = study.participant();
    // Before anything is made for it. What an earlier run has prepared is sent all the same: the server may have
    // counted it.
    if !state.join(OUTBOX).exists() {
        participant.check_open()?;
    }
    // One read: what is fingerprinted is what is perturbed.
    let bytes = rows::read_bytes(&args.rows)?;
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    let params = study.params();
    let wanted = Wanted::study(params.dimension(), params.feature_names());
    let table = rows::parse(&args.rows, &bytes, &args.table, Some(&wanted))?;
    output::notes(table.notes());
    let book = args.ledger.clone().unwrap_or_else(|| {
        // A link to the rows has the ledger of the rows.
        beside(
            &fs::canonicalize(&args.rows).unwrap_or_else(|_| args.rows.clone()),
            ".ledger",
        )
    });
    let mut ledger = RowLedger::open(&book)?;
    let mut file = ledger.row_file(table.len() as u64, &bytes)?;
    if args.same_participants {
        file = file.of_the_same_participants();
    }
    drop(bytes);
    output::make_dir(&state)?;
    let mut outbox = Outbox::open(state.join(OUTBOX), study.binding()).map_err(|error| {
        if !error.is_outbox_of_other_study() {
            return CliError::from(error);
        }
        let other = beside(&args.rows, &format!(".{}", study.id()));
        let message = format!(
            "{}; for this study give --state DIR of its own, such as --state {}",
            error.detail(),
            output::quoted(&other.display().to_string())
        );
        CliError::from(error).with_message(message)
    })?;
    let counts = outbox.counts()?;
    let is_empty = counts.pending + counts.acknowledged + counts.refused == 0;
    // Not what the digest is and was: one of a short file can be compared with guesses at it.
    for (key, value, differs) in [
        (
            ROWS_DIGEST,
            digest.to_vec(),
            "has changed since its reports were prepared; each row's report is made only once: restore the file, or use another --state for other participants",
        ),
        (
            READ_AS,
            read_as(&table),
            "was read with another header or other columns when its reports were prepared; each row's report is made only once: give the flags that were given then",
        ),
    ] {
        match outbox.get_meta(key)? {
            Some(known) if known == value => {}
            // Of a run that prepared nothing: the file may have been mended since.
            Some(_) if !is_empty => {
                return Err(CliError::usage(format!(
                    "{} {differs}",
                    args.rows.display()
                )));
            }
            _ => outbox.set_meta(key, &value)?,
        }
    }
    // Before it is agreed to. The ledger keeps the same for the receipt.
    if !json {
        output::say(&who_asks(study.document()));
    }
    // What is prepared already is not asked about: it will be sent as it is, for what its owner was told.
    if is_empty {
        look(&table, &participant, args.yes)?;
    } else if counts.pending > 0 && !args.accept_new_purpose {
        check_told(&ledger, &study)?;
    }
    args.limits.keep(&mut ledger)?;
    let cost = ledger
        .admit(&participant, study.binding(), &file, &outbox)
        .map_err(with_flags)?;
    if let Some(path) = &args.tokens {
        let tokens = read_tokens(path, table.len())?;
        outbox.assign_tokens((0..).zip(&tokens))?;
    }
    let unusable = prepare(&table, &participant, &mut outbox)?;
    // Before anything is sent; then others may use the ledger.
    let rows = ledger
        .charge(&participant, study.binding(), &file, &outbox)
        .map_err(with_flags)?;
    let receipt = ledger.receipt()?;
    drop(ledger);
    let charged = Charged {
        epsilon: cost.epsilon(),
        delta: cost.delta(),
        rows,
        spent: receipt.spent,
        limits: receipt.limits,
        ledger: book.display().to_string(),
    };

    let settings = UploadSettings {
        connections: usize::from(args.connections),
        mode: if args.no_batch {
            UploadMode::Single
        } else {
            UploadMode::Batch { reports: None }
        },
        ..UploadSettings::default()
    };
    let bar = output::bar(outbox.counts()?.pending, "uploading");
    let uploaded = Uploader::new(&client, &study, settings)
        .drain(&mut outbox, |now| {
            bar.set_position(now.accepted + now.duplicates + now.refused);
        })
        .await;
    bar.finish_and_clear();
    let summary = uploaded.map_err(|failure| {
        let more = match failure.error.code() {
            Some(ErrorCode::TokenRequired) => {
                "run it again with --tokens FILE, a line for each row (whoever runs the study makes them: eigenveil study tokens)"
            }
            Some(ErrorCode::StudyEnded) => {
                "what was not counted by then will not be, and stays charged: what was perturbed cannot be taken back"
            }
            _ => "run the same command again to finish",
        };
        let message = format!("{failure}; {more}");
        CliError::from(failure.error).with_message(message)
    })?;
    finish(&state, &outbox, &table, summary, unusable, charged, json)?;
    if !json {
        output::text(&format!(
            "\nwhat each row's owner gave away\n{}",
            output::privacy_text(&study.document().privacy)
        ))?;
    }
    Ok(())
}

fn finish(
    state: &Path,
    outbox: &Outbox,
    table: &RowTable,
    summary: Sent,
    unusable: u64,
    charged: Charged,
    json: bool,
) -> Result<()> {
    let counts = outbox.counts()?;
    let reported = Reported {
        study: outbox.binding().study().to_owned(),
        rows: table.len() as u64,
        accepted: summary.accepted,
        duplicates: summary.duplicates,
        refused: counts.refused,
        pending: counts.pending,
        acknowledged: counts.acknowledged,
        unusable,
        bytes: summary.bytes,
        retries: summary.retries,
        seconds: summary.seconds,
        state: state.display().to_string(),
        charged,
    };
    if json {
        output::json(&reported)?;
    } else {
        output::text(&format!(
            "{} of {} rows acknowledged ({} accepted now, {} were already there), {} refused, {} bytes sent in {:.1} s\noutbox: {}",
            reported.acknowledged,
            reported.rows,
            reported.accepted,
            reported.duplicates,
            reported.refused,
            reported.bytes,
            reported.seconds,
            reported.state
        ))?;
        let charged = &reported.charged;
        let (spent, limits) = (charged.spent, &charged.limits);
        output::text(&format!(
            "ledger: {}: {} rows charged epsilon {}, delta {}; the most that a row has spent in all studies: epsilon {} of {}, delta {} of {}",
            charged.ledger,
            charged.rows,
            charged.epsilon,
            delta_text(charged.delta),
            spent.epsilon,
            limits.epsilon_total(),
            delta_text(spent.delta),
            delta_text(limits.delta_total())
        ))?;
        if unusable > 0 {
            output::text(&format!(
                "{unusable} rows could not be used (not finite, too long or too wide for the study) and were sent as zero rows; only you are told"
            ))?;
            if let Err(why) = table.check_readable() {
                output::text(&format!("the first value that is not a number: {why}"))?;
            }
        }
    }
    if reported.refused > 0 {
        let first = outbox.refused(1)?;
        let why = first
            .first()
            .map(|r| format!("{} [{}]", r.detail, r.code))
            .unwrap_or_default();
        return Err(CliError::failed(format!(
            "{} reports were refused; the first: {why}",
            reported.refused
        )));
    }
    Ok(())
}

/// Who asks for the rows, and what for.
fn who_asks(study: &StudyDocument) -> String {
    let stated = |text: &Option<String>| text.clone().unwrap_or_else(|| "not stated".to_owned());
    let about = &study.about;
    format!(
        "study {:?}\n  purpose      {}\n  responsible  {}\n  contact      {}\n  last day     {}",
        study.name,
        stated(&about.purpose),
        stated(&about.responsible_party),
        stated(&about.contact),
        stated(&about.last_day.map(|day| format!("{day} (UTC)")))
    )
}

/// Refuses to send what was prepared for another purpose than the study states now.
fn check_told(ledger: &RowLedger, study: &Study) -> Result<()> {
    let binding = study.binding();
    let entries = ledger.receipt()?.studies;
    let mut entries = entries
        .iter()
        .filter(|entry| entry.server == binding.server() && entry.study == binding.study());
    match entries.next() {
        Some(entry) => entry
            .told
            .check_unchanged(&study.document().about)
            .map_err(|error| {
                let message = format!("{}; or give --accept-new-purpose", error.detail());
                CliError::from(error).with_message(message)
            }),
        None => Ok(()),
    }
}

/// The number of rows and the columns that were taken.
fn read_as(table: &RowTable) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update((table.len() as u64).to_le_bytes());
    for &column in table.taken() {
        hash.update((column as u64).to_le_bytes());
    }
    hash.finalize().to_vec()
}

/// One token for each row. Errors name lines, never what is in them.
fn read_tokens(path: &Path, rows: usize) -> Result<Vec<ParticipantToken>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let mut tokens = Vec::with_capacity(rows);
    for (number, line) in (1..).zip(lines).take(rows) {
        let token = ParticipantToken::parse(line).map_err(|error| {
            CliError::from(error).context(format!("{}, token {number}", path.display()))
        })?;
        tokens.push(token);
    }
    if tokens.len() < rows {
        return Err(CliError::usage(format!(
            "{} has {} tokens for {rows} rows; ask whoever runs the study for one token per row",
            path.display(),
            tokens.len()
        )));
    }
    Ok(tokens)
}

/// Shows what the rows of a file are made of, here only, and asks a person at a terminal whether to go on. Never of one
/// row: there a column's share is nearly its value, and a "no" would tell it. Without a terminal nothing depends on it.
fn look(table: &RowTable, participant: &eigenveil_client::Participant, yes: bool) -> Result<()> {
    if table.len() < 2 {
        return Ok(());
    }
    let params = participant.params();
    let preprocessor = params.preprocessor();
    // A row that cannot be used is sent as the zero row.
    let rows = (0..table.len()).filter_map(|i| preprocessor.prepare_features(&table.row(i)).ok());
    let shares = Shares::new(params.dimension(), rows.map(|row| row.as_slice().to_vec()));
    let names = params.feature_names();
    let name = |column: usize| {
        names.as_ref().map_or_else(
            || format!("{}", column + 1),
            |names| format!("{:?}", names[column]),
        )
    };
    output::say(&format!("shown only to you: {}", shares.summary(name)));
    let Some(warning) = shares.warning(name) else {
        return Ok(());
    };
    output::say(&format!("warning, shown only to you: {warning}"));
    if yes || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(());
    }
    output::say(
        "Nothing has been perturbed or sent. Whoever runs the study can see whether you take part. Go on? [y/N]",
    );
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(CliError::failed(
        "nothing was perturbed or sent; ask whoever runs the study for centers and scales (eigenveil prepare), or run it with --yes",
    ))
}

/// Perturbs the rows that have no report yet, on all cores; each batch is durable before the next is made.
fn prepare(
    table: &RowTable,
    participant: &eigenveil_client::Participant,
    outbox: &mut Outbox,
) -> Result<u64> {
    let missing = outbox.missing(0..table.len() as u64)?;
    let bar = output::bar(missing.len() as u64, "perturbing");
    let mut unusable = 0;
    for chunk in missing.chunks(PREPARED_AT_ONCE) {
        let prepared = perturb(chunk, table, participant, &bar)?;
        unusable += prepared
            .iter()
            .filter(|(_, report)| report.notice().is_some())
            .count() as u64;
        outbox.enqueue_batch(prepared.iter().map(|(index, report)| (*index, report)))?;
    }
    bar.finish_and_clear();
    Ok(unusable)
}

/// The reports of these rows, in their order, a part of the rows on each core.
fn perturb(
    indices: &[u64],
    table: &RowTable,
    participant: &eigenveil_client::Participant,
    bar: &indicatif::ProgressBar,
) -> Result<Vec<(u64, PreparedReport)>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let parts: Vec<_> = indices
            .chunks(indices.len().div_ceil(cores).max(1))
            .map(|part| {
                scope.spawn(move || {
                    part.iter()
                        .map(|&index| {
                            let row = table.row(usize::try_from(index).unwrap_or(usize::MAX));
                            let report = participant.report(&row)?;
                            bar.inc(1);
                            Ok((index, report))
                        })
                        .collect::<Result<Vec<_>>>()
                })
            })
            .collect();
        let mut all = Vec::with_capacity(indices.len());
        for part in parts {
            all.extend(
                part.join()
                    .map_err(|_| CliError::failed("a thread that perturbs rows has stopped"))??,
            );
        }
        Ok(all)
    })
}

/// What of this command's flags may help.
fn with_flags(error: eigenveil_client::Error) -> CliError {
    let flags = match error.code() {
        Some(ErrorCode::BudgetExceeded) => {
            "; the flags are --limit-epsilon, --limit-epsilon-per-study and --limit-delta"
        }
        Some(ErrorCode::AlreadyParticipated) => "; the outbox is chosen by --state",
        _ if error.is_ledger_of_other_rows() => "; the flags are --same-participants and --ledger",
        _ => return error.into(),
    };
    let message = format!("{}{flags}", error.detail());
    CliError::from(error).with_message(message)
}

fn beside(rows: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = rows.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
