//! `eigenveil report`: rows of a file as participants.

use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use clap::Args;
use eigenveil_client::{
    Limits, Prepared, PrivacyCost, RowFile, RowLedger, Server, Study, SystemClock,
    http::{
        HttpSettings, RetryPolicy, SendSummary, StudyClient, UploadMode, UploadSettings, send_rows,
    },
};
use eigenveil_shared::{
    ErrorCode,
    api::StudyState,
    clock::Clock as _,
    enrolment::{Enrolment, ParticipantToken},
    privacy::{Budget, format_delta},
    study::StudyParams,
};
use serde::Serialize;

use super::{
    report_check::{RowCheck, RowCounts},
    report_persons::Persons,
    study_name::resolve_study_id,
};
use crate::{
    args::ServerArgs,
    error::{CliError, Result},
    files, output,
    rows::{self, ExpectedColumns, Label, TableArgs},
    shares::LengthShares,
};

/// Perturb the rows of a file, one participant each, and upload them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil report --server http://127.0.0.1:8080 --study ID --rows rows.npy\n  eigenveil report --study ID --rows people.csv --drop id --ledger people.ledger --limit-epsilon 20\n  eigenveil report --study ID --rows visits.csv --person patient --check\n\nColumns are matched by name with the study's features, if they have names, before anything is perturbed or charged.\nIf they have no names, --header yes or --header no says what the first line of CSV or TSV is: a guess would depend on\nthe first participant's row.\n\nEach row is perturbed once, and its report is written to the ledger (--ledger, default FILE.ledger beside the rows)\nbefore it is sent. Running the command again finishes an interrupted run, and never counts a row twice.\nThe ledger stores which token belongs to which row: --tokens is needed once.\nA row with a field that is missing, infinite or not a number, with too many fields or a LIBSVM index beyond the\nstudy's dimension, or longer than --bound-rows require allows, is sent as the zero row, because whether a row is sent must\nnot reveal its data. In a study whose features have observed shares, a missing field counts as its center.\nOnly you are told how many such rows and fields there were: --check says so beforehand.\n\nThe ledger stores what each row has spent in all studies, and refuses reports beyond its limits and a second report of\na row for the same study. Row i of every file used with a ledger is participant i. eigenveil receipt shows it."
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
    /// Ledger: the reports to be sent, and what each row has spent over all studies [default: beside the row file]
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
    /// Send the reports again that the server refused, unchanged
    #[arg(long)]
    resend_refused: bool,
    /// Do not ask for confirmation, on a terminal, if one column or the mean has most of the rows' squared length, or if
    /// more than 1 % of 100 or more rows cannot be used
    #[arg(long)]
    yes: bool,
    /// Only say what would be sent, or why it would be refused: nothing is perturbed, charged, written or sent
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
    /// The ledger's limits, with the given ones in their places.
    fn in_place_of(&self, current: Limits) -> Result<Limits> {
        Ok(current.changed(
            self.limit_epsilon_per_study,
            self.limit_epsilon,
            self.limit_delta,
        )?)
    }

    /// Stores the given limits in the ledger.
    fn save(&self, ledger: &mut RowLedger) -> Result<()> {
        let current = ledger.limits()?;
        let expected = self.in_place_of(current)?;
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

/// What `--check` says.
#[derive(Serialize)]
struct CheckAnswer<'a> {
    study: String,
    participants: usize,
    #[serde(flatten)]
    counts: &'a RowCounts,
    /// Why rows cannot be used, by column.
    reason: Option<String>,
    /// Reports of this study in the ledger.
    already_made: Option<u64>,
    /// Those of them that are still to be sent.
    pending: Option<u64>,
    #[serde(flatten)]
    shares: Option<&'a LengthShares>,
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
    charged: LedgerCharge,
}

