//! A site's table in its ledger: one report for all its rows, charged for each of them, or each person, and for nobody
//! twice. (`site_upload.rs` sends, and kills.)

use std::{
    fs,
    ops::{ControlFlow, Range},
};

use eigenveil_client::{
    Error, PendingReport, ReportResult, Result, RowLedger, SitePersons, SiteStudy, SiteTable,
    SiteUploadRequest, Study, StudyInfo, TableCounts, UploadRequest,
};
use eigenveil_shared::{
    ErrorCode,
    api::SiteToken,
    codec::SiteReportFormat,
    mechanism::{MechanismKind, NoiseModel, table::NoisyTable},
    packed::PackedSymmetric,
    preprocess::{Norm, Row},
    privacy::Budget,
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms},
};
use rusqlite::Connection;

use crate::{
    common::{NOW, SERVER, STUDY, assert_says, assert_survives_json, limits},
    files::Folder,
    row_ledger::token,
};

pub(crate) const SITE: &str = "St. Mary";
/// Standard deviations of the noise beyond which an entry is wrong: a correct program passes 8 once in 10¹⁵ numbers.
const LIMIT: f64 = 8.0;

/// Rows of three numbers in the unit ball, used as they are; charged what it claims, to the last bit.
pub(crate) fn params(terms: SiteTerms) -> SiteStudyParams {
    let budget = Budget::approximate(4.0, 1e-6).unwrap();
    SiteStudyParams::freeze(SiteStudyDesign {
        norm: Norm::Require { radius: 1.0 },
        centring: None,
        ..SiteStudyDesign::new(3, budget, terms)
    })
    .unwrap()
}

pub(crate) fn persons_of_at_most(rows: u16) -> SiteTerms {
    SiteTerms {
        rows_per_person: Some(rows),
        ..SiteTerms::new(1_000)
    }
}

pub(crate) fn study(name: &str, terms: SiteTerms) -> SiteStudy {
    SiteStudy::new(&SERVER.parse().unwrap(), name, params(terms))
}

#[derive(Clone)]
pub(crate) struct Line(pub(crate) String, pub(crate) [f64; 3]);

/// The number that whole ones mean, with zeros behind a point or without, as `eigenveil_tables::numbers_of` gives it.
fn numbers_of(identifier: &str) -> Vec<String> {
    let whole = identifier.strip_suffix(".0").unwrap_or(identifier);
    let number = whole.parse::<u64>().map(|_| whole.to_owned());
    number.into_iter().collect()
}

/// A table in memory.
pub(crate) struct Table {
    lines: Vec<Line>,
    persons: Option<SitePersons>,
}

impl Table {
    pub(crate) fn of_rows(lines: &[Line]) -> Self {
        Self {
            lines: lines.to_vec(),
            persons: None,
        }
    }

    pub(crate) fn of_persons(ledger: &RowLedger, lines: &[Line]) -> Self {
        let mut persons = ledger.site_persons(numbers_of).unwrap();
        lines.iter().for_each(|line| persons.push(&line.0));
        Self {
            persons: Some(persons),
            ..Self::of_rows(lines)
        }
    }
}

impl SiteTable for Table {
    fn row_count(&self) -> usize {
        self.lines.len()
    }

    fn rows(&self, numbers: Range<usize>) -> Result<Vec<Row>> {
        let lines = self.lines[numbers].iter();
        Ok(lines.map(|line| Row::new(line.1.to_vec())).collect())
    }

    fn persons(&self) -> Option<&SitePersons> {
        self.persons.as_ref()
    }

    fn identity(&self) -> Vec<u8> {
        let numbers = self.lines.iter().flat_map(|line| line.1);
        numbers.flat_map(f64::to_le_bytes).collect()
    }

    fn settings_digest(&self) -> Vec<u8> {
        b"all columns".to_vec()
    }
}

/// Rows along the axes and the diagonal, of these persons in turn.
pub(crate) fn lines(count: usize, persons: Range<usize>) -> Vec<Line> {
    let rows = [[1.0, 0.0, 0.0], [0.0, -0.8, 0.0], [0.6, 0.0, 0.6]];
    let persons = persons.cycle();
    let lines = persons.take(count).enumerate();
    lines
        .map(|(at, person)| Line(format!("p{person}"), rows[at % 3]))
        .collect()
}

pub(crate) fn request(number: u8) -> SiteUploadRequest {
    SiteUploadRequest {
        site: SITE.to_owned(),
        min_rows: None,
        upload: UploadRequest {
            tokens: Some(vec![token(number)]),
            ..UploadRequest::default()
        },
    }
}

