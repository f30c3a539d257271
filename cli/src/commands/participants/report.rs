//! `eigenveil report`: rows of a file as participants.

mod site;

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use clap::Args;
use eigenveil_client::{
    AdmittedRows, Hint, Holders, RefusedRow, RowCharges, RowLedger, Study, StudyInfo, SystemClock,
    UploadAnswer, UploadProgress, UploadRequest,
    http::{HttpSettings, RetryPolicy, SendSummary, StudyClient},
    upload_table,
};
use eigenveil_shared::{
    ErrorCode,
    api::StudyState,
    clock::Clock as _,
    enrolment::ParticipantToken,
    parameters::Parameters,
    privacy::{REFUSAL, STOPPING, format_delta},
    study::Fingerprint,
    wording::counted,
};
use eigenveil_tables::{ExpectedColumns, Label, Settings, identifiers, number_in};
use serde::Serialize;

use super::{
    report_check::RowCheck, report_give_up::give_up, report_persons::Persons, report_questions,
};
use crate::{
    args::ServerArgs,
    commands::study_name::not_one_study,
    error::{CliError, Result, in_flags},
    files, output,
    tables::TableArgs,
};

/// Perturb the rows of a file, one participant each, and upload them
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  eigenveil report --server http://127.0.0.1:8080 --study ID --rows rows.npy\n  eigenveil report --study ID --rows people.csv --drop id --ledger people.ledger --limit-epsilon 20\n  eigenveil report --study ID --rows visits.csv --person patient --check\n  eigenveil report --study ID --rows table.csv --site \"St. Mary\" --tokens token.txt\n\nColumns are matched by name with the study's features, if they have names, before anything is perturbed or charged.\nIf they have no names, --header yes or --header no says what the first line of CSV or TSV is: a guess would depend on\nthe first participant's row.\n\nEach row is perturbed once, and its report is written to the ledger (--ledger, default FILE.ledger beside the rows)\nbefore it is sent. Running the command again finishes an interrupted run, and never counts a row twice.\nThe ledger stores which token belongs to which row: --tokens is needed once.\nA row with a field that is missing, infinite or not a number, with too many fields or a LIBSVM index beyond the study's\ndimension, or longer than --bound-rows require allows, is sent as the zero row, because whether a row is sent must not\nreveal its data. In a study whose features have observed shares, a missing field counts as its center; in a preparation\nsuch a field is answered for as missing, or at random, and no row is a zero row. Only you are told how many such rows\nand fields there are, on standard error. A column is refused, by name, if it has 20 fields or more that are not empty\nand most of them cannot be read, or are none of the study's categories (which in a preparation is another category);\nnever with --person, which refuses a line with another number of fields: whose it is cannot be read.\n\nWith --site the whole table makes one report, and no cell refuses it: you are shown what cannot be used and asked once.\nWith --person, too, later tables may have the same persons again, in any order: only those who were never charged are\nsent, with a token of their own.\n\nThe ledger stores what each row has spent in all studies, and refuses reports beyond its limits and a second report of\na row for the same study. Row i of every file used with a ledger is participant i. eigenveil receipt shows it.\n\nTo stop: eigenveil report --give-up --study ID --ledger FILE drops the reports that no server has acknowledged. Their\nepsilon stays charged: the server may have one already, if only its response was lost."
)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Identifier of the study, the beginning of it, or the study's name; if the ledger knows another study by these,
    /// only the whole identifier is taken
    #[arg(long, value_name = "ID")]
    study: String,
    /// Fingerprint that the study must have; any other study is refused
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
    /// Rows: .csv, .tsv, .parquet, .npy or .libsvm; one row = one participant
    #[arg(long, value_name = "FILE", required_unless_present = "give_up")]
    rows: Option<PathBuf>,
    /// Ledger: the reports to be sent, and what each row has spent over all studies [default: beside the row file, with
    /// its name, or with that of --site]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    #[command(flatten)]
    limits: LimitArgs,
    /// The file has changed, but row i is still the same participant as row i of the earlier files
    #[arg(long)]
    same_participants: bool,
    /// Participant tokens, for a study that requires them, one a line: line i is for row i (see study tokens); with
    /// --site its one token
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
    /// Do not ask for confirmation on a terminal
    #[arg(long)]
    yes: bool,
    /// Only say what would be sent, or why it would be refused: nothing is perturbed, charged, written or sent
    #[arg(long, conflicts_with_all = ["yes", "no_batch", "connections"])]
    check: bool,
    /// Give up the study's reports in the ledger (of --rows, of --site or of a device) that no server has acknowledged:
    /// they are never sent, their charge stays, and no other report of these rows is made for the study; no server is
    /// asked
    #[arg(long, conflicts_with_all = [
        "fingerprint", "LimitArgs", "same_participants", "tokens", "no_batch", "connections", "accept_new_purpose",
        "moved", "resend_refused", "yes", "check", "person", "weight", "min_rows", "approve", "TableArgs", "ca_cert",
        "insecure_http", "proxy",
    ])]
    give_up: bool,
    /// Rows with the same text in this column are one person's: one of them, drawn at random, is reported, and the
    /// report protects all of the person's rows and their number; with --site all of them together count as one
    #[arg(long, value_name = "COLUMN")]
    person: Option<String>,
    /// How much each row counts, above 0 and at most 1, in a study with weights; protected like the row
    #[arg(long, value_name = "COLUMN", conflicts_with = "person")]
    weight: Option<String>,
    /// Name of the site whose table this is, as its token has it: all rows make one report, to a study of sites
    #[arg(long, value_name = "NAME", conflicts_with_all = ["weight", "no_batch", "connections", "yes"])]
    site: Option<String>,
    /// Fewest rows, or persons, with which the site takes part; whoever learns of a refusal learns that there are fewer,
    /// which ε does not cover
    #[arg(long, value_name = "N", requires = "site")]
    min_rows: Option<u64>,
    /// Do not ask: what --site shows may be sent
    #[arg(long, requires = "site", conflicts_with = "check")]
    approve: bool,
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