pub(crate) async fn run(args: &ReportArgs, json: bool) -> Result<()> {
    let http = args.server.settings()?;
    let study = fetch(args, &http).await?;
    // Beside a pipe or a file of /dev it would be lost with the next start of the machine.
    if files::is_transient(&args.rows) && args.ledger.is_none() {
        return Err(CliError::usage(format!(
            "{} is not a file that stays, so the ledger cannot lie beside it; give --ledger FILE, the same one every time",
            args.rows.display()
        )));
    }
    // A symbolic link shares the ledger of the file it points to.
    let real = fs::canonicalize(&args.rows).unwrap_or_else(|_| args.rows.clone());
    let beside = || output::with_suffix(&real, ".ledger");
    let ledger_path = args.ledger.clone().unwrap_or_else(beside);
    // Checked before anything is created.
    if !ledger_path.exists() {
        study.check_open(SystemClock.unix_ms())?;
    }
    // Read once, so that the digest is that of the perturbed bytes.
    let bytes = files::read(&args.rows)?;
    let persons = read_persons(args, &bytes, study.params())?;
    output::print_notes(persons.table.notes());
    if args.check {
        let made = check(args, &study, &ledger_path, &bytes, &persons)?;
        return print_check(&study, &persons, made, json);
    }
    let mut ledger = RowLedger::open(&ledger_path)?;
    let file = identify(&persons, &ledger, &bytes, args.same_participants)?;
    drop(bytes);
    let charged = take_part(args, &study, &mut ledger, &file, &persons, json)?;
    let patient = HttpSettings {
        retry: RetryPolicy::patient(),
        ..http
    };
    let summary = upload(args, &study, &mut ledger, &patient).await?;
    finish(&study, &ledger, &persons, &summary, charged, json)
}

/// The study, with the fingerprint that was given.
async fn fetch(args: &ReportArgs, http: &HttpSettings) -> Result<Study> {
    let client = StudyClient::with_settings(&args.server.server, http)?;
    let id = resolve_study_id(client.list(), &args.study).await?;
    let study = client.fetch_study(&id).await?;
    match &args.fingerprint {
        Some(pinned) if !pinned.eq_ignore_ascii_case(&study.fingerprint().to_string()) => {
            Err(eigenveil_shared::Error::new(
                ErrorCode::WrongFingerprint,
                format!(
                    "the study has fingerprint {}, not {pinned} as given; do not take part",
                    study.fingerprint()
                ),
            )
            .into())
        }
        _ => Ok(study),
    }
}

/// What a run may do; nothing of it is done.
struct Admitted {
    /// The study was at another address before.
    moved: bool,
    /// Its reports in the ledger.
    counts: eigenveil_client::RowCounts,
    tokens: Vec<ParticipantToken>,
    /// Of one report.
    cost: Budget,
}

/// Refuses what cannot be sent, and writes nothing.
fn admit(
    args: &ReportArgs,
    study: &Study,
    ledger: &RowLedger,
    file: &RowFile,
    persons: &Persons,
) -> Result<Admitted> {
    let before = moved_from(args, study, ledger)?;
    // To move is to send the same reports: not for another purpose, whatever flag is given.
    if before.is_some()
        && let Some(terms) = ledger.terms_of(study.id())?
    {
        terms.check_unchanged(study.about())?;
    }
    let counts = ledger.counts(study)?;
    let tokens = check_before_charging(args, study, ledger, persons, counts)?;
    // Those that a run stores first.
    let limits = args.limits.in_place_of(ledger.limits()?)?;
    // The ledger knows the study at its last address only.
    let before = before.map(|from| Study::new(&from, study.id(), study.params().clone()));
    let known_as = before.as_ref().unwrap_or(study);
    let cost = ledger
        .admit_within(known_as, file, limits)
        .map_err(with_flags)?;
    Ok(Admitted {
        moved: before.is_some(),
        counts,
        tokens,
        cost,
    })
}

/// Asks what is to be asked, and gives every row that has none its report and its charge.
fn take_part(
    args: &ReportArgs,
    study: &Study,
    ledger: &mut RowLedger,
    file: &RowFile,
    persons: &Persons,
    json: bool,
) -> Result<(LedgerCharge, Prepared)> {
    // Shown before anybody agrees. The ledger stores the same for the receipt.
    if !json {
        output::print_error_line(&describe_request(study));
    }
    let Admitted {
        moved,
        counts,
        tokens,
        cost,
    } = admit(args, study, ledger, file, persons)?;
    // Nothing is asked about reports prepared before: they are sent unchanged, for the purpose shown then.
    if counts.total() == 0 {
        let names = study.params().feature_names();
        let checked = RowCheck::new(persons, study.params());
        if !checked.confirmed(args.yes, names.as_deref())? {
            return Err(CliError::failed(
                "nothing was perturbed or sent; ask whoever runs the study for centers, scales or observed shares (eigenveil prepare), mend the file, or run it with --yes",
            ));
        }
    }
    if moved {
        ledger.accept_move(study)?;
    }
    args.limits.save(ledger)?;
    if args.resend_refused {
        ledger.requeue_refused(study)?;
    }
    let prepared = prepare(study, ledger, file, persons, counts.total())?;
    ledger.set_tokens(study, (0..).zip(&tokens))?;
    let receipt = ledger.receipt()?;
    let charge = LedgerCharge {
        epsilon: cost.epsilon(),
        delta: cost.delta(),
        rows: prepared.rows,
        spent: receipt.spent,
        limits: receipt.limits,
        ledger: ledger.path().display().to_string(),
    };
    Ok((charge, prepared))
}