/// Admits and sums a table, and stores its report; what the site is told of it.
pub(crate) fn take_part(
    ledger: &mut RowLedger,
    study: &SiteStudy,
    table: &Table,
    request: &SiteUploadRequest,
) -> Result<TableCounts> {
    let mut admitted = ledger.admit_site(study, table, request)?;
    assert!(admitted.sum(|_| ControlFlow::Continue(()))?);
    let counts = admitted.counts();
    assert_eq!(ledger.take_part_as_site(admitted)?, counts.charged);
    Ok(counts)
}

pub(crate) fn pending(ledger: &RowLedger, study: &StudyInfo) -> Vec<PendingReport> {
    ledger.pending(study, 0, usize::MAX).unwrap()
}

pub(crate) fn settle(ledger: &mut RowLedger, study: &StudyInfo, result: &ReportResult) {
    let rows = pending(ledger, study).into_iter().map(|own| own.row);
    let results: Vec<_> = rows.map(|row| (row, result.clone())).collect();
    assert_eq!(ledger.record(study, results).unwrap(), 1);
}

fn refused_as(code: &str) -> ReportResult {
    ReportResult::Refused {
        code: code.to_owned(),
        detail: "no".to_owned(),
    }
}

/// The table that a report shows.
fn decoded(study: &SiteStudy, pending: &PendingReport) -> NoisyTable {
    let format = SiteReportFormat::new(study.params());
    let payload = format.payload(&pending.report.payload[..]).unwrap();
    study.params().mechanism().decode(&payload)
}

/// The report shows this sum and this count, up to its noise.
#[track_caller]
fn shows(study: &SiteStudy, pending: &PendingReport, moment: &PackedSymmetric, rows: f64) {
    let report = decoded(study, pending);
    let mechanism = study.params().mechanism();
    let NoiseModel::Gaussian {
        off_diagonal_sd,
        diagonal_sd,
    } = mechanism.noise_model()
    else {
        unreachable!("reports of sites have Gaussian noise");
    };
    let near = |found: f64, exact: f64, sd: f64| {
        assert!((found - exact).abs() < LIMIT * sd, "{found}, {exact}, {sd}");
    };
    near(report.rows, rows, mechanism.count_sd());
    for i in 0..3 {
        for j in i..3 {
            let sd = if i == j { diagonal_sd } else { off_diagonal_sd };
            near(report.moment.get(i, j), moment.get(i, j), sd);
        }
    }
}

/// By the definition: Σxxᵀ/c over the usable rows, and Σ1/c, c the number of the person's rows that count.
fn exact(lines: &[Line], cap: usize) -> (PackedSymmetric, f64) {
    let (mut moment, mut count) = (PackedSymmetric::zeros(3), 0.0);
    for (at, Line(person, row)) in lines.iter().enumerate() {
        let of_person = |lines: &[Line]| lines.iter().filter(|line| line.0 == *person).count();
        let usable = row.iter().map(|x| x * x).sum::<f64>() <= 1.0;
        if of_person(&lines[..at]) < cap && usable {
            let share = 1.0 / of_person(lines).min(cap) as f64;
            moment.add_outer(row, share);
            count += share;
        }
    }
    (moment, count)
}

#[test]
fn a_report_has_the_sum_of_the_table_and_its_count() {
    let folder = Folder::new();
    let mut records: Vec<Line> = lines(600, 0..600);
    for (at, line) in records.iter_mut().enumerate() {
        match at % 100 {
            7 => line.1[1] = f64::NAN,
            8 => line.1[0] = 2.0,
            _ => {}
        }
    }
    let rows = study("rows", SiteTerms::new(1_000));
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let counts = take_part(&mut ledger, &rows, &Table::of_rows(&records), &request(1)).unwrap();
    let expected = TableCounts {
        rows: 600,
        charged: 600,
        unusable: 12,
        ..TableCounts::default()
    };
    assert_eq!(counts, expected);
    let (moment, count) = exact(&records, usize::MAX);
    assert_eq!(count, 588.0);
    shows(&rows, &pending(&ledger, &rows)[0], &moment, count);

    // 90 persons of six or seven rows, of which the first four count together as one.
    for (at, line) in records.iter_mut().enumerate() {
        line.0 = format!("p{}", at % 90);
    }
    let persons = study("persons", persons_of_at_most(4));
    let mut ledger = RowLedger::open(folder.at("persons")).unwrap();
    let table = Table::of_persons(&ledger, &records);
    let counts = take_part(&mut ledger, &persons, &table, &request(1)).unwrap();
    assert_eq!((counts.rows, counts.charged), (600, 90));
    assert_eq!(counts.beyond_cap, 600 - 4 * 90);
    let (moment, count) = exact(&records, 4);
    assert!(count < 90.0 && count > 80.0);
    shows(&persons, &pending(&ledger, &persons)[0], &moment, count);
    let receipt = ledger.receipt().unwrap();
    assert_eq!((receipt.studies[0].rows, receipt.spent.epsilon), (90, 4.0));
}

