//! `eigenveil report`: rows of a file as participants.

use std::{
    fs,
    io::{BufRead as _, IsTerminal as _},
    path::{Path, PathBuf},
    thread,
};

use clap::Args;
use eigenveil_client::{
    Limits, Outbox, PreparedReport, PrivacyCost, Reporter, RowLedger, StudyTerms,
    http::{Study, StudyClient, UploadMode, UploadSettings, Uploader},
};
use eigenveil_shared::{
    ErrorCode, about::About, api::StudyDocument, enrolment::ParticipantToken,
    privacy::format_delta, study::StudyParams,
};
use indicatif::ProgressBar;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{
    http_settings,
    report_check::{RowCheck, RowCounts},
    report_persons::Persons,
    study_name::resolve_study_id,
};
use crate::{
    args::ServerArgs,
    error::{CliError, Result},
    files, output,
    rows::{self, ExpectedColumns, Label, TableArgs},
};

/// Reports synced to the outbox together.
const ROWS_PER_SYNC: usize = 1_024;
const OUTBOX_FILE: &str = "outbox.db";
/// Key under which the outbox stores what the study said when its reports were begun.
const ABOUT_KEY: &str = "about";
/// Key under which it stores the digest of the row file.
const ROWS_DIGEST_KEY: &str = "rows_sha256";
/// Key under which it stores how the file was read: with another header or other columns the rows differ.
const READ_AS_KEY: &str = "rows_read_as";

/// Perturb the rows of a file, one participant each, and upload them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil report --server http://127.0.0.1:8080 --study ID --rows rows.npy\n  eigenveil report --study ID --rows people.csv --drop id --ledger people.ledger --limit-epsilon 20\n  eigenveil report --study ID --rows visits.csv --person patient --check\n\nColumns are matched by name with the study's features, if they have names, before anything is perturbed or charged.\nIf they have no names, --header yes or --header no says what the first line of CSV or TSV is: a guess would depend on\nthe first participant's row.\n\nEach row is perturbed once and its report is written to the outbox (--outbox, default FILE.eigenveil) before it is sent.\nRunning the command again finishes an interrupted run, and never counts a row twice.\nThe outbox stores which token belongs to which row: --tokens is needed once.\nA row with a field that is missing, infinite or not a number, with too many fields or a LIBSVM index beyond the\nstudy's dimension, or longer than --bound-rows require allows, is sent as the zero row, because whether a row is sent must\nnot reveal its data. In a study whose features have observed shares, a missing field counts as its center.\nOnly you are told how many such rows and fields there were: --check says so beforehand.\n\nThe ledger (--ledger, default FILE.ledger beside the rows) stores what each row has spent in all studies, whatever\nthe outbox, and refuses reports beyond its limits and a second report of a row for the same study. Row i of every file\nused with a ledger is participant i. eigenveil receipt shows it."
)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Identifier of the study, the beginning of it, or the study's name
    #[arg(long, value_name = "ID")]
    study: String,
    /// Fingerprint that the study must have; any other study is refused
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
    /// Rows: .csv, .tsv, .parquet, .npy or .libsvm; one row = one participant
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,
    /// Directory of the outbox [default: beside the row file]
    #[arg(long, value_name = "DIR")]
    outbox: Option<PathBuf>,
    /// Ledger of what each row has spent, over all studies and outboxes [default: beside the row file]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    #[command(flatten)]
    limits: LimitArgs,
    /// The file has changed, but row i is still the same participant as row i of the earlier files
    #[arg(long)]
    same_participants: bool,
    /// Participant tokens, for a study that requires them, one a line: line i is for row i (see study tokens)
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
    /// The study is at another address than before: send the same reports to --server from now on
    #[arg(long)]
    moved: bool,
    /// Do not ask for confirmation, on a terminal, if one column or the mean has most of the rows' squared length, or if
    /// more than 1 % of 100 or more rows cannot be used
    #[arg(long)]
    yes: bool,
    /// Only say what would be sent: nothing is perturbed, charged, written or sent
    #[arg(long)]
    check: bool,
    /// Rows with the same value in this column are one person's: one of them, drawn at random, is reported, and the
    /// report protects all of the person's rows and their number
    #[arg(long, value_name = "COLUMN")]
    person: Option<String>,
    /// How much each row counts, above 0 and at most 1, in a study with weights; protected like the row
    #[arg(long, value_name = "COLUMN", conflicts_with = "person")]
    weight: Option<String>,
    #[command(flatten)]
    table: TableArgs,
}