/// Refuses a study that takes no report of the rows that have none, reports that would be sent for another purpose, and
/// rows that would be charged and have no token to be sent with. Gives the tokens.
fn check_before_charging(
    args: &ReportArgs,
    study: &Study,
    ledger: &RowLedger,
    persons: &Persons,
    counts: eigenveil_client::RowCounts,
) -> Result<Vec<ParticipantToken>> {
    let missing = (persons.len() as u64).saturating_sub(counts.total());
    if missing > 0 {
        study.check_open(SystemClock.unix_ms())?;
    }
    // Reports that were refused for their tokens are sent again with others.
    if counts.pending + counts.refused > 0
        && !args.accept_new_purpose
        && let Some(terms) = ledger.terms_of(study.id())?
    {
        terms.check_unchanged(study.about()).map_err(with_flags)?;
    }
    match &args.tokens {
        Some(path) => read_tokens(path, persons.len()),
        None if missing > 0 && study.enrolment() == Enrolment::Token => {
            Err(CliError::usage(format!(
                "this study takes a report only with a one-time token, and there is none for {missing} of the file's participants; give --tokens FILE, a line for each (whoever runs the study makes them: eigenveil study tokens)"
            )))
        }
        None => Ok(Vec::new()),
    }
}

/// The address at which rows took part in the study, if it is another and the study has moved here.
fn moved_from(args: &ReportArgs, study: &Study, ledger: &RowLedger) -> Result<Option<Server>> {
    let to = study.server();
    let from = ledger.server_of(study.id())?;
    let Some(from) = from.filter(|from| from != to) else {
        return Ok(None);
    };
    let question = || {
        output::ask(&format!(
            "The reports were made for this study at {from}, and this is {to}. Has the study moved here? The same reports are then sent here, and counted once. [y/N]"
        ))
    };
    if !args.moved && (args.check || !question()?.unwrap_or(false)) {
        return Err(CliError::usage(format!(
            "the reports in {} were made for this study at {from}, not at {to}; if it has moved here, give --moved: the same reports are sent here and counted once. Otherwise give --server {from}",
            ledger.path().display()
        )));
    }
    Ok(Some(from))
}

/// Refuses what a run would refuse, and writes nothing that stays. Gives the ledger's reports of the study, `None` where
/// there is no ledger yet.
fn check(
    args: &ReportArgs,
    study: &Study,
    path: &Path,
    bytes: &[u8],
    persons: &Persons,
) -> Result<Option<eigenveil_client::RowCounts>> {
    let known = path.exists();
    let folder;
    let ledger = match known {
        true => RowLedger::open_to_read(path)?,
        false => {
            // A new ledger refuses by its limits only.
            folder = tempfile::tempdir()?;
            RowLedger::open(folder.path().join("ledger"))?
        }
    };
    let file = identify(persons, &ledger, bytes, args.same_participants)?;
    let counts = admit(args, study, &ledger, &file, persons)?.counts;
    let unsent = counts.pending + counts.refused;
    if unsent > 0
        && let Err(error) = study.check_open(SystemClock.unix_ms())
    {
        let why = match (study.state(), study.about().last_day) {
            (StudyState::Open, Some(day)) => {
                format!("took reports until the end of {day} (UTC), which is over")
            }
            (state, _) => format!("is {} and takes no reports", state.as_str()),
        };
        let message = format!(
            "{unsent} reports in the ledger are still to be sent, but study {} {why}: it would only acknowledge those that it has counted before; {}",
            study.id(),
            what_becomes_of_the_rest(study)
        );
        return Err(CliError::from(error).with_message(message));
    }
    Ok(known.then_some(counts))
}

/// Of the reports that a study does not take, for a message.
fn what_becomes_of_the_rest(study: &Study) -> &'static str {
    match study.state() {
        StudyState::Draft => "once it is open, run the same command again to finish",
        _ => {
            "the study never opens again, so reports that it has not counted never will be, and stay charged: a perturbed report cannot be taken back"
        }
    }
}