/// No call fails because of a value, and whoever sees the report does not see that all rows were unusable.
#[test]
fn a_table_without_usable_rows_sends_noise() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let nan = vec![Line(String::new(), [f64::NAN; 3]); 40];
    let study = study(STUDY, SiteTerms::new(1_000));
    let counts = take_part(&mut ledger, &study, &Table::of_rows(&nan), &request(1)).unwrap();
    assert_eq!((counts.charged, counts.unusable), (40, 40));
    let nothing = PackedSymmetric::zeros(3);
    shows(&study, &pending(&ledger, &study)[0], &nothing, 0.0);
}

#[test]
fn a_table_of_rows_makes_one_report_for_ever() {
    let folder = Folder::new();
    let path = folder.at("rows");
    let study = study(STUDY, SiteTerms::new(1_000));
    let records = lines(50, 0..50);
    let mut ledger = RowLedger::open(&path).unwrap().with_clock(|| NOW);
    take_part(&mut ledger, &study, &Table::of_rows(&records), &request(1)).unwrap();
    let first = pending(&ledger, &study);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].token, Some(token(1)));
    let receipt = ledger.receipt().unwrap();
    assert_says(
        &receipt,
        &[
            "site \"St. Mary\": a table of 50 rows, each of 3 numbers",
            "2026-03-14  report",
            "Each row of the table",
        ],
    );
    assert_survives_json(&receipt);

    let (mut turned, mut changed, mut longer) = (records.clone(), records.clone(), records.clone());
    turned.reverse();
    changed[3].1[0] = 0.5;
    longer.extend(lines(1, 0..1));
    for other in [&turned, &changed, &longer, &records[1..].to_vec()] {
        let error = take_part(&mut ledger, &study, &Table::of_rows(other), &request(2));
        assert_eq!(error.unwrap_err().name(), "rows-changed");
    }
    // Again, whatever became of the report; a second token changes nothing.
    for settled in [
        None,
        Some(refused_as("implausible-report")),
        Some(ReportResult::Accepted),
    ] {
        if let Some(result) = settled {
            settle(&mut ledger, &study, &result);
        }
        drop(ledger);
        ledger = RowLedger::open(&path).unwrap();
        let mut again = request(2);
        again.upload.resend_refused = true;
        let counts = take_part(&mut ledger, &study, &Table::of_rows(&records), &again).unwrap();
        assert_eq!((counts.charged, counts.waiting), (0, 0));
        let left = pending(&ledger, &study);
        let reports = left.iter().map(|left| &left.report);
        assert!(reports.eq(first.iter().take(left.len()).map(|first| &first.report)));
    }
    let counts = ledger.counts(&study).unwrap();
    assert_eq!((counts.acknowledged, counts.total()), (1, 1));
    assert_eq!(ledger.receipt().unwrap().spent, receipt.spent);

    // In another study these rows are charged again, and others are not these.
    let next = self::study("next", SiteTerms::new(1_000));
    let error = take_part(&mut ledger, &next, &Table::of_rows(&turned), &request(3)).unwrap_err();
    assert!(error.is_row_file_mismatch(), "{error}");
    take_part(&mut ledger, &next, &Table::of_rows(&records), &request(3)).unwrap();
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 8.0);
}

/// Whatever a report waits for, another token can be given, and its bytes stay the same.
#[test]
fn a_token_is_replaced_and_the_report_is_not() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let study = study(STUDY, SiteTerms::new(1_000));
    let table = Table::of_rows(&lines(5, 0..5));
    take_part(&mut ledger, &study, &table, &request(1)).unwrap();
    let first = pending(&ledger, &study);
    for (code, number) in [("participant-token-unknown", 2), ("token-spent", 3)] {
        settle(&mut ledger, &study, &refused_as(code));
        assert!(pending(&ledger, &study).is_empty());
        let other = request(number);
        let admitted = ledger.admit_site(&study, &table, &other).unwrap();
        assert_eq!((admitted.counts.pending, admitted.counts.refused), (1, 0));
        drop(admitted);
        assert_eq!(
            take_part(&mut ledger, &study, &table, &other)
                .unwrap()
                .charged,
            0
        );
        let again = pending(&ledger, &study);
        assert_eq!(again[0].report, first[0].report);
        assert_eq!(again[0].token, Some(token(number)));
    }
    // That of a pending report, too, and of one that was refused for another reason, which stays one until it is to be
    // sent again. Without a token it goes with the last one.
    take_part(&mut ledger, &study, &table, &request(4)).unwrap();
    assert_eq!(pending(&ledger, &study)[0].token, Some(token(4)));
    settle(&mut ledger, &study, &refused_as("implausible-report"));
    take_part(&mut ledger, &study, &table, &request(5)).unwrap();
    assert!(pending(&ledger, &study).is_empty());
    for (number, tokens) in [(5, None), (6, Some(vec![token(6)]))] {
        let mut again = request(number);
        again.upload.resend_refused = true;
        again.upload.tokens = tokens;
        take_part(&mut ledger, &study, &table, &again).unwrap();
        let sent = pending(&ledger, &study);
        assert_eq!(sent[0].report, first[0].report);
        assert_eq!(sent[0].token, Some(token(number)));
        settle(&mut ledger, &study, &refused_as("implausible-report"));
    }
}