/// The spending limits of each row, as stored in the ledger.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Limit of ε for each row in all studies together; stored in the ledger [default in a new ledger: 16.01]
    #[arg(long, value_name = "EPSILON")]
    limit_epsilon: Option<f64>,
    /// Limit of ε for each row in one study; stored in the ledger [default in a new ledger: 8.001]
    #[arg(long, value_name = "EPSILON")]
    limit_epsilon_per_study: Option<f64>,
    /// Limit of δ for each row in all studies together; stored in the ledger [default in a new ledger: 1e-5]
    #[arg(long, value_name = "DELTA")]
    limit_delta: Option<f64>,
}

impl LimitArgs {
    fn save(&self, ledger: &mut RowLedger) -> Result<()> {
        let current = ledger.limits()?;
        let expected = Limits::new(
            self.limit_epsilon_per_study
                .unwrap_or(current.epsilon_per_study()),
            self.limit_epsilon.unwrap_or(current.epsilon_total()),
            self.limit_delta.unwrap_or(current.delta_total()),
        )?;
        if expected != current {
            ledger.set_limits(expected)?;
        }
        Ok(())
    }
}

/// The ledger after this run.
#[derive(Serialize)]
struct LedgerCharge {
    /// What this study costs each row: what the ledger was charged.
    epsilon: f64,
    delta: f64,
    /// Rows charged by this run; the others were charged before.
    rows: u64,
    /// The spending of the row that spent most in all studies, and the limits.
    spent: PrivacyCost,
    limits: Limits,
    ledger: String,
}

#[derive(Serialize)]
struct CheckAnswer<'a> {
    study: String,
    participants: usize,
    #[serde(flatten)]
    counts: &'a RowCounts,
    epsilon: f64,
    delta: f64,
}

#[derive(Serialize)]
struct ReportAnswer {
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
    outbox: String,
    charged: LedgerCharge,
}