/// The document of `--check`. It has nothing that depends on cells, which is told to a person alone.
#[derive(Serialize)]
struct CheckAnswer {
    study: String,
    participants: usize,
    /// Reports of this study in the ledger.
    already_made: Option<u64>,
    /// Reports that a run would send, beside the new ones.
    pending: Option<u64>,
    /// Reports that the server refused, and that a run would not send.
    refused: Option<u64>,
    /// Reports that were given up, and that no run sends.
    given_up: Option<u64>,
    epsilon: f64,
    delta: f64,
}

pub(crate) async fn run(args: &ReportArgs, json: bool) -> Result<()> {
    let ledger_path = args.ledger_path()?;
    if args.give_up {
        return give_up(&args.study, &ledger_path, json);
    }
    let http = args.server.settings()?;
    let study = fetch(args, &http).await?;
    if let Some(site) = &args.site {
        return site::run(args, site, &ledger_path, study, http, json).await;
    }
    let study = Study::try_from(study).map_err(|error| {
        let message = format!(
            "{}, or give --site NAME, the name of your site",
            error.detail()
        );
        CliError::from(error).with_message(message)
    })?;
    let bytes = files::read(args.rows())?;
    let mut persons = read_persons(args, bytes, study.params())?;
    let mut ledger = RowLedger::open_unchanged(&ledger_path)?;
    // Shown before anybody agrees. The ledger stores the same for the receipt.
    if !(json || args.check) {
        output::print_error_line(&describe_request(&study));
    }
    let (request, lines) = request(args, &study, &ledger, persons.holders.count())?;
    let admitted = ledger
        .admit_table(&study, &persons, &request)
        .map_err(|error| with_flags(args, &study, ledger.path(), &lines, error))?;
    output::print_notes(persons.table.notes());
    if args.check {
        check_pending(&study, admitted.counts.pending)?;
        let counts = ledger_path.exists().then_some(admitted.counts);
        print_check(&study, &persons, counts, json)?;
        return check_refused(admitted.counts.refused, &ledger.refused(&study, 1)?);
    }
    persons.bytes = Vec::new();
    // Nothing is asked about reports prepared before: they are sent unchanged, for the purpose shown then.
    if admitted.counts.total() == 0 && !confirmed(&persons, study.params(), args.yes)? {
        return Err(CliError::failed(
            "nothing was perturbed or sent; ask whoever runs the study for centers, scales or observed shares (eigenveil prepare), mend the file, or run it with --yes",
        ));
    }
    let patient = HttpSettings {
        retry: RetryPolicy::patient(),
        ..http
    };
    let answer = upload(&study, &mut ledger, admitted, &persons, &patient).await?;
    finish(&study, persons.are_labelled(), &answer, json)
}

