//! A site's table on its way to a server: the token is looked up first, what was charged is sent until it has arrived,
//! with the same bytes, and whatever is killed nobody is charged twice. The test program runs itself as the child.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use eigenveil_client::{
    ReportResult, Result, RowLedger, SiteStudy, SiteUploadAnswer, SiteUploadRequest,
    http::StudyClient, upload_site_table,
};
use eigenveil_shared::{
    ErrorCode,
    api::{
        LookUpTokenRequest, ReportOutcome, ReportResponse, SiteToken, StudyDocument, StudyState,
    },
    codec::{self, SiteReportFormat},
    enrolment::{ENROLLED_REPORT_MEDIA_TYPE, Enrolment, ParticipantToken},
    estimate::ComponentCount,
    parameters::Parameters,
    privacy::PrivacyStatement,
    site_study::{SiteStudyParams, SiteTerms},
    study::to_hex,
};

use crate::{
    common::{STUDY, assert_says},
    files::{self, Folder},
    ledger_crash::{KillTimes, killed, spin},
    row_ledger::token,
    server::{Reply, Request, Server, http, lock},
    site::{SITE, Table, lines, params, pending, persons_of_at_most, request, settle, take_part},
};

fn document(params: &SiteStudyParams) -> StudyDocument {
    StudyDocument {
        id: STUDY.to_owned(),
        name: "A study of sites".to_owned(),
        state: StudyState::Open,
        fingerprint: params.fingerprint().to_string(),
        canonical_params: to_hex(&params.canonical_bytes()),
        params: Parameters::from(params.clone()),
        reports_accepted: 0,
        default_k: ComponentCount::Auto,
        report_bytes: codec::report_len(params.mechanism().payload_len()),
        max_batch_reports: 1,
        created_at_ms: 0,
        privacy: PrivacyStatement::of_site(params),
        enrolment: Enrolment::Token,
        about: Default::default(),
    }
}

/// The memory of a server.
#[derive(Default)]
struct Known {
    /// Tokens with their site, whether they were used, and for how many rows they are.
    tokens: BTreeMap<[u8; 32], (String, bool, u64)>,
    /// Identifier → payload of what is stored.
    stored: BTreeMap<[u8; 16], Vec<u8>>,
    lookups: usize,
}

impl Known {
    fn look_up(&mut self, request: &Request) -> Reply {
        self.lookups += 1;
        let asked: LookUpTokenRequest = serde_json::from_slice(&request.body).unwrap();
        let token = ParticipantToken::parse(&asked.token).unwrap();
        match self.tokens.get(token.as_bytes()) {
            None => Reply::problem(403, ErrorCode::ParticipantTokenUnknown, "there is none"),
            Some((site, spent, max_rows)) => {
                let answer = SiteToken {
                    site: site.clone(),
                    max_rows: *max_rows,
                    spent: *spent,
                };
                Reply::json(200, &answer)
            }
        }
    }

    fn take(&mut self, format: &SiteReportFormat, request: &Request) -> Reply {
        assert_eq!(request.headers["content-type"], ENROLLED_REPORT_MEDIA_TYPE);
        let (token, report) = request.body.split_at(32);
        let report = codec::decode_site_report(report, format).unwrap();
        let (id, payload) = (report.id().0, report.payload().as_bytes().to_vec());
        let outcome = match self.stored.get(&id) {
            Some(before) => {
                assert_eq!(*before, payload, "the report changed");
                ReportOutcome::Duplicate
            }
            None => {
                let (_, spent, _) = self.tokens.get_mut(token).unwrap();
                if *spent {
                    return Reply::problem(409, ErrorCode::TokenSpent, "it was used");
                }
                *spent = true;
                self.stored.insert(id, payload);
                ReportOutcome::Accepted
            }
        };
        Reply::json(200, &ReportResponse { outcome })
    }
}