/// Two rows of each of these persons, all the same.
fn alike(row: [f64; 3], persons: Range<usize>) -> impl Iterator<Item = Line> {
    let lines = lines(2 * persons.len(), persons);
    lines.into_iter().map(move |line| Line(line.0, row))
}

#[test]
fn a_later_table_sends_only_persons_who_were_never_charged() {
    let folder = Folder::new();
    let path = folder.at("persons");
    let mut ledger = RowLedger::open(&path).unwrap();
    let study = study(STUDY, persons_of_at_most(3));
    let old: Vec<Line> = alike([1.0, 0.0, 0.0], 0..80).collect();
    // Again in another order, with corrected and further rows, and others.
    let mut both: Vec<Line> = alike([0.0, 0.0, 1.0], 20..80).collect();
    both.extend(alike([0.0, 1.0, 0.0], 80..200));
    both.reverse();
    let of_persons = |ledger: &RowLedger, lines: &[Line]| Table::of_persons(ledger, lines);
    let table = of_persons(&ledger, &old);
    assert_eq!(
        take_part(&mut ledger, &study, &table, &request(1))
            .unwrap()
            .charged,
        80
    );
    let first = pending(&ledger, &study);

    // Until the first report has arrived none is made.
    let table = of_persons(&ledger, &both);
    for result in [None, Some(refused_as("implausible-report"))] {
        if let Some(result) = result {
            settle(&mut ledger, &study, &result);
        }
        let counts = take_part(&mut ledger, &study, &table, &request(2)).unwrap();
        assert_eq!((counts.charged, counts.waiting), (0, 120));
    }
    ledger.requeue_refused(&study).unwrap();
    assert_eq!(pending(&ledger, &study)[0].report, first[0].report);
    settle(&mut ledger, &study, &ReportResult::Accepted);
    let counts = take_part(&mut ledger, &study, &table, &request(2)).unwrap();
    assert_eq!((counts.charged, counts.charged_before), (120, 120));
    assert_eq!((counts.beyond_cap, counts.waiting), (0, 0));
    let second = pending(&ledger, &study);
    assert_ne!(second[0].report.id, first[0].report.id);
    let mut moment = PackedSymmetric::zeros(3);
    moment.add_outer(&[0.0, 1.0, 0.0], 120.0);
    shows(&study, &second[0], &moment, 120.0);
    settle(&mut ledger, &study, &ReportResult::Accepted);
    // Everybody is charged.
    drop(ledger);
    let mut ledger = RowLedger::open(&path).unwrap();
    for lines in [&old, &both] {
        let table = of_persons(&ledger, lines);
        let counts = take_part(&mut ledger, &study, &table, &request(3)).unwrap();
        assert_eq!((counts.charged, counts.waiting), (0, 0));
    }
    let receipt = ledger.receipt().unwrap();
    assert_eq!((receipt.studies[0].rows, receipt.spent.epsilon), (200, 4.0));
    let site = receipt.studies[0].site.as_ref().unwrap();
    let units: Vec<u64> = site.reports.iter().map(|report| report.units).collect();
    assert_eq!(units, [80, 120]);
    assert_survives_json(&receipt);
}

/// A program that writes 7 as 7.0 would have everybody charged again; whoever is known is found in either spelling.
#[test]
fn a_known_number_in_another_spelling_is_refused() {
    let spelled = |persons: Range<usize>, ending: &str| -> Vec<Line> {
        let persons = persons.map(|person| Line(format!("{person}{ending}"), [1.0, 0.0, 0.0]));
        persons.collect()
    };
    let study = study(STUDY, persons_of_at_most(3));
    for [first, second] in [["", ".0"], [".0", ""]] {
        let folder = Folder::new();
        let path = folder.at("persons");
        let mut ledger = RowLedger::open(&path).unwrap();
        let table = Table::of_persons(&ledger, &spelled(0..30, first));
        take_part(&mut ledger, &study, &table, &request(1)).unwrap();
        settle(&mut ledger, &study, &ReportResult::Accepted);
        let before = ledger.receipt().unwrap();
        // In the study of the first table and in another one.
        for other in [&study, &self::study("next", persons_of_at_most(3))] {
            let mut later = spelled(100..103, second);
            later.extend(spelled(7..9, second));
            let table = Table::of_persons(&ledger, &later);
            let error = take_part(&mut ledger, other, &table, &request(2)).unwrap_err();
            assert_eq!(error.name(), "usage", "{error}");
            assert_says(
                &error,
                &["row 4 ", "another spelling", "nothing was charged"],
            );
            assert_eq!(ledger.receipt().unwrap().spent, before.spent);
        }
        drop(ledger);
        // Spelled as before they are known, beside new ones in any spelling.
        let mut ledger = RowLedger::open(&path).unwrap();
        let mut later = spelled(0..30, first);
        later.extend(spelled(100..103, second));
        let table = Table::of_persons(&ledger, &later);
        let counts = take_part(&mut ledger, &study, &table, &request(2)).unwrap();
        assert_eq!((counts.charged, counts.charged_before), (3, 30));
        assert_eq!(counts.known_others, 0);
        settle(&mut ledger, &study, &ReportResult::Accepted);
        // Of others the site is told that the ledger knows none of them.
        let table = Table::of_persons(&ledger, &lines(4, 0..4));
        let asked = request(3);
        let admitted = ledger.admit_site(&study, &table, &asked).unwrap();
        assert_eq!(admitted.counts().known_others, 33);
    }
}