pub(crate) async fn run(args: &ReportArgs, json: bool) -> Result<()> {
    let client = StudyClient::with_settings(&args.server.server, &http_settings(&args.server)?)?;
    let id = resolve_study_id(client.list(), &args.study).await?;
    let study = client.fetch_study(&id).await?;
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
    // Beside a pipe or a file of /dev they would be lost with the next start of the machine.
    if files::is_transient(&args.rows) && (args.ledger.is_none() || args.outbox.is_none()) {
        return Err(CliError::usage(format!(
            "{} is not a file that stays, so the ledger and the outbox cannot lie beside it; give --ledger FILE and --outbox DIR, the same ones every time",
            args.rows.display()
        )));
    }
    let outbox_dir = args
        .outbox
        .clone()
        .unwrap_or_else(|| output::with_suffix(&args.rows, ".eigenveil"));
    let reporter = study.reporter();
    // Checked before anything is created. Reports of an earlier run are sent anyway: the server may have counted some.
    if !outbox_dir.join(OUTBOX_FILE).exists() {
        reporter.check_open()?;
    }
    // Read once, so that the digest is that of the perturbed bytes.
    let bytes = files::read(&args.rows)?;
    let digest: [u8; 32] = Sha256::digest(&bytes).into();
    let params = study.params();
    let persons = read_participants(args, &bytes, params)?;
    output::print_notes(persons.table.notes());
    if args.check {
        return print_check(&study, &persons, json);
    }
    let ledger_path = args.ledger.clone().unwrap_or_else(|| {
        // A symbolic link shares the ledger of the file it points to.
        output::with_suffix(
            &fs::canonicalize(&args.rows).unwrap_or_else(|_| args.rows.clone()),
            ".ledger",
        )
    });
    let outbox_file = outbox_dir.join(OUTBOX_FILE);
    files::check_different(("--ledger", &ledger_path), ("--outbox", &outbox_file))?;
    let mut ledger = RowLedger::open(&ledger_path)?;
    let mut file = ledger.row_file(persons.len() as u64, &persons.identify(&bytes))?;
    if args.same_participants {
        file = file.assume_same_participants();
    }
    drop(bytes);
    files::create_private_dir(&outbox_dir)?;
    let mut outbox = open_outbox(&outbox_file, &study, args)?;
    let counts = outbox.counts()?;
    let is_empty = counts.total() == 0;
    if outbox.study_ref() != study.study_ref() {
        // To move is to send the same reports: not for another purpose, whatever flag is given.
        check_about(&outbox, &study)?;
        ledger.accept_move(&reporter, study.study_ref())?;
        outbox.accept_move(study.study_ref())?;
    } else if args.moved && !is_empty {
        // Its outbox moved before, and the ledger did not: the run between them was killed.
        ledger.accept_move(&reporter, study.study_ref())?;
    }
    // The digests are not shown: guesses at a short file could be compared with them.
    for (key, value, differs) in [
        (
            ROWS_DIGEST_KEY,
            digest.to_vec(),
            "has changed since its reports were prepared; each row's report is made only once: restore the file, or use another --outbox for other participants",
        ),
        (
            READ_AS_KEY,
            persons.read_as(),
            "was read with another header, other columns or other persons when its reports were prepared; each row's report is made only once: give the flags that were given then",
        ),
    ] {
        match outbox.get_meta(key)? {
            Some(known) if known == value => {}
            // An earlier run prepared nothing: the file may have been corrected since.
            Some(_) if !is_empty => {
                return Err(CliError::usage(format!(
                    "{} {differs}",
                    args.rows.display()
                )));
            }
            _ => outbox.set_meta(key, &value)?,
        }
    }
    // Shown before anybody agrees. The ledger stores the same for the receipt.
    if !json {
        output::print_error_line(&describe_request(study.document()));
    }
    // Nothing is asked about reports prepared before: they are sent unchanged, for the purpose shown then.
    if is_empty {
        outbox.set_meta(ABOUT_KEY, &about_bytes(study.document())?)?;
        let checked = RowCheck::new(&persons, params);
        if !checked.confirmed(args.yes, params.feature_names().as_deref())? {
            return Err(CliError::failed(
                "nothing was perturbed or sent; ask whoever runs the study for centers, scales or observed shares (eigenveil prepare), mend the file, or run it with --yes",
            ));
        }
    } else if counts.pending > 0 && !args.accept_new_purpose {
        check_about(&outbox, &study)
            .and_then(|()| check_terms_unchanged(&ledger, &study))
            .map_err(with_flags)?;
    }
    args.limits.save(&mut ledger)?;
    let cost = ledger
        .admit(&reporter, study.study_ref(), &file, &outbox)
        .map_err(with_flags)?;
    if let Some(path) = &args.tokens {
        let tokens = read_tokens(path, persons.len())?;
        outbox.set_tokens((0..).zip(&tokens))?;
    }
    let unusable = prepare(&persons, &reporter, &mut outbox)?;
    // Charged before anything is sent; then the ledger is released for others.
    let rows = ledger
        .charge(&reporter, study.study_ref(), &file, &outbox)
        .map_err(with_flags)?;
    let receipt = ledger.receipt()?;
    drop(ledger);
    let charged = LedgerCharge {
        epsilon: cost.epsilon(),
        delta: cost.delta(),
        rows,
        spent: receipt.spent,
        limits: receipt.limits,
        ledger: ledger_path.display().to_string(),
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
                "reports not counted by then never will be, and stay charged: a perturbed report cannot be taken back"
            }
            _ => "run the same command again to finish",
        };
        let message = format!("{failure}; {more}");
        CliError::from(failure.error).with_message(message)
    })?;
    let counts = outbox.counts()?;
    let reported = ReportAnswer {
        study: outbox.study_ref().study().to_owned(),
        rows: persons.len() as u64,
        accepted: summary.accepted,
        duplicates: summary.duplicates,
        refused: counts.refused,
        pending: counts.pending,
        acknowledged: counts.acknowledged,
        unusable,
        bytes: summary.bytes,
        retries: summary.retries,
        seconds: summary.seconds,
        outbox: outbox_dir.display().to_string(),
        charged,
    };
    if json {
        output::json(&reported)?;
    } else {
        print(&reported, &persons, params)?;
    }
    if reported.refused > 0 {
        let first = outbox.refused(1)?.pop();
        let why = first.map(|r| format!("{} [{}]", r.detail, r.code));
        return Err(CliError::failed(format!(
            "{} reports were refused; the first: {}",
            reported.refused,
            why.unwrap_or_default()
        )));
    }
    if !json {
        output::text(&format!(
            "\nwhat one report reveals\n{}",
            output::privacy_text(&study.document().privacy)
        ))?;
    }
    Ok(())
}