/// A server of one study of sites; `fault` answers for the upload of this number, from 0, after it was stored if it
/// says so.
async fn site_server(
    params: &SiteStudyParams,
    mut fault: impl FnMut(usize) -> Option<(bool, Reply)> + Send + 'static,
) -> (Server, Arc<Mutex<Known>>) {
    let (document, format) = (document(params), SiteReportFormat::new(params));
    let known = Arc::new(Mutex::new(Known::default()));
    let inside = Arc::clone(&known);
    let mut uploads = 0;
    let server = Server::start(move |request| {
        let mut known = lock(&inside);
        let path = request.line.split(' ').nth(1).unwrap().to_owned();
        let path = path.strip_prefix(&format!("/v1/studies/{STUDY}")).unwrap();
        match path {
            "" => Reply::json(200, &document),
            "/tokens/lookup" => known.look_up(request),
            "/reports" => {
                uploads += 1;
                match fault(uploads - 1) {
                    None => known.take(&format, request),
                    Some((false, reply)) => reply,
                    Some((true, reply)) => {
                        known.take(&format, request);
                        reply
                    }
                }
            }
            _ => Reply::problem(404, ErrorCode::NotFound, "no such route"),
        }
    })
    .await;
    (server, known)
}

async fn fetched(server: &Server) -> SiteStudy {
    let client = StudyClient::with_settings(&server.address, &http()).unwrap();
    let study = client.find(STUDY, None).await.unwrap();
    study.try_into().unwrap()
}

async fn upload(
    ledger: &mut RowLedger,
    study: &SiteStudy,
    table: &Table,
    request: &SiteUploadRequest,
) -> Result<SiteUploadAnswer> {
    let http = http();
    let mut admitted = ledger
        .admit_site_table(study, table, request, &http)
        .await?;
    admitted.sum(|_| ControlFlow::Continue(()))?;
    upload_site_table(ledger, admitted, &http, |_| ControlFlow::Continue(())).await
}

#[tokio::test]
async fn a_report_is_sent_with_its_token_until_it_has_arrived() {
    let params = params(persons_of_at_most(3));
    // Stored, and the response lost; then the server is full, and has room again.
    let (server, known) = site_server(&params, |upload| match upload {
        0 => Some((true, Reply::Drop)),
        2 => Some((false, Reply::problem(507, ErrorCode::StoreFull, "no room"))),
        _ => None,
    })
    .await;
    let study = fetched(&server).await;
    for (number, max_rows) in [(1, 100), (2, 100)] {
        let token = *token(number).as_bytes();
        let unused = (SITE.to_owned(), false, max_rows);
        lock(&known).tokens.insert(token, unused);
    }
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("site")).unwrap();
    let table = Table::of_persons(&ledger, &lines(20, 0..10));
    let answer = upload(&mut ledger, &study, &table, &request(1))
        .await
        .unwrap();
    assert_eq!((answer.sent.accepted, answer.sent.duplicates), (0, 1));
    assert_eq!((answer.acknowledged, answer.charged.rows), (1, 10));
    assert_eq!((answer.site.as_str(), answer.counts.charged), (SITE, 10));
    assert!(answer.sent.failures.is_empty() && answer.sent.pending == 0);
    // Nothing is asked, charged or sent again, whatever token is given.
    for number in [1, 2, 9] {
        let again = upload(&mut ledger, &study, &table, &request(number)).await;
        let again = again.unwrap();
        assert_eq!((again.acknowledged, again.charged.rows), (1, 0));
    }
    assert_eq!(lock(&known).lookups, 1);
    assert_eq!(server.uploads().len(), 2);
    // Others come with a token of their own.
    let table = Table::of_persons(&ledger, &lines(24, 6..14));
    let answer = upload(&mut ledger, &study, &table, &request(2))
        .await
        .unwrap();
    assert_eq!((answer.sent.accepted, answer.charged.rows), (1, 4));
    assert_eq!((answer.acknowledged, answer.counts.charged_before), (2, 12));
    assert_eq!(lock(&known).stored.len(), 2);
    let json = serde_json::to_value(&answer).unwrap();
    assert!(json.get("counts").is_none(), "{json}");
}