/// Perturbs the rows that have no report yet; `done` have one.
fn prepare(
    study: &Study,
    ledger: &mut RowLedger,
    file: &RowFile,
    persons: &Persons,
    done: u64,
) -> Result<Prepared> {
    let bar = output::bar(persons.len() as u64, "perturbing");
    bar.set_position(done);
    let prepared = ledger.prepare(
        study,
        file,
        |row, now| persons.report(row, study, now),
        |rows| {
            bar.set_position(done + rows);
            ControlFlow::Continue(())
        },
    );
    bar.finish_and_clear();
    prepared.map_err(with_flags)
}

/// Sends what is pending.
async fn upload(
    args: &ReportArgs,
    study: &Study,
    ledger: &mut RowLedger,
    http: &HttpSettings,
) -> Result<SendSummary> {
    let sending = UploadSettings {
        connections: usize::from(args.connections),
        mode: if args.no_batch {
            UploadMode::Single
        } else {
            UploadMode::Batch { reports: None }
        },
        ..UploadSettings::default()
    };
    let bar = output::bar(ledger.counts(study)?.pending, "uploading");
    let sent = send_rows(ledger, study, http, &sending, |now| {
        bar.set_position(now.accepted + now.duplicates + now.refused);
        ControlFlow::Continue(())
    })
    .await;
    bar.finish_and_clear();
    let explain = |error: eigenveil_client::Error, done: &str| {
        let more = match error.code() {
            Some(ErrorCode::TokenRequired) => {
                "run it again with --tokens FILE, a line for each row (whoever runs the study makes them: eigenveil study tokens)"
            }
            Some(ErrorCode::StudyNotOpen | ErrorCode::StudyEnded) => {
                what_becomes_of_the_rest(study)
            }
            _ => "run the same command again to finish",
        };
        // The code that a later server may have is not known here.
        let said = match error.code() {
            Some(_) => error.detail().to_owned(),
            None => error.to_string(),
        };
        let message = format!("{said}{done}; {more}");
        CliError::from(error).with_message(message)
    };
    let mut summary = sent.map_err(|error| explain(error, ""))?;
    if summary.failures.is_empty() {
        return Ok(summary);
    }
    let done = format!(
        "; {} reports were acknowledged in this upload and {} are still to be sent",
        summary.accepted + summary.duplicates,
        summary.pending
    );
    Err(explain(summary.failures.swap_remove(0).error, &done))
}