/// Whether the file's owner agrees to what its rows look like. About a preparation they are told, and not asked: each
/// answer is about a single cell.
fn confirmed(persons: &Persons, params: &Parameters, yes: bool) -> Result<bool> {
    match params.preparation() {
        Ok(params) => {
            report_questions::tell(persons, params);
            Ok(true)
        }
        Err(_) => {
            let params = params.rows()?;
            RowCheck::new(persons, params).confirmed(yes, params)
        }
    }
}

impl ReportArgs {
    /// The file of rows, which clap requires unless reports are given up.
    fn rows(&self) -> &Path {
        self.rows.as_deref().unwrap_or(Path::new(""))
    }

    /// The ledger's file: the one that is named, or the one beside the rows, with their name or that of the site.
    fn ledger_path(&self) -> Result<PathBuf> {
        if let Some(ledger) = &self.ledger {
            return Ok(ledger.clone());
        }
        let Some(rows) = &self.rows else {
            return Err(CliError::usage(
                "give --ledger FILE, or --rows FILE whose ledger lies beside it",
            ));
        };
        // Beside a pipe or a file of /dev it would be lost with the next start of the machine.
        if files::is_transient(rows) && !rows.is_dir() {
            return Err(CliError::usage(format!(
                "{} is not a file that stays, so the ledger cannot lie beside it; give --ledger FILE, the same one every time",
                rows.display()
            )));
        }
        // A symbolic link shares the ledger of the file it points to.
        let real = fs::canonicalize(rows).unwrap_or_else(|_| rows.clone());
        let is_file_name = |c: char| c.is_alphanumeric() || " ._-".contains(c);
        match &self.site {
            None => Ok(output::with_suffix(&real, ".ledger")),
            Some(site) if site.chars().all(is_file_name) => {
                Ok(real.with_file_name(format!("{site}.ledger")))
            }
            Some(site) => Err(CliError::usage(format!(
                "the name of the site, {site:?}, cannot be that of its ledger; give --ledger FILE, the same one every time"
            ))),
        }
    }
}

/// The study, with the fingerprint that was given.
async fn fetch(args: &ReportArgs, http: &HttpSettings) -> Result<StudyInfo> {
    let client = StudyClient::with_settings(&args.server.server, http)?;
    let pinned = args.fingerprint.as_deref();
    let pinned: Option<Fingerprint> = pinned
        .map(|hex| hex.to_ascii_lowercase().parse())
        .transpose()?;
    let study = client.find(&args.study, pinned).await;
    study.map_err(not_one_study)
}

/// The upload that these arguments ask for, and the line of each token in its file.
fn request(
    args: &ReportArgs,
    study: &StudyInfo,
    ledger: &RowLedger,
    participants: usize,
) -> Result<(UploadRequest, Vec<usize>)> {
    let limits = &args.limits;
    let moved = args.moved || agrees_to_move(args, study, ledger)?;
    let tokens = args.tokens.as_deref();
    let tokens = tokens.map(|path| read_tokens(path, participants));
    let (lines, tokens) = tokens.transpose()?.unzip();
    let request = UploadRequest {
        moved,
        accept_new_purpose: args.accept_new_purpose,
        resend_refused: args.resend_refused,
        same_participants: args.same_participants,
        epsilon_per_study: limits.limit_epsilon_per_study,
        epsilon_total: limits.limit_epsilon,
        delta_total: limits.limit_delta,
        connections: Some(args.connections),
        single: args.no_batch,
        tokens,
    };
    Ok((request, lines.unwrap_or_default()))
}