/// The server's answer refuses a token before anything is charged, or written.
#[tokio::test]
async fn a_token_is_looked_up_before_anything_is_charged() {
    let params = params(SiteTerms::new(1_000));
    let (server, known) = site_server(&params, |_| None).await;
    let study = fetched(&server).await;
    let bytes = |number| *token(number).as_bytes();
    lock(&known).tokens = BTreeMap::from([
        (bytes(1), (SITE.to_owned(), true, 100)),
        (bytes(2), (SITE.to_owned(), false, 4)),
        (bytes(3), (SITE.to_owned(), false, 5)),
    ]);
    let folder = Folder::new();
    let path = folder.at("site");
    let table = Table::of_rows(&lines(5, 0..5));
    let other = SiteUploadRequest {
        site: "St. Luke".to_owned(),
        ..request(3)
    };
    for (request, name, words) in [
        (request(1), "token-spent", "used for another report"),
        (request(2), "usage", "at most 4"),
        (request(9), "participant-token-unknown", "there is none"),
        (other, "usage", "St. Luke"),
    ] {
        let mut ledger = RowLedger::open_unchanged(&path).unwrap();
        let refused = upload(&mut ledger, &study, &table, &request).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.name(), name, "{refused}");
        assert_says(&refused, &[words]);
        assert!(folder.contents().is_empty());
    }
    assert!(server.uploads().is_empty());
    let mut ledger = RowLedger::open_unchanged(&path).unwrap();
    let answer = upload(&mut ledger, &study, &table, &request(3))
        .await
        .unwrap();
    assert_eq!((answer.sent.accepted, answer.charged.rows), (1, 5));
    // Two runs at once: the second waits for nobody, and charges nobody.
    let error = RowLedger::open_unchanged(&path).unwrap_err();
    assert!(error.is_locked(), "{error}");
}

/// A token for a report that was refused is looked up as that for a new one is: neither another site's nor one for
/// fewer rows is stored, and the right one is sent, whatever the report was refused for.
#[tokio::test]
async fn a_token_for_a_refused_report_is_looked_up() {
    let params = params(SiteTerms::new(1_000));
    let (server, known) = site_server(&params, |upload| match upload {
        0 => Some((
            false,
            Reply::problem(409, ErrorCode::TokenSpent, "it was used"),
        )),
        1 => Some((
            false,
            Reply::problem(422, ErrorCode::ImplausibleReport, "too many rows"),
        )),
        _ => None,
    })
    .await;
    let study = fetched(&server).await;
    let bytes = |number| *token(number).as_bytes();
    let entry = |site: &str, spent, max_rows| (site.to_owned(), spent, max_rows);
    lock(&known).tokens = BTreeMap::from([
        (bytes(1), entry(SITE, false, 5)),
        (bytes(2), entry("St. Luke", false, 5)),
        (bytes(3), entry(SITE, false, 4)),
        (bytes(4), entry(SITE, true, 5)),
        (bytes(5), entry(SITE, false, 5)),
        (bytes(6), entry(SITE, false, 5)),
    ]);
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("site")).unwrap();
    let table = Table::of_rows(&lines(5, 0..5));
    let answer = upload(&mut ledger, &study, &table, &request(1)).await;
    assert_eq!(answer.unwrap().refusals[0].code, "token-spent");
    let before = ledger.receipt().unwrap();
    for resend in [false, true] {
        for (number, words) in [
            (2, "St. Luke"),
            (3, "still to be sent has 5 rows"),
            (4, "used for another report"),
            (9, "there is none"),
        ] {
            let mut other = request(number);
            other.upload.resend_refused = resend;
            let refused = upload(&mut ledger, &study, &table, &other).await;
            assert_says(refused.unwrap_err(), &[words]);
            assert_eq!(ledger.receipt().unwrap(), before);
        }
    }
    assert_eq!(server.uploads().len(), 1);
    // Refused for another reason than its token, it takes another one, too.
    let answer = upload(&mut ledger, &study, &table, &request(5)).await;
    assert_eq!(answer.unwrap().refusals[0].code, "implausible-report");
    let mut again = request(6);
    again.upload.resend_refused = true;
    let answer = upload(&mut ledger, &study, &table, &again).await.unwrap();
    assert_eq!((answer.acknowledged, answer.charged.rows), (1, 0));
    let uploads = server.uploads();
    assert!(uploads[2].body.starts_with(&bytes(6)));
    assert!(
        uploads
            .iter()
            .all(|sent| sent.body[32..] == uploads[0].body[32..])
    );
}

