//! `eigenveil report --site`: the table of a site, as one report.

use std::{
    ops::{ControlFlow, Range},
    path::Path,
};

use eigenveil_client::{
    AdmittedTable, RowLedger, SitePersons, SiteStudy, SiteTable, SiteUploadAnswer,
    SiteUploadRequest, StudyInfo, UploadProgress,
    http::{HttpSettings, RetryPolicy},
    upload_site_table,
};
use eigenveil_shared::{ErrorCode, preprocess::Row, privacy::STOPPING, wording::counted};
use eigenveil_tables::{
    BlockTable, ExpectedColumns, IdentifierColumn, Label, ReadAt as _, Settings, numbers_of,
};
use sha2::{Digest, Sha256};

use super::{
    CheckAnswer, ReportArgs, charges_text, check_pending, check_refused, describe_request,
    print_waiting, request, sent_text, unfinished, with_flags,
};
use crate::{
    error::{CliError, Result, in_flags},
    files, output,
};

/// The table of a site in a file, read in blocks.
struct SiteFile {
    table: BlockTable<files::Input>,
    persons: Option<SitePersons>,
}

impl SiteTable for SiteFile {
    fn row_count(&self) -> usize {
        self.table.len()
    }

    fn rows(&self, numbers: Range<usize>) -> eigenveil_client::Result<Vec<Row>> {
        let rows = self.table.rows(numbers);
        rows.map_err(|error| eigenveil_shared::Error::invalid_request(error.detail()).into())
    }

    fn persons(&self) -> Option<&SitePersons> {
        self.persons.as_ref()
    }

    fn identity(&self) -> Vec<u8> {
        self.table.digest().to_vec()
    }

    /// The digest of the number of rows and of the selected columns.
    fn settings_digest(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update((self.table.len() as u64).to_le_bytes());
        for &column in self.table.file_columns() {
            hash.update((column as u64).to_le_bytes());
        }
        hash.finalize().to_vec()
    }
}

pub(super) async fn run(
    args: &ReportArgs,
    site: &str,
    ledger: &Path,
    study: StudyInfo,
    http: HttpSettings,
    json: bool,
) -> Result<()> {
    let study = SiteStudy::try_from(study).map_err(|error| {
        let message = format!("{}, or leave --site out", error.detail());
        CliError::from(error).with_message(message)
    })?;
    let mut ledger = RowLedger::open_unchanged(ledger)?;
    let table = read_table(args, &study, &ledger)?;
    if !json {
        output::print_error_line(&format!(
            "{}\n\nwhat the report reveals\n{}\n\n{STOPPING} (--give-up)\n",
            describe_request(&study),
            output::privacy_text(&study.privacy())
        ));
    }
    let (upload, _) = request(args, &study, &ledger, usize::MAX)?;
    let request = SiteUploadRequest {
        site: site.to_owned(),
        min_rows: args.min_rows,
        upload,
    };
    let admitted = ledger.admit_site_table(&study, &table, &request, &http);
    let mut admitted = admitted
        .await
        .map_err(|error| refused(args, &study, &ledger, error))?;
    output::print_notes(table.table.notes());
    let adding = output::bar(table.row_count() as u64, "adding up");
    let summed = admitted.sum(|done| {
        adding.set_position(done);
        ControlFlow::Continue(())
    });
    adding.finish_and_clear();
    summed?;
    if args.check {
        return check(&study, &ledger, &admitted, &table, json);
    }
    if admitted.counts().charged > 0 {
        ask(args, &study, &admitted, &table)?;
    }
    let patient = HttpSettings {
        retry: RetryPolicy::patient(),
        ..http
    };
    let mut last_reason = String::new();
    let answer = upload_site_table(&mut ledger, admitted, &patient, |now| {
        if let UploadProgress::Waiting(reason) = now
            && reason != last_reason
        {
            print_waiting(&reason, &patient);
            last_reason = reason;
        }
        ControlFlow::Continue(())
    });
    let answer = answer.await;
    finish(
        &study,
        answer.map_err(|error| unfinished(&study, error, ""))?,
        json,
    )
}

/// Finds the rows of the file and whose they are, with a bar.
fn read_table(args: &ReportArgs, study: &SiteStudy, ledger: &RowLedger) -> Result<SiteFile> {
    let params = study.params();
    let expected = ExpectedColumns {
        persons: args.person.is_some(),
        site: true,
        ..ExpectedColumns::study(params.dimension(), params.feature_names())
    };
    let settings = args.table.settings();
    let settings = Settings {
        label: args.person.clone().map(|column| Label {
            flag: "--person",
            column,
        }),
        ..settings.map_err(|error| error.context(args.rows().display()))?
    };
    let input = files::open(args.rows())?;
    let reading = output::bar(input.size(), "reading");
    let mut identifiers = IdentifierColumn::default();
    let mut persons = ledger.site_persons(numbers_of)?;
    let table = BlockTable::open(
        args.rows(),
        input,
        settings,
        &expected,
        &mut |label| {
            persons.push(&identifiers.read(label)?);
            Ok(())
        },
        &mut |bytes| reading.set_position(bytes),
    );
    reading.finish_and_clear();
    let table = table?;
    let exact = identifiers.finish();
    exact.map_err(|error| CliError::from(error).context(args.rows().display()))?;
    Ok(SiteFile {
        table,
        persons: args.person.is_some().then_some(persons),
    })
}