/// A refusal, with the flags that may help.
fn with_flags(
    args: &ReportArgs,
    study: &StudyInfo,
    ledger: &Path,
    lines: &[usize],
    error: eigenveil_client::Error,
) -> CliError {
    let detail = in_flags(error.detail());
    let made_by = "whoever runs the study makes them: eigenveil study tokens";
    CliError::usage(match (error.hint(), &args.tokens) {
        (Some(Hint::Move(from)), _) => format!(
            "the reports in {} were made for this study at {from}, not at {}; if it has moved here, give --moved: the same reports are sent here and counted once. Otherwise give --server {from}",
            ledger.display(),
            study.server()
        ),
        (Some(Hint::Tokens(_, missing)), None) => format!(
            "this study takes a report only with a one-time token, and there is none for {missing} of the file's participants; give --tokens FILE, a line for each ({made_by})"
        ),
        (Some(Hint::Tokens(given, rows)), Some(path)) => format!(
            "{} has {} for {}; ask whoever runs the study for one token per row",
            path.display(),
            counted(*given as u64, "token"),
            counted(*rows, "row")
        ),
        (Some(Hint::DuplicateTokens { first, second }), Some(path)) => format!(
            "lines {} and {} of {} are the same token, with which one row can report; give each row a token of its own ({made_by})",
            lines[*first],
            lines[*second],
            path.display()
        ),
        _ if error.name() == "rows-changed" => {
            format!("{detail}; give the flags that were given then, or another --ledger")
        }
        (hint, _) => {
            let flags = match error.code() {
                _ if hint == Some(&Hint::NewPurpose) => "; or give --accept-new-purpose",
                Some(ErrorCode::BudgetExceeded) => {
                    "; the flags are --limit-epsilon, --limit-epsilon-per-study and --limit-delta"
                }
                _ if error.is_row_file_mismatch() => {
                    "; the flags are --same-participants and --ledger"
                }
                _ => "",
            };
            let message = format!("{detail}{flags}");
            return CliError::from(error).with_message(message);
        }
    })
}

/// Whether somebody at a terminal says that the study, whose reports were made for another address, has moved here.
fn agrees_to_move(args: &ReportArgs, study: &StudyInfo, ledger: &RowLedger) -> Result<bool> {
    let to = study.server();
    let from = ledger.server_of(study.id())?.filter(|from| from != to);
    let Some(from) = from.filter(|_| !args.check) else {
        return Ok(false);
    };
    let answer = output::ask(&format!(
        "The reports were made for this study at {from}, and this is {to}. Has the study moved here? The same reports are then sent here, and counted once. [y/N]"
    ))?;
    Ok(answer.unwrap_or(false))
}

/// Refuses reports that a study does not take, before they are sent to it.
fn check_pending(study: &StudyInfo, pending: u64) -> Result<()> {
    let open = study.check_open(SystemClock.unix_ms());
    let Some(error) = open.err().filter(|_| pending > 0) else {
        return Ok(());
    };
    let why = match (study.state(), study.about().last_day) {
        (StudyState::Open, Some(day)) => {
            format!("took reports until the end of {day} (UTC), which is over")
        }
        (state, _) => format!("is {} and takes no reports", state.as_str()),
    };
    let message = format!(
        "the ledger has {} still to be sent, but study {} {why}: it would only acknowledge those that it has counted before; {}",
        counted(pending, "report"),
        study.id(),
        what_becomes_of_the_rest(study)
    );
    Err(CliError::from(error).with_message(message))
}

/// The fate of the reports that a study does not take, for a message.
fn what_becomes_of_the_rest(study: &StudyInfo) -> &'static str {
    match study.state() {
        StudyState::Draft => "once it is open, run the same command again to finish",
        _ => {
            "the study never opens again, so reports that it has not counted never will be, and stay charged: a perturbed report cannot be taken back"
        }
    }
}

/// Makes the reports that are not there yet, and sends what is pending.
async fn upload(
    study: &Study,
    ledger: &mut RowLedger,
    admitted: AdmittedRows<'_>,
    persons: &Persons,
    http: &HttpSettings,
) -> Result<UploadAnswer> {
    let perturbing = output::bar(persons.holders.count() as u64, "perturbing");
    perturbing.set_position(admitted.counts.total());
    let (mut uploading, mut told) = (None, String::new());
    let sent = upload_table(ledger, admitted, persons, http, |now| {
        match now {
            UploadProgress::Made(done, _) => perturbing.set_position(done),
            UploadProgress::Sent(done, pending) => {
                let bar = uploading.get_or_insert_with(|| {
                    perturbing.finish_and_clear();
                    output::bar(pending, "uploading")
                });
                bar.set_position(done);
            }
            // Once a reason, terminal or not: a bar that stands does not say why.
            UploadProgress::Waiting(reason) if reason != told => {
                let bar = uploading.as_ref().unwrap_or(&perturbing);
                bar.suspend(|| print_waiting(&reason, http));
                told = reason;
            }
            UploadProgress::Waiting(_) => {}
        }
        ControlFlow::Continue(())
    })
    .await;
    perturbing.finish_and_clear();
    if let Some(bar) = uploading {
        bar.finish_and_clear();
    }
    let mut answer = sent.map_err(|error| unfinished(study, error, ""))?;
    let sent = &mut answer.sent;
    if sent.failures.is_empty() {
        return Ok(answer);
    }
    let done = format!(
        "; {} acknowledged now, {} still to be sent",
        counted(sent.accepted + sent.duplicates, "report"),
        sent.pending
    );
    let error = sent.failures.swap_remove(0).error;
    Err(unfinished(study, error, &done))
}