/// Refused for good, and refused for its token while it was under way.
#[tokio::test]
async fn a_refused_report_is_kept_and_said() {
    let params = params(SiteTerms::new(1_000));
    let implausible = "the smallest eigenvalue is -3, and it must be at least -2";
    let (server, known) = site_server(&params, move |upload| match upload {
        0 => Some((
            false,
            Reply::problem(422, ErrorCode::ImplausibleReport, implausible),
        )),
        _ => None,
    })
    .await;
    let study = fetched(&server).await;
    let unused = (SITE.to_owned(), false, 9);
    lock(&known).tokens.insert(*token(1).as_bytes(), unused);
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("site")).unwrap();
    let table = Table::of_rows(&lines(5, 0..5));
    let answer = upload(&mut ledger, &study, &table, &request(1))
        .await
        .unwrap();
    assert_eq!((answer.sent.refused, answer.charged.rows), (1, 5));
    assert_says(&answer.refusals[0].detail, &[implausible]);
    assert_says(
        ledger.receipt().unwrap(),
        &["implausible-report", "charged all the same"],
    );
    let mut again = request(1);
    again.upload.resend_refused = true;
    let answer = upload(&mut ledger, &study, &table, &again).await.unwrap();
    assert_eq!((answer.acknowledged, answer.charged.rows), (1, 0));
    let [first, second] = [0, 1].map(|upload| server.uploads()[upload].body.clone());
    assert_eq!(first, second);
}

const PATH: &str = "EIGENVEIL_TEST_SITE_LEDGER";
/// Instalments, each of half new persons.
const INSTALMENTS: usize = 4;

fn table_of(ledger: &RowLedger, instalment: usize) -> Table {
    let persons = 20 * instalment..20 * instalment + 40;
    Table::of_persons(ledger, &lines(80, persons))
}

/// Persons who are charged first by this instalment.
fn new_persons(instalment: usize) -> u64 {
    if instalment == 0 { 40 } else { 20 }
}

/// Works as the child until it is killed: sends what is pending, then charges the next instalment. It says what is kept
/// before it is acknowledged.
#[test]
fn child() {
    let Some(path) = env::var_os(PATH) else {
        return;
    };
    let mut out = std::io::stdout();
    out.write_all(b"\nbegins\n").unwrap();
    let mut ledger = RowLedger::open(path).unwrap();
    let study = crate::site::study(STUDY, persons_of_at_most(3));
    let mut send = |ledger: &mut RowLedger| {
        for kept in pending(ledger, &study) {
            let bytes = format!("{}{}", kept.report.id, to_hex(&kept.report.payload));
            out.write_all(format!("kept {bytes}\n").as_bytes()).unwrap();
            settle(ledger, &study, &ReportResult::Accepted);
        }
    };
    send(&mut ledger);
    for instalment in 0..INSTALMENTS {
        let table = table_of(&ledger, instalment);
        let number = instalment as u8 + 1;
        take_part(&mut ledger, &study, &table, &request(number)).unwrap();
        send(&mut ledger);
    }
    out.write_all(b"finished\n").unwrap();
}