/// One column may tell two spellings of a number apart: both are known afterwards, and neither is refused.
#[test]
fn two_spellings_in_one_table_stay_two_persons() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("persons")).unwrap();
    let study = study(STUDY, persons_of_at_most(3));
    let line = |name: &str| Line(name.to_owned(), [1.0, 0.0, 0.0]);
    let table = Table::of_persons(&ledger, &[line("7"), line("7.0")]);
    let counts = take_part(&mut ledger, &study, &table, &request(1)).unwrap();
    assert_eq!(counts.charged, 2);
    settle(&mut ledger, &study, &ReportResult::Accepted);
    let table = Table::of_persons(&ledger, &[line("7.0"), line("7"), line("8")]);
    let counts = take_part(&mut ledger, &study, &table, &request(2)).unwrap();
    assert_eq!((counts.charged, counts.charged_before), (1, 2));
}

/// It is never sent again, whoever is in it is not charged again, and others make a report of their own.
#[test]
fn a_report_that_is_given_up_stays_charged() {
    let folder = Folder::new();
    let path = folder.at("persons");
    let mut ledger = RowLedger::open(&path).unwrap();
    let study = study(STUDY, persons_of_at_most(3));
    let old = Table::of_persons(&ledger, &lines(6, 0..6));
    let both = Table::of_persons(&ledger, &lines(9, 0..9));
    take_part(&mut ledger, &study, &old, &request(1)).unwrap();
    let first = pending(&ledger, &study).remove(0);
    assert_eq!(ledger.give_up(STUDY).unwrap().given_up, 1);
    assert!(pending(&ledger, &study).is_empty());
    let counts = take_part(&mut ledger, &study, &old, &request(2)).unwrap();
    assert_eq!((counts.charged, counts.waiting), (0, 0));
    let counts = take_part(&mut ledger, &study, &both, &request(2)).unwrap();
    assert_eq!((counts.charged, counts.charged_before), (3, 6));
    assert_eq!(pending(&ledger, &study)[0].token, Some(token(2)));
    drop(ledger);
    let mut ledger = RowLedger::open(&path).unwrap();
    let receipt = ledger.receipt().unwrap();
    assert_says(
        &receipt,
        &["for 6 of them: given up", "for 3 of them: not yet known"],
    );
    assert_survives_json(&receipt);
    let (rows, given_up) = (receipt.studies[0].rows, receipt.studies[0].given_up);
    assert_eq!((rows, given_up), (9, 1));
    // Its server turns out to have it.
    let late = [(first.row, ReportResult::Duplicate)];
    ledger.record(&study, late).unwrap();
    let counts = ledger.counts(&study).unwrap();
    assert_eq!((counts.acknowledged, counts.pending), (1, 1));
}

/// In another study, of persons in any order, some have spent more than others.
#[test]
fn the_charges_of_a_person_add_up_over_studies() {
    let folder = Folder::new();
    let path = folder.at("persons");
    let mut ledger = RowLedger::open(&path).unwrap();
    let of_persons = |ledger: &RowLedger, lines: &[Line]| Table::of_persons(ledger, lines);
    let study = study(STUDY, persons_of_at_most(3));
    let old: Vec<Line> = alike([1.0, 0.0, 0.0], 0..200).collect();
    let table = of_persons(&ledger, &old);
    take_part(&mut ledger, &study, &table, &request(1)).unwrap();
    settle(&mut ledger, &study, &ReportResult::Accepted);
    let next = self::study("next", persons_of_at_most(3));
    ledger.set_limits(limits(8.0, 7.5, 1e-5)).unwrap();
    let some: Vec<Line> = alike([1.0, 0.0, 0.0], 190..210).collect();
    let table = of_persons(&ledger, &some);
    let error = take_part(&mut ledger, &next, &table, &request(4)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::BudgetExceeded));
    assert_says(&error, &["some persons"]);
    let new: Vec<Line> = alike([1.0, 0.0, 0.0], 200..210).collect();
    let table = of_persons(&ledger, &new);
    assert_eq!(
        take_part(&mut ledger, &next, &table, &request(4))
            .unwrap()
            .charged,
        10
    );
    settle(&mut ledger, &next, &ReportResult::Accepted);
    ledger.set_limits(limits(8.0, 8.0, 1e-5)).unwrap();
    let table = of_persons(&ledger, &some);
    let counts = take_part(&mut ledger, &next, &table, &request(5)).unwrap();
    assert_eq!((counts.charged, counts.charged_before), (10, 20));
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 8.0);
    drop(ledger);
    let whole = RowLedger::open(&path).unwrap().receipt().unwrap();
    assert_eq!(whole.studies[1].rows, 20);
}