/// The error of an upload that began and did not end.
fn unfinished(study: &StudyInfo, error: eigenveil_client::Error, done: &str) -> CliError {
    let more = match error.code() {
        Some(ErrorCode::TokenRequired) => {
            "run it again with --tokens FILE, a line for each row (whoever runs the study makes them: eigenveil study tokens)"
        }
        Some(ErrorCode::StudyNotOpen | ErrorCode::StudyEnded) => what_becomes_of_the_rest(study),
        _ => "run the same command again to finish, or give up with --give-up",
    };
    // The code that a later server may have is not known here.
    let detail = match error.code() {
        Some(_) => error.detail().to_owned(),
        None => error.to_string(),
    };
    let message = format!("{detail}{done}; {more}");
    CliError::from(error).with_message(message)
}

fn print_waiting(reason: &str, http: &HttpSettings) {
    output::print_error_line(&format!(
        "waiting for the server: {reason}; the same reports are sent again for up to {} s",
        http.retry.max_elapsed.as_secs()
    ));
}

fn finish(study: &Study, persons: bool, answer: &UploadAnswer, json: bool) -> Result<()> {
    let sent = &answer.sent;
    if json {
        output::json(answer)?;
    } else {
        let participants = counted(answer.rows, if persons { "person" } else { "row" });
        output::text(&sent_text(
            &format!("{} of {participants}", answer.acknowledged),
            sent,
            answer.given_up,
        ))?;
        output::text(&charges_text(&answer.charged, "row"))?;
    }
    check_refused(sent.refused, &answer.refusals)?;
    if sent.pending > 0 {
        return Err(CliError::failed(format!(
            "{} still to be sent; run the same command again to finish, or give them up with --give-up",
            counted(sent.pending, "report")
        )));
    }
    if json {
        return Ok(());
    }
    output::text(&what_one_report_reveals(study, persons))
}

/// The outcome of an upload; `reports` are acknowledged in all.
fn sent_text(reports: &str, sent: &SendSummary, given_up: u64) -> String {
    let before = match sent.duplicates {
        0 => String::new(),
        some => format!(", {some} of them counted before"),
    };
    let given_up = match given_up {
        0 => String::new(),
        some => format!(", {some} given up"),
    };
    format!(
        "{reports} acknowledged ({} now{before}), {} refused{given_up}, {} sent in {:.1} s",
        sent.accepted + sent.duplicates,
        sent.refused,
        counted(sent.bytes, "byte"),
        sent.seconds,
    )
}

/// The charges of an upload; `who` is charged.
fn charges_text(charged: &RowCharges, who: &str) -> String {
    let (spent, limits) = (charged.spent, &charged.limits);
    format!(
        "ledger: {}: {} charged epsilon {}, delta {}; the most that a {who} has spent in all studies: epsilon {} of {}, delta {} of {}",
        charged.ledger,
        counted(charged.rows, who),
        charged.epsilon,
        format_delta(charged.delta),
        spent.epsilon,
        limits.epsilon_total(),
        format_delta(spent.delta),
        format_delta(limits.delta_total())
    )
}

fn what_one_report_reveals(study: &Study, persons: bool) -> String {
    let mut privacy = study.privacy();
    if persons {
        privacy = privacy.of_person();
    }
    format!(
        "\nwhat one report reveals\n{}\n\n{STOPPING} (--give-up)",
        output::privacy_text(&privacy)
    )
}

/// Fails if reports were refused; `first` are some of them.
fn check_refused(count: u64, first: &[RefusedRow]) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let why = first
        .first()
        .map(|r| format!("{} [{}]", r.detail, r.code))
        .unwrap_or_default();
    Err(CliError::failed(format!(
        "the server refused {}; the first: {why}. The ledger keeps what was refused: once the cause is gone, send it again, unchanged, with --resend-refused",
        counted(count, "report")
    )))
}