/// Runs the child, and kills it after this time: the reports that it said it kept, and whether it had finished.
fn run(path: &Path, kill_after: Option<Duration>) -> (Vec<String>, bool) {
    let mut child = files::child("site_upload::child")
        .env(PATH, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(std::result::Result::ok);
    assert!(lines.any(|line| line.ends_with("begins")));
    let reader = thread::spawn(move || lines.collect::<Vec<_>>());
    if let Some(time) = kill_after {
        spin(time);
        child.kill().unwrap();
    }
    let printed = reader.join().unwrap();
    let status = child.wait().unwrap();
    let finished = printed.iter().any(|line| line == "finished");
    assert!(finished || killed(status), "it failed itself: {status}");
    // The kill may have cut the last one.
    let payload_len = params(persons_of_at_most(3)).mechanism().payload_len();
    let reports = printed.iter().filter_map(|line| line.strip_prefix("kept "));
    let reports = reports.filter(|bytes| bytes.len() == 2 * (16 + payload_len));
    (reports.map(str::to_owned).collect(), finished)
}

/// Charges, persons and report are there or none of them, and a report that was kept stays the same.
fn check(path: &Path, kept: &mut Vec<String>) {
    let ledger = RowLedger::open(path).unwrap();
    let study = crate::site::study(STUDY, persons_of_at_most(3));
    let receipt = ledger.receipt().unwrap();
    let counts = ledger.counts(&study).unwrap();
    let Some(own) = receipt.studies.first() else {
        assert_eq!(counts.total(), 0);
        return;
    };
    let reports = &own.site.as_ref().unwrap().reports;
    assert_eq!(reports.len() as u64, counts.total());
    assert!(counts.pending <= 1);
    let charged: u64 = (0..reports.len()).map(new_persons).sum();
    assert_eq!(own.rows, charged);
    for (instalment, report) in reports.iter().enumerate() {
        assert_eq!(report.units, new_persons(instalment));
    }
    // What was said is in the ledger, and its bytes do not change.
    let ids: Vec<&str> = reports
        .iter()
        .map(|report| report.report.as_str())
        .collect();
    for bytes in kept.iter() {
        assert!(ids.contains(&&bytes[..32]), "{bytes} is lost");
    }
    for left in pending(&ledger, &study) {
        let id = left.report.id.to_string();
        let bytes = format!("{id}{}", to_hex(&left.report.payload));
        match kept.iter().find(|kept| kept.starts_with(&id)) {
            Some(before) => assert_eq!(*before, bytes, "its noise was drawn again"),
            None => kept.push(bytes),
        }
    }
}

#[test]
fn killed_anywhere_each_person_is_charged_once_and_each_report_stays_the_same() {
    kill_ledgers(16, 7);
}

#[test]
#[ignore = "minutes"]
fn killed_hundreds_of_times() {
    kill_ledgers(500, 8);
}

fn kill_ledgers(wanted: usize, seed: u64) {
    let folder = Folder::new();
    let begun = Instant::now();
    assert!(run(&folder.at("whole"), None).1);
    let whole = begun.elapsed().as_micros() as u64;
    let mut moments = KillTimes(seed);
    let mut kills = 0;
    while kills < wanted {
        let folder = Folder::new();
        let path = folder.at("site");
        let mut seen: Vec<String> = Vec::new();
        loop {
            let limit = whole / (1 + moments.next_below(3));
            let after = Duration::from_micros(moments.next_below(limit.max(1)));
            let (said, finished) = run(&path, Some(after));
            for bytes in said {
                match seen.iter().find(|seen| seen[..32] == bytes[..32]) {
                    Some(before) => assert_eq!(*before, bytes, "its noise was drawn again"),
                    None => seen.push(bytes),
                }
            }
            if finished {
                break;
            }
            kills += 1;
            if path.exists() {
                check(&path, &mut seen);
            }
            if kills >= wanted {
                break;
            }
        }
        let (_, finished) = run(&path, None);
        assert!(finished);
        check(&path, &mut seen);
        let ledger = RowLedger::open(&path).unwrap();
        let study = &ledger.receipt().unwrap().studies[0];
        assert_eq!(study.rows, 40 + 20 * (INSTALMENTS as u64 - 1));
        assert_eq!(ledger.receipt().unwrap().spent.epsilon, 4.0);
    }
}