fn print(reported: &ReportAnswer, persons: &Persons, params: &StudyParams) -> Result<()> {
    output::text(&format!(
        "{} of {} {} acknowledged ({} accepted now, {} counted before), {} refused, {} bytes sent in {:.1} s\noutbox: {}",
        reported.acknowledged,
        reported.rows,
        match persons.are_labelled() {
            true => "persons",
            false => "rows",
        },
        reported.accepted,
        reported.duplicates,
        reported.refused,
        reported.bytes,
        reported.seconds,
        reported.outbox
    ))?;
    let charged = &reported.charged;
    let (spent, limits) = (charged.spent, &charged.limits);
    output::text(&format!(
        "ledger: {}: {} rows charged epsilon {}, delta {}; the most that a row has spent in all studies: epsilon {} of {}, delta {} of {}",
        charged.ledger,
        charged.rows,
        charged.epsilon,
        format_delta(charged.delta),
        spent.epsilon,
        limits.epsilon_total(),
        format_delta(spent.delta),
        format_delta(limits.delta_total())
    ))?;
    if reported.unusable > 0 {
        output::text(&format!(
            "{} rows could not be used (not finite, too long or too wide for the study, or a weight that is not above 0) and were sent as zero rows; only you can see this",
            reported.unusable
        ))?;
        what_cannot_be_used(persons, params).map_or(Ok(()), |line| output::text(&line))?;
    }
    Ok(())
}

fn what_cannot_be_used(persons: &Persons, params: &StudyParams) -> Option<String> {
    let missing_cells = params.preprocessing().allows_missing_cells();
    let why = persons.table.check_usable(missing_cells).err()?;
    Some(format!("what cannot be used: {why}"))
}

/// Who asks for reports, and for what purpose.
fn describe_request(study: &StudyDocument) -> String {
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

/// Refuses to send reports prepared for another purpose than the study states now.
fn check_terms_unchanged(ledger: &RowLedger, study: &Study) -> eigenveil_client::Result<()> {
    let study_ref = study.study_ref();
    let mut entries = ledger.receipt()?.studies.into_iter();
    match entries.find(|entry| entry.study == study_ref.study()) {
        Some(entry) => entry.terms.check_unchanged(&study.document().about),
        None => Ok(()),
    }
}

/// The rows, and whose they are and how much they count, by the columns that say so.
fn read_participants(args: &ReportArgs, bytes: &[u8], params: &StudyParams) -> Result<Persons> {
    match (params.preprocessing().weights, &args.weight) {
        (Some(_), None) => {
            return Err(CliError::usage(
                "participants of this study count by weights; give --weight COLUMN, a column of numbers above 0 and at most 1",
            ));
        }
        (None, Some(_)) => {
            return Err(CliError::usage(
                "all participants of this study count the same; leave --weight out (and the column with --drop)",
            ));
        }
        _ => {}
    }
    let expected = ExpectedColumns::study(params.dimension(), params.feature_names());
    let label = match (&args.person, &args.weight) {
        (None, None) => None,
        (Some(column), _) => Some(("--person", column)),
        (None, Some(column)) => Some(("--weight", column)),
    };
    let how = TableArgs {
        label: label.map(|(flag, column)| Label {
            flag,
            column: column.clone(),
        }),
        ..args.table.clone()
    };
    let table = rows::parse(&args.rows, bytes, &how, Some(&expected))?;
    match label {
        None => Ok(Persons::rows(table)),
        Some(("--person", _)) => Persons::labelled(table),
        Some(_) => Persons::weighted(table),
    }
}

/// One token for each row. Errors name lines, never their contents.
fn read_tokens(path: &Path, rows: usize) -> Result<Vec<ParticipantToken>> {
    let text = files::read_text(path)?;
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

/// The outbox of this study, which may still be bound to the address that the study had before.
fn open_outbox(path: &Path, study: &Study, args: &ReportArgs) -> Result<Outbox> {
    let error = match Outbox::open(path, study.study_ref()) {
        Err(error) if error.is_study_mismatch() => error,
        opened => return Ok(opened?),
    };
    let outbox = Outbox::open_existing(path)?;
    let (before, now) = (outbox.study_ref(), study.study_ref());
    if (before.study(), before.fingerprint()) != (now.study(), now.fingerprint()) {
        let other = output::with_suffix(&args.rows, &format!(".{}", study.id()));
        let message = format!(
            "{}; for this study give --outbox DIR of its own, such as --outbox {}",
            error.detail(),
            output::shell_quoted(&other.display().to_string())
        );
        return Err(CliError::from(error).with_message(message));
    }
    let (from, to) = (before.server(), now.server());
    let question = || {
        ask(&format!(
            "The reports were made for this study at {from}, and this is {to}. Has the study moved here? The same reports are then sent here, and counted once. [y/N]"
        ))
    };
    if args.moved || question()?.unwrap_or(false) {
        return Ok(outbox);
    }
    Err(CliError::usage(format!(
        "the reports in {} were made for this study at {from}, not at {to}; if it has moved here, give --moved: the same reports are sent here and counted once. Otherwise give --server {from}",
        path.display()
    )))
}

/// What the study says of itself, as the outbox keeps it: the ledger learns it only when the rows are charged.
fn about_bytes(study: &StudyDocument) -> Result<Vec<u8>> {
    serde_json::to_vec(&study.about).map_err(|error| CliError::failed(error.to_string()))
}

/// Refuses a study that states another purpose or responsible party than when its reports were begun.
fn check_about(outbox: &Outbox, study: &Study) -> eigenveil_client::Result<()> {
    let recorded = outbox.get_meta(ABOUT_KEY)?.unwrap_or_default();
    let Ok(before) = serde_json::from_slice::<About>(&recorded) else {
        return Ok(());
    };
    let terms = StudyTerms {
        name: None,
        about: before,
        parameters: None,
    };
    terms.check_unchanged(&study.document().about)
}

/// Whether somebody at the terminal says yes; `None`, and not asked, without one.
pub(super) fn ask(question: &str) -> Result<Option<bool>> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(None);
    }
    output::print_error_line(question);
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
}