/// Who asks for reports, and for what purpose.
fn describe_request(study: &StudyInfo) -> String {
    let stated = |text: &Option<String>| text.clone().unwrap_or_else(|| "not stated".to_owned());
    let about = study.about();
    let meanings = study.parameters().feature_names().unwrap_or_default();
    let meanings = meanings.iter().enumerate().filter_map(|(at, name)| {
        let meaning = about.feature(at)?;
        Some(format!("\n  {name:<11}  {meaning}"))
    });
    format!(
        "study {:?}\n  purpose      {}\n  responsible  {}\n  contact      {}\n  last day     {}{}\n  {REFUSAL}",
        study.name().unwrap_or_default(),
        stated(&about.purpose),
        stated(&about.responsible_party),
        stated(&about.contact),
        stated(&about.last_day.map(|day| format!("{day} (UTC)"))),
        meanings.collect::<String>()
    )
}

/// The rows, and whose they are and how much they count, by the columns that say so.
fn read_persons(args: &ReportArgs, bytes: Vec<u8>, params: &Parameters) -> Result<Persons> {
    let weights = params
        .preprocessing()
        .ok()
        .and_then(|constants| constants.weights);
    match (weights, &args.weight) {
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
    let expected = ExpectedColumns {
        persons: args.person.is_some(),
        other_categories: params.preparation().is_ok(),
        ..ExpectedColumns::study(params.dimension(), params.feature_names())
    };
    let label = match (&args.person, &args.weight) {
        (None, None) => None,
        (Some(column), _) => Some(("--person", column)),
        (None, Some(column)) => Some(("--weight", column)),
    };
    let settings = args.table.settings();
    let settings = Settings {
        label: label.map(|(flag, column)| Label {
            flag,
            column: column.clone(),
        }),
        ..settings.map_err(|error| error.context(args.rows().display()))?
    };
    let table = eigenveil_tables::parse(args.rows(), &bytes, &settings, Some(&expected))?;
    let holders = match label {
        None => Holders::Rows(table.len()),
        Some(_) if expected.persons => Holders::persons(identifiers(table.labels())?),
        Some(_) => {
            let labels = table.labels().iter();
            Holders::Weighted(
                labels
                    .map(|cell| number_in(cell, settings.decimal))
                    .collect(),
            )
        }
    };
    Ok(Persons {
        table,
        bytes,
        holders,
    })
}

/// The tokens of as many rows, if there are so many, and their lines. Errors name a token by its number.
fn read_tokens(path: &Path, rows: usize) -> Result<(Vec<usize>, Vec<ParticipantToken>)> {
    let text = files::read_text(path)?;
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty());
    let tokens = lines.take(rows).enumerate().map(|(index, (line, text))| {
        let token = ParticipantToken::parse(text).map_err(|error| {
            CliError::from(error).context(format!("{}, token {}", path.display(), index + 1))
        });
        token.map(|token| (line, token))
    });
    tokens.collect()
}

/// Prints what a run would send, and on standard error what the cells are; `made` are the study's reports in the ledger,
/// if there is one.
fn print_check(
    study: &Study,
    persons: &Persons,
    made: Option<eigenveil_client::RowCounts>,
    json: bool,
) -> Result<()> {
    let params = study.params();
    match (params.preparation(), params.rows()) {
        (Ok(params), _) => report_questions::tell(persons, params),
        (_, rows) => {
            let rows = rows?;
            RowCheck::new(persons, rows).tell(rows);
        }
    }
    if json {
        return output::json(&CheckAnswer {
            study: study.id().to_owned(),
            participants: persons.holders.count(),
            already_made: made.map(eigenveil_client::RowCounts::total),
            pending: made.map(|made| made.pending),
            refused: made.map(|made| made.refused),
            given_up: made.map(|made| made.given_up),
            epsilon: params.budget().epsilon(),
            delta: params.budget().delta(),
        });
    }
    let mut lines = vec![describe_request(study)];
    if persons.are_labelled() {
        lines.push(format!(
            "persons: {}; each sends one report, made from one of the person's rows",
            persons.holders.count()
        ));
    }
    lines.extend(made.map(|made| {
        let unsent = match made.pending {
            0 => String::new(),
            some => format!("; {some} still to be sent"),
        };
        let unsent = match made.given_up {
            0 => unsent,
            some => format!("{unsent}; {some} given up"),
        };
        format!(
            "in the ledger: {} for this study, made before and not made again{unsent}",
            counted(made.total(), "report")
        )
    }));
    lines.push(
        "nothing was perturbed, charged, written or sent; without --check the reports are made and sent"
            .to_owned(),
    );
    output::text(&lines.join("\n"))?;
    output::text(&what_one_report_reveals(study, persons.are_labelled()))
}