/// Rows of one file are the same participants, alone and in a site's table.
#[test]
fn a_sites_study_adds_up_with_those_of_its_single_rows() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let table = Table::of_rows(&lines(5, 0..5));
    let design = eigenveil_shared::study::StudyDesign::new(
        MechanismKind::DiscreteGaussian,
        3,
        Budget::approximate(4.0, 1e-6).unwrap(),
    );
    let single = eigenveil_shared::study::StudyParams::freeze(design).unwrap();
    let single = Study::new(&SERVER.parse().unwrap(), "single", single);
    let file = ledger
        .row_file(5, &table.identity(), &table.settings_digest())
        .unwrap();
    let report = |number: u64, now| {
        let row = table.rows(number as usize..number as usize + 1)?;
        single.report(&row[0], now)
    };
    let go_on = |_| ControlFlow::Continue(());
    ledger.prepare(&single, &file, report, go_on).unwrap();
    ledger.set_limits(limits(5.0, 7.0, 1e-5)).unwrap();
    let study = study(STUDY, SiteTerms::new(10));
    let error = take_part(&mut ledger, &study, &table, &request(1)).unwrap_err();
    assert_says(&error, &["rows 1 to 5", "epsilon 4 on top of 4"]);
    ledger.set_limits(limits(5.0, 8.0, 1e-5)).unwrap();
    take_part(&mut ledger, &study, &table, &request(1)).unwrap();
    assert_eq!(ledger.receipt().unwrap().spent.epsilon, 8.0);
    assert_eq!(ledger.counts(&single).unwrap().pending, 5);
    assert_eq!(ledger.counts(&study).unwrap().pending, 1);
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let folder = Folder::new();
    let path = folder.at("none");
    let terms = SiteTerms {
        min_rows: 3,
        ..SiteTerms::new(6)
    };
    let rows = study(STUDY, terms);
    let persons = study(
        STUDY,
        SiteTerms {
            rows_per_person: Some(2),
            ..terms
        },
    );
    let with = |change: &dyn Fn(&mut SiteUploadRequest)| {
        let mut request = request(1);
        change(&mut request);
        request
    };
    let (plain, four) = (request(1), lines(4, 0..4));
    let refuses = |study: &SiteStudy,
                   table: &dyn Fn(&RowLedger) -> Table,
                   request: &SiteUploadRequest,
                   why: &str| {
        let ledger = RowLedger::open_unchanged(&path).unwrap();
        let table = table(&ledger);
        let error = ledger.admit_site(study, &table, request).unwrap_err();
        let (name, words) = why.split_once(": ").unwrap();
        assert_eq!(error.name(), name, "{error}");
        assert_says(&error, &[words]);
        assert!(folder.contents().is_empty());
    };
    let of_rows = |_: &RowLedger| Table::of_rows(&four);
    let of_persons = |ledger: &RowLedger| Table::of_persons(ledger, &four);
    let two = |_: &RowLedger| Table::of_rows(&four[..2]);
    let seven = |_: &RowLedger| Table::of_rows(&lines(7, 0..7));
    let nine = |ledger: &RowLedger| Table::of_persons(ledger, &lines(9, 0..2));
    refuses(&rows, &two, &plain, "invalid-request: has 2 rows");
    refuses(&rows, &seven, &plain, "invalid-request: has 7 rows");
    refuses(&rows, &of_persons, &plain, "invalid-request: `person`");
    refuses(&persons, &of_rows, &plain, "invalid-request: `person`");
    refuses(&persons, &nine, &plain, "invalid-request: has 2 persons");
    let no_token = with(&|request| request.upload.tokens = None);
    let two_tokens = with(&|request| request.upload.tokens = Some(vec![token(1), token(2)]));
    let least = with(&|request| request.min_rows = Some(5));
    let nameless = with(&|request| request.site = " ".to_owned());
    let poor = with(&|request| request.upload.epsilon_per_study = Some(3.9));
    refuses(&rows, &of_rows, &no_token, "token-required: one-time token");
    refuses(&rows, &of_rows, &two_tokens, "usage: 2 tokens");
    refuses(&rows, &of_rows, &least, "usage: at least 5");
    refuses(&rows, &of_rows, &nameless, "usage: `site`");
    let limit = "budget-exceeded: 3.9 on one study";
    refuses(&rows, &of_rows, &poor, limit);
    refuses(&persons, &of_persons, &poor, limit);
}