fn print_check(study: &Study, persons: &Persons, json: bool) -> Result<()> {
    let params = study.params();
    let checked = RowCheck::new(persons, params);
    let counts = &checked.counts;
    if json {
        return output::json(&CheckAnswer {
            study: study.id().to_owned(),
            participants: persons.len(),
            counts,
            epsilon: params.budget().epsilon(),
            delta: params.budget().delta(),
        });
    }
    let mut lines = vec![describe_request(study.document())];
    if persons.are_labelled() {
        lines.push(format!(
            "persons: {}; each sends one report, made from one of the person's rows",
            persons.len()
        ));
    }
    lines.extend(checked.describe(params));
    lines.extend(what_cannot_be_used(persons, params));
    lines.push(
        "nothing was perturbed, charged, written or sent; without --check the reports are made and sent"
            .to_owned(),
    );
    output::text(&lines.join("\n"))?;
    output::text(&format!(
        "\nwhat one report reveals\n{}",
        output::privacy_text(&study.document().privacy)
    ))
}

/// Perturbs the rows that have no report yet, on all cores; each batch is on disk before the next is made.
fn prepare(persons: &Persons, reporter: &Reporter, outbox: &mut Outbox) -> Result<u64> {
    let missing = outbox.missing(0..persons.len() as u64)?;
    let bar = output::bar(missing.len() as u64, "perturbing");
    let mut unusable = 0;
    for chunk in missing.chunks(ROWS_PER_SYNC) {
        let prepared = perturb(chunk, persons, reporter, &bar)?;
        let warned = prepared
            .iter()
            .filter(|(_, own)| own.local_warning().is_some());
        unusable += warned.count() as u64;
        outbox.enqueue_batch(prepared.iter().map(|(index, report)| (*index, report)))?;
    }
    bar.finish_and_clear();
    Ok(unusable)
}

/// The reports of these rows, in order, with a share of the rows on each core.
fn perturb(
    indices: &[u64],
    persons: &Persons,
    reporter: &Reporter,
    bar: &ProgressBar,
) -> Result<Vec<(u64, PreparedReport)>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let report = |&index: &u64| -> Result<(u64, PreparedReport)> {
        let person = usize::try_from(index).unwrap_or(usize::MAX);
        let report = persons.report(person, reporter)?;
        bar.inc(1);
        Ok((index, report))
    };
    let all = |part: &[u64]| part.iter().map(report).collect::<Result<Vec<_>>>();
    let all = &all;
    thread::scope(|scope| {
        let parts = indices.chunks(indices.len().div_ceil(cores).max(1));
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || all(part))).collect();
        let stopped = |_| CliError::failed("a thread that perturbs rows has stopped");
        let mut reports = Vec::with_capacity(indices.len());
        for part in parts {
            reports.extend(part.join().map_err(stopped)??);
        }
        Ok(reports)
    })
}

/// The flags of this command that may help.
fn with_flags(error: eigenveil_client::Error) -> CliError {
    let flags = match error.code() {
        Some(ErrorCode::BudgetExceeded) => {
            "; the flags are --limit-epsilon, --limit-epsilon-per-study and --limit-delta"
        }
        Some(ErrorCode::InvalidAbout) => "; or give --accept-new-purpose",
        Some(ErrorCode::AlreadyParticipated) => "; the outbox is chosen by --outbox",
        _ if error.is_row_file_mismatch() => "; the flags are --same-participants and --ledger",
        _ => return error.into(),
    };
    let message = format!("{}{flags}", error.detail());
    CliError::from(error).with_message(message)
}