fn finish(
    study: &Study,
    ledger: &RowLedger,
    persons: &Persons,
    summary: &SendSummary,
    (charged, prepared): (LedgerCharge, Prepared),
    json: bool,
) -> Result<()> {
    let counts = ledger.counts(study)?;
    let reported = ReportAnswer {
        study: study.id().to_owned(),
        rows: persons.len() as u64,
        accepted: summary.accepted,
        duplicates: summary.duplicates,
        refused: counts.refused,
        pending: counts.pending,
        acknowledged: counts.acknowledged,
        unusable: prepared.unusable,
        bytes: summary.bytes,
        retries: summary.retries,
        seconds: summary.seconds,
        charged,
    };
    if json {
        output::json(&reported)?;
    } else {
        output::text(&format!(
            "{} of {} {} acknowledged ({} accepted now, {} counted before), {} refused, {} bytes sent in {:.1} s",
            reported.acknowledged,
            reported.rows,
            if persons.are_labelled() {
                "persons"
            } else {
                "rows"
            },
            reported.accepted,
            reported.duplicates,
            reported.refused,
            reported.bytes,
            reported.seconds,
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
        if prepared.unusable > 0 {
            output::text(&format!(
                "{} rows could not be used (not finite, too long or too wide for the study, or a weight that is not above 0) and were sent as zero rows; only you can see this",
                prepared.unusable
            ))?;
            if let Some(why) = what_cannot_be_used(persons, study.params()) {
                output::text(&format!("what cannot be used: {why}"))?;
            }
        }
    }
    if reported.refused > 0 {
        let first = ledger.refused(study, 1)?;
        let why = first
            .first()
            .map(|r| format!("{} [{}]", r.detail, r.code))
            .unwrap_or_default();
        return Err(CliError::failed(format!(
            "{} reports were refused; the first: {why}. They are kept: once the cause is gone, send the same reports again with --resend-refused",
            reported.refused
        )));
    }
    if reported.pending > 0 {
        return Err(CliError::failed(format!(
            "{} reports are still to be sent; run the same command again to finish",
            reported.pending
        )));
    }
    if json {
        return Ok(());
    }
    output::text(&format!(
        "\nwhat one report reveals\n{}",
        output::privacy_text(&study.privacy())
    ))
}

fn what_cannot_be_used(persons: &Persons, params: &StudyParams) -> Option<String> {
    let missing_cells = params.preprocessing().allows_missing_cells();
    let why = persons.table.check_usable(missing_cells).err()?;
    Some(why.to_string())
}

/// Who asks for reports, and for what purpose.
fn describe_request(study: &Study) -> String {
    let stated = |text: &Option<String>| text.clone().unwrap_or_else(|| "not stated".to_owned());
    let about = study.about();
    format!(
        "study {:?}\n  purpose      {}\n  responsible  {}\n  contact      {}\n  last day     {}",
        study.name().unwrap_or_default(),
        stated(&about.purpose),
        stated(&about.responsible_party),
        stated(&about.contact),
        stated(&about.last_day.map(|day| format!("{day} (UTC)")))
    )
}

/// The file as the ledger knows it.
fn identify(persons: &Persons, ledger: &RowLedger, bytes: &[u8], same: bool) -> Result<RowFile> {
    let who = persons.identify(bytes);
    let file = ledger.row_file(persons.len() as u64, &who, &persons.read_as())?;
    Ok(match same {
        true => file.assume_same_participants(),
        false => file,
    })
}

/// The rows, and whose they are and how much they count, by the columns that say so.
fn read_persons(args: &ReportArgs, bytes: &[u8], params: &StudyParams) -> Result<Persons> {
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
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    let mut tokens = Vec::with_capacity(rows);
    let mut line_of = HashMap::new();
    for (number, line) in lines.take(rows) {
        let token = ParticipantToken::parse(line).map_err(|error| {
            let place = format!("{}, token {}", path.display(), tokens.len() + 1);
            CliError::from(error).context(place)
        })?;
        if let Some(first) = line_of.insert(*token.as_bytes(), number) {
            return Err(CliError::usage(format!(
                "lines {first} and {number} of {} are the same token, with which one row can report; give each row a token of its own (whoever runs the study makes them: eigenveil study tokens)",
                path.display()
            )));
        }
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

/// Prints what a run would send; `made` are the study's reports in the ledger, if there is one.
fn print_check(
    study: &Study,
    persons: &Persons,
    made: Option<eigenveil_client::RowCounts>,
    json: bool,
) -> Result<()> {
    let params = study.params();
    let checked = RowCheck::new(persons, params);
    let counts = &checked.counts;
    let reason = what_cannot_be_used(persons, params);
    if json {
        return output::json(&CheckAnswer {
            study: study.id().to_owned(),
            participants: persons.len(),
            counts,
            reason,
            already_made: made.map(eigenveil_client::RowCounts::total),
            pending: made.map(|made| made.pending),
            shares: checked.shares.as_ref(),
            epsilon: params.budget().epsilon(),
            delta: params.budget().delta(),
        });
    }
    let mut lines = vec![describe_request(study)];
    if persons.are_labelled() {
        lines.push(format!(
            "persons: {}; each sends one report, made from one of the person's rows",
            persons.len()
        ));
    }
    lines.extend(made.map(|made| {
        let some = |count: u64, what: &str| match count {
            0 => String::new(),
            some => format!("; {some} of them {what}"),
        };
        format!(
            "in the ledger: {} reports for this study, made before: they are not made again{}{}",
            made.total(),
            some(made.pending, "are still to be sent"),
            some(
                made.refused,
                "were refused: --resend-refused sends them again"
            )
        )
    }));
    lines.extend(checked.describe(params));
    lines.extend(reason.map(|why| format!("what cannot be used: {why}")));
    lines.push(
        "nothing was perturbed, charged, written or sent; without --check the reports are made and sent"
            .to_owned(),
    );
    output::text(&lines.join("\n"))?;
    output::text(&format!(
        "\nwhat one report reveals\n{}",
        output::privacy_text(&study.privacy())
    ))
}

/// The flags of this command that may help.
fn with_flags(error: eigenveil_client::Error) -> CliError {
    let flags = match error.code() {
        Some(ErrorCode::BudgetExceeded) => {
            "; the flags are --limit-epsilon, --limit-epsilon-per-study and --limit-delta"
        }
        Some(ErrorCode::InvalidAbout) => "; or give --accept-new-purpose",
        _ if error.is_row_file_mismatch() => "; the flags are --same-participants and --ledger",
        _ if error.name() == "rows-changed" => {
            let sentence = error.detail();
            return CliError::usage(format!(
                "{sentence}; give the flags that were given then, or another --ledger"
            ));
        }
        _ if error.name() == "usage" => return CliError::usage(error.detail()),
        _ => return error.into(),
    };
    let message = format!("{}{flags}", error.detail());
    CliError::from(error).with_message(message)
}