/// The server says so before anything is charged.
#[test]
fn a_token_of_another_site_a_used_one_and_one_for_fewer_rows_are_refused() {
    let folder = Folder::new();
    let (rows, plain) = (study(STUDY, SiteTerms::new(6)), request(1));
    let ledger = RowLedger::open_unchanged(folder.at("none")).unwrap();
    let table = Table::of_rows(&lines(4, 0..4));
    let admitted = ledger.admit_site(&rows, &table, &plain).unwrap();
    assert_eq!(admitted.token(), Some(&token(1)));
    let check = |site: &str, max_rows, spent| {
        let site = site.to_owned();
        admitted.check_token(&SiteToken {
            site,
            max_rows,
            spent,
        })
    };
    check(SITE, 4, false).unwrap();
    assert_says(
        check("St. Luke", 4, false).unwrap_err(),
        &["St. Luke", SITE, "nothing was charged"],
    );
    assert_says(
        check(SITE, 3, false).unwrap_err(),
        &["has 4 rows", "at most 3"],
    );
    let spent = check(SITE, 4, true).unwrap_err();
    assert_eq!(spent.code(), Some(ErrorCode::TokenSpent));
}

/// One unit's study is not taken for the other's.
#[test]
fn a_ledger_knows_rows_or_persons_and_one_site() {
    let folder = Folder::new();
    let rows = study("rows", SiteTerms::new(1_000));
    let persons = study("persons", persons_of_at_most(3));
    let records = lines(5, 0..5);
    let mut by_row = RowLedger::open(folder.at("rows")).unwrap();
    take_part(&mut by_row, &rows, &Table::of_rows(&records), &request(1)).unwrap();
    let table = Table::of_persons(&by_row, &records);
    let error = take_part(&mut by_row, &persons, &table, &request(2)).unwrap_err();
    assert_says(error, &["place of their row", "another ledger"]);
    let mut by_person = RowLedger::open(folder.at("persons")).unwrap();
    let table = Table::of_persons(&by_person, &records);
    take_part(&mut by_person, &persons, &table, &request(1)).unwrap();
    let error = take_part(
        &mut by_person,
        &rows,
        &Table::of_rows(&records),
        &request(2),
    )
    .unwrap_err();
    assert_says(error, &["persons by their identifiers", "another ledger"]);
    let single = crate::common::study("single", 1.0);
    let file = by_person.row_file(5, b"rows", b"").unwrap();
    let asked = UploadRequest::default();
    let error = by_person.admit_upload(&single, &file, &asked).unwrap_err();
    assert_says(error, &["persons by their identifiers"]);
    let other = SiteUploadRequest {
        site: "St. Luke".to_owned(),
        ..request(2)
    };
    let error = take_part(&mut by_person, &persons, &table, &other).unwrap_err();
    assert_says(error, &["St. Luke", SITE]);

    let other_unit = |info: &StudyInfo| {
        let rows: Result<Study> = info.clone().try_into();
        let sites: Result<SiteStudy> = info.clone().try_into();
        (rows.err(), sites.err())
    };
    let code = |error: Option<Error>| error.and_then(|error| error.code());
    let wrong = Some(ErrorCode::InvalidRequest);
    let (as_row, as_site) = other_unit(&rows);
    assert_eq!((code(as_row), code(as_site)), (wrong, None));
    let (as_row, as_site) = other_unit(&single);
    assert_eq!((code(as_row), code(as_site)), (None, wrong));
}

#[test]
fn a_report_that_nobody_summed_or_that_comes_too_late_is_not_made() {
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("persons")).unwrap();
    let study = study(STUDY, persons_of_at_most(3));
    let table = Table::of_persons(&ledger, &lines(4, 0..4));
    let asked = request(1);
    let admitted = ledger.admit_site(&study, &table, &asked).unwrap();
    let error = ledger.take_part_as_site(admitted).unwrap_err();
    assert_says(error, &["summed up"]);
    let mut admitted = ledger.admit_site(&study, &table, &asked).unwrap();
    assert!(admitted.sum(|_| ControlFlow::Continue(())).unwrap());
    // Somebody else's table has some of the persons, and arrives in between.
    let others = Table::of_persons(&ledger, &lines(2, 3..5));
    take_part(&mut ledger, &study, &others, &request(2)).unwrap();
    settle(&mut ledger, &study, &ReportResult::Accepted);
    let error = ledger.take_part_as_site(admitted).unwrap_err();
    assert!(error.is_changed(), "{error}");
    assert_eq!(ledger.receipt().unwrap().studies[0].rows, 2);
    assert_eq!(ledger.counts(&study).unwrap().total(), 1);
}