/// A refusal before anything is charged, with the flags that may help.
fn refused(
    args: &ReportArgs,
    study: &SiteStudy,
    ledger: &RowLedger,
    error: eigenveil_client::Error,
) -> CliError {
    let detail = in_flags(error.detail());
    match error.code() {
        Some(ErrorCode::TokenRequired) => CliError::usage(format!(
            "{detail}; give --tokens FILE with the token in it (eigenveil study tokens)"
        )),
        None if error.name() == "usage" && error.hint().is_none() => CliError::usage(detail),
        _ => with_flags(args, study, ledger.path(), &[], error),
    }
}

/// Lines for the site on what the report would have of the table.
fn preview(study: &SiteStudy, admitted: &AdmittedTable<'_>, table: &SiteFile) -> Vec<String> {
    let counts = admitted.counts();
    let terms = study.params().terms();
    let mut lines = vec![format!("rows: {}", counts.rows)];
    if let Some(cap) = terms.rows_per_person.filter(|_| counts.charged > 0) {
        lines.push(format!(
            "persons: {}; rows left out because their person was charged before: {}, because a person has more than {cap}: {}",
            counts.charged, counts.charged_before, counts.beyond_cap
        ));
    }
    if counts.known_others > 0 {
        lines.push(format!(
            "the ledger knows {} persons, and none of these: if some were in an earlier table, their identifiers are spelled otherwise (N7 and n7), and they would be charged again",
            counts.known_others
        ));
    }
    if counts.charged > 0 {
        lines.push(format!(
            "rows that cannot be used and are neither in the sum nor in the count: {}",
            counts.unusable
        ));
        let unreadable = table.table.unreadable(false);
        lines.extend(unreadable.map(|why| format!("cells: {}", in_flags(&why))));
    }
    let reports = admitted.counts;
    if reports.total() > 0 {
        lines.push(format!(
            "reports of the site in the ledger: {}; still to be sent: {}, given up: {}",
            reports.total(),
            reports.pending,
            reports.given_up
        ));
    }
    if counts.waiting > 0 {
        lines.push(format!(
            "{} that were never charged: {}; once the earlier report has arrived, or was given up, send them with another token",
            terms.unit(),
            counts.waiting
        ));
    }
    lines
}

/// Shows the site what would be sent, and asks once.
fn ask(
    args: &ReportArgs,
    study: &SiteStudy,
    admitted: &AdmittedTable<'_>,
    table: &SiteFile,
) -> Result<()> {
    for line in preview(study, admitted, table) {
        output::print_error_line(&format!("shown only to you: {line}"));
    }
    if args.approve {
        return Ok(());
    }
    let answer = output::ask(
        "Nothing has been perturbed, charged or sent. Whoever runs the study can see whether your site takes part. Send the report? [y/N]",
    )?;
    match answer {
        Some(true) => Ok(()),
        Some(false) => Err(CliError::failed(
            "nothing was perturbed, charged or sent; mend the file and run the command again",
        )),
        None => Err(CliError::usage(
            "nothing was perturbed, charged or sent: nobody is here to be asked; give --approve if what is shown may be sent",
        )),
    }
}

fn check(
    study: &SiteStudy,
    ledger: &RowLedger,
    admitted: &AdmittedTable<'_>,
    table: &SiteFile,
    json: bool,
) -> Result<()> {
    check_pending(study, admitted.counts.pending)?;
    let lines = preview(study, admitted, table);
    if json {
        for line in &lines {
            output::print_error_line(&format!("shown only to you: {line}"));
        }
        let reports = ledger.path().exists().then_some(admitted.counts);
        let budget = study.params().budget();
        output::json(&CheckAnswer {
            study: study.id().to_owned(),
            participants: usize::try_from(admitted.counts().charged).unwrap_or(usize::MAX),
            already_made: reports.map(eigenveil_client::RowCounts::total),
            pending: reports.map(|reports| reports.pending),
            refused: reports.map(|reports| reports.refused),
            given_up: reports.map(|reports| reports.given_up),
            epsilon: budget.epsilon(),
            delta: budget.delta(),
        })?;
    } else {
        output::text(&lines.join("\n"))?;
        output::text(
            "nothing was perturbed, charged, written or sent; without --check the report is made and sent",
        )?;
    }
    check_refused(admitted.counts.refused, &ledger.refused(study, 1)?)
}

fn finish(study: &SiteStudy, mut answer: SiteUploadAnswer, json: bool) -> Result<()> {
    let sent = &mut answer.sent;
    if !sent.failures.is_empty() {
        let error = sent.failures.swap_remove(0).error;
        return Err(unfinished(
            study,
            error,
            "; the report is charged and still to be sent",
        ));
    }
    if json {
        output::json(&answer)?;
    } else {
        let sent = &answer.sent;
        let unit = study.params().terms().unit();
        let reports = counted(answer.acknowledged, "report");
        let reports = format!("site {:?}: {reports}", answer.site);
        output::text(&sent_text(&reports, sent, answer.given_up))?;
        output::text(&charges_text(&answer.charged, unit.trim_end_matches('s')))?;
        if answer.counts.waiting > 0 {
            output::print_error_line(&format!(
                "note: {} {unit} were never charged and are in no report; send them with another token: run the command again",
                answer.counts.waiting
            ));
        }
    }
    check_refused(answer.sent.refused, &answer.refusals)
}