#[test]
fn the_file_refuses_to_forget_a_person_or_a_sites_report() {
    let folder = Folder::new();
    let study = study(STUDY, persons_of_at_most(3));
    let hashes = ["a", "b"].map(|name| {
        let mut ledger = RowLedger::open(folder.at(name)).unwrap();
        let mut persons = lines(4, 0..4);
        persons[3].0 = "7.0".to_owned();
        let table = Table::of_persons(&ledger, &persons);
        take_part(&mut ledger, &study, &table, &request(1)).unwrap();
        drop(ledger);
        let connection = Connection::open(folder.at(name)).unwrap();
        for statement in [
            "DELETE FROM person",
            "UPDATE person SET number = 9",
            "DELETE FROM spelling",
            "UPDATE spelling SET number = person",
            "DELETE FROM site",
            "UPDATE site SET name = 'St. Luke'",
            "DELETE FROM site_report",
            "UPDATE site_report SET units = 1",
            "DELETE FROM payload",
        ] {
            let done = connection.execute(statement, []);
            assert!(done.is_err(), "{statement}: {done:?}");
        }
        let query = "SELECT hash FROM person ORDER BY hash";
        let mut hashes = connection.prepare(query).unwrap();
        let hashes = hashes
            .query_map([], |row| row.get::<_, Vec<u8>>(0))
            .unwrap();
        hashes.map(|hash| hash.unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(hashes[0].len(), 4);
    assert!(hashes[0].iter().all(|hash| !hashes[1].contains(hash)));
    // Lost persons, or a lost report, are noticed.
    let whole = fs::read(folder.at("a")).unwrap();
    for statement in [
        "PRAGMA foreign_keys = 0; DROP TRIGGER persons_stay; DELETE FROM person WHERE number = 2",
        "DROP TRIGGER spellings_stay; DELETE FROM spelling",
        "DROP TRIGGER site_reports_stay; DELETE FROM site_report",
        "DROP TRIGGER sites_stay; DELETE FROM site",
    ] {
        let connection = Connection::open(folder.at("a")).unwrap();
        connection.execute_batch(statement).unwrap();
        drop(connection);
        let error = RowLedger::open(folder.at("a")).unwrap_err();
        assert_says(error, &["damaged"]);
        fs::write(folder.at("a"), &whole).unwrap();
    }
}

/// Checkpoints write pages in ascending order: without its log a file is as before a change, as after it, or refused.
#[test]
fn a_change_that_was_cut_off_is_noticed_without_its_log() {
    let folder = Folder::new();
    let path = folder.at("persons");
    let study = study(STUDY, persons_of_at_most(3));
    let seen = || {
        let ledger = RowLedger::open(&path)?;
        let table = Table::of_persons(&ledger, &lines(600, 0..600));
        let later = request(9);
        let admitted = ledger.admit_site(&study, &table, &later)?;
        let seen = format!("{:?} {:?}", ledger.receipt()?, pending(&ledger, &study));
        Ok::<_, Error>((seen, admitted.counts()))
    };
    drop(RowLedger::open(&path).unwrap());
    let changes: [&dyn Fn(&mut RowLedger); 4] = [
        &|ledger| {
            let table = Table::of_persons(ledger, &lines(400, 0..400));
            take_part(ledger, &study, &table, &request(1)).unwrap();
        },
        &|ledger| settle(ledger, &study, &ReportResult::Accepted),
        &|ledger| {
            let table = Table::of_persons(ledger, &lines(300, 300..600));
            take_part(ledger, &study, &table, &request(2)).unwrap();
        },
        &|ledger| assert_eq!(ledger.give_up(STUDY).unwrap().given_up, 1),
    ];
    let (mut refused, page) = (0, 4_096);
    for change in changes {
        let (before, was) = (fs::read(&path).unwrap(), seen().unwrap());
        change(&mut RowLedger::open(&path).unwrap());
        let (after, is) = (fs::read(&path).unwrap(), seen().unwrap());
        for cut in (page..after.len()).step_by(page) {
            let torn = [&after[..cut], before.get(cut..).unwrap_or_default()].concat();
            fs::write(&path, torn).unwrap();
            match seen() {
                Ok(found) => assert!(found == was || found == is, "{cut}: {found:?}"),
                Err(error) => {
                    assert_says(error, &["damaged"]);
                    refused += 1;
                }
            }
        }
        fs::write(&path, &after).unwrap();
    }
    assert!(refused > 10, "{refused}");
}
