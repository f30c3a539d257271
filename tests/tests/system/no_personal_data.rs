//! After a full run values of rows, addresses and programs of clients, and tokens must be nowhere.
//!
//! They are searched for as text and as bytes in the log at its most verbose level, the responses, the output of
//! commands, `Debug` output, and every file that servers and commands leave. A match by chance: among fewer than 10⁵
//! random bytes one of 48 patterns of 48 bits, or both of two clients' addresses, with three patterns of 32 bits each:
//! less than one run in 10⁷.

use std::{
    collections::HashSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use eigenveil_client::http::{BearerToken, HttpSettings, OperatorClient, StudyClient};
use eigenveil_shared::{
    api::{CreateAnalystTokenRequest, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE},
    codec,
    enrolment::{
        Admission, ENROLLED_BATCH_MEDIA_TYPE, ENROLLED_REPORT_MEDIA_TYPE, Enrolment, Frame,
        ParticipantToken,
    },
    preprocess::Row,
    study::{from_hex, to_hex},
};
use reqwest::{Client, RequestBuilder};

use crate::{
    certificates::Authority,
    harness::{Folder, ServerProcess, stderr, succeeded},
};

/// Values that nothing else looks like.
const ROWS: &str = "271828.18284,-314159.26535,141421.35623,57721.56649\n\
    -161803.39887,69314.71805,230258.50929,-173205.08075\n\
    223606.79774,91596.55941,-120205.69031,258498.17579\n";
/// Addresses of clients, and the address that a proxy forwards, whose first half is searched for.
const PEERS: [[u8; 4]; 2] = [[127, 83, 97, 113], [127, 89, 101, 107]];
const FORWARDED: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x5361, 0x7177, 0, 0, 0, 0x6b);
const FORWARDED_BEGINS: &str = "2001:db8:5361:7177:";
const AGENT: &str = "marker-agent-zebra/7.7";
/// Input files, and the file that stores the token.
const OWN_FILES: [&str; 3] = ["rows.csv", "broken.csv", "operator.token"];

struct Needle(String, Vec<u8>);

/// An address in other forms than as text.
fn forms(name: &str, bytes: &[u8]) -> [Needle; 3] {
    let backwards = bytes.iter().rev().copied().collect();
    let forms = [to_hex(bytes).into_bytes(), bytes.to_vec(), backwards];
    forms.map(|form| Needle(name.to_owned(), form))
}

/// The forms of the clients are so short that one may be found by chance. Both are not.
fn short_needles() -> Vec<Needle> {
    let forms = PEERS.map(|bytes| forms(&Ipv4Addr::from(bytes).to_string(), &bytes));
    forms.into_iter().flatten().collect()
}

fn needles() -> Vec<Needle> {
    let mut needles: Vec<Needle> = PEERS
        .map(|bytes| Ipv4Addr::from(bytes).to_string())
        .into_iter()
        .chain(["marker-agent-zebra".to_owned(), FORWARDED_BEGINS.to_owned()])
        .map(|text| Needle(text.clone(), text.into_bytes()))
        .collect();
    needles.extend(forms(FORWARDED_BEGINS, &FORWARDED.octets()[..8]));
    for row in rows() {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        for &value in &row {
            let text = value.abs().to_string();
            // With a dot, which times and identifiers do not have there.
            needles.push(Needle(text.clone(), text.as_bytes()[..8].to_vec()));
            for number in [value, value / length] {
                let name = format!("{number} as f64");
                needles.push(Needle(name.clone(), number.to_be_bytes()[..6].to_vec()));
                needles.push(Needle(name, number.to_le_bytes()[2..].to_vec()));
            }
            let unit = format!("{:.7}", (value / length).abs());
            needles.push(Needle(unit.clone(), unit.into_bytes()));
        }
        for pair in row.windows(2) {
            for scale in [1.0, length] {
                let numbers = [pair[0] / scale, pair[1] / scale].map(|x| x as f32);
                let name = format!("{numbers:?} as f32");
                needles.push(Needle(name.clone(), numbers.map(f32::to_be_bytes).concat()));
                needles.push(Needle(name, numbers.map(f32::to_le_bytes).concat()));
            }
        }
    }
    needles
}

/// Half a token is enough, as text or as bytes.
fn secret(whose: &str, token: &str) -> [Needle; 3] {
    let half = &token[..token.len() / 2];
    let forms = [
        half.to_lowercase().into_bytes(),
        half.to_uppercase().into_bytes(),
        from_hex(half).unwrap(),
    ];
    forms.map(|form| Needle(format!("the token that is {whose}"), form))
}

fn holds(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}

fn found<'a>(hay: &[u8], needles: &'a [Needle]) -> Vec<&'a str> {
    // Their common beginnings must not occur either.
    let beginnings: HashSet<&[u8]> = hay.windows(4).collect();
    let there = |needle: &&Needle| beginnings.contains(&needle.1[..4]) && holds(hay, &needle.1);
    needles
        .iter()
        .filter(there)
        .map(|needle| needle.0.as_str())
        .collect()
}

#[test]
fn the_search_finds_planted_needles() {
    let mut needles = needles();
    needles.extend(short_needles());
    needles.extend(secret("somebody's", &"5a".repeat(32)));
    for Needle(name, bytes) in &needles {
        let hay = [&[0; 99], bytes.as_slice(), &[1; 99]].concat();
        assert!(found(&hay, &needles).contains(&name.as_str()), "{name}");
    }
    assert!(found(&[0; 99], &needles).is_empty());
    assert_eq!(found(ROWS.as_bytes(), &needles).len(), 12);
    assert_eq!(found(&raw(), &needles).len(), 12);
    for line in [
        format!("peer {}:40000", Ipv4Addr::from(PEERS[0])),
        format!("client {FORWARDED}"),
    ] {
        assert_eq!(found(line.as_bytes(), &needles).len(), 1);
    }
}

fn rows() -> Vec<Vec<f64>> {
    let row = |line: &str| line.split(',').map(|x| x.parse().unwrap()).collect();
    ROWS.lines().map(row).collect()
}

/// The unperturbed rows, as a device might send them by mistake.
fn raw() -> Vec<u8> {
    let numbers = rows().concat().into_iter();
    numbers.flat_map(f64::to_le_bytes).collect()
}

/// Every file below this directory except the inputs.
fn files(folder: &Path, places: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, places);
        } else if !OWN_FILES.iter().any(|own| path.ends_with(own)) {
            let bytes = fs::read(&path).unwrap();
            // The server's ballast file is 40 MiB of zeros.
            if bytes.iter().any(|byte| *byte != 0) {
                places.push((path.display().to_string(), bytes));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rows_addresses_or_tokens_are_left_behind() {
    let folder = Folder::new();
    let authority = Authority::new("an organisation");
    authority.issue("127.0.0.1").write(folder.path());
    let ca = folder.write("ca.pem", &authority.root_pem);
    // Everything that handles addresses and tokens is enabled.
    let config = format!(
        "listen = \"127.0.0.1:0\"\ntls_cert = {:?}\ntls_key = {:?}\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
         address_requests_per_minute = 100000\ntoken_requests_per_minute = 100000\nfailed_auth_per_minute = 3\n",
        folder.at("cert.pem"),
        folder.at("key.pem")
    );
    let config = format!("--config {}", folder.write("eigenveil.toml", config));
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let mut server = ServerProcess::start_logged("trace", &data, &config, &log);

    let mut spoken = reported_rows(&folder, &server, &format!("--ca-cert {ca}"));
    // The log, and the database with its write-ahead log, after the requests of each client and after the server has
    // stopped.
    let mut places = Vec::new();
    let mut look = || files(folder.path(), &mut places);
    let (responses, secrets, hash) =
        used_tokens(&server, &ca, &authority.root_pem, &mut look).await;
    look();
    spoken.extend(responses);
    places.push(("output of the commands".to_owned(), spoken));
    assert!(server.stop());
    files(folder.path(), &mut places);
    assert!(places.len() >= 20, "{}", places.len());

    let mut needles = needles();
    needles.extend(secrets);
    for (place, hay) in &places {
        let finds = found(hay, &needles);
        assert!(finds.is_empty(), "{place} holds {finds:?}");
    }
    let short = short_needles();
    let finds: HashSet<&str> = places
        .iter()
        .flat_map(|(_, hay)| found(hay, &short))
        .collect();
    assert!(finds.len() < PEERS.len(), "there are {finds:?}");
    // The search itself works: the log has request paths, and the database has hashes.
    let logged = fs::read(&log).unwrap();
    for word in [
        "DEBUG",
        "request",
        "/v1/studies/{id}/reports",
        "status=403",
        "status=429",
        "operator token rotated",
    ] {
        assert!(holds(&logged, word.as_bytes()), "the log has no {word}");
    }
    assert!(places.iter().any(|(_, hay)| holds(hay, &hash)));
}

/// Studies of three mechanisms with reports and an estimate each. Returns all output.
fn reported_rows(folder: &Folder, server: &ServerProcess, ca: &str) -> Vec<u8> {
    let rows = folder.write("rows.csv", ROWS);
    // An unusable row is sent as the zero row, and not shown.
    let broken = folder.write("broken.csv", format!("{ROWS}223606.79774,inf,1,2\n"));
    let mut collected = String::new();
    for mechanism in ["double-cap", "isotropic-gaussian", "discrete-gaussian"] {
        let study = server.create_study(&format!("--p 4 --epsilon 4 --mechanism {mechanism} {ca}"));
        let state = folder.at(mechanism);
        let report = format!("report --header no --study {study}");
        for line in [
            &format!("{report} --rows {rows}"),
            &format!("estimate --study {study} --k 1 --wait --out {state}"),
            &format!("study show {study}"),
            &format!("{report} --rows {broken}"),
        ] {
            let output = server.cli(&format!("{line} {ca}"));
            collected += &succeeded(&output);
            collected += &stderr(&output);
        }
    }
    collected.into_bytes()
}

/// A client with a recognisable address and user agent.
fn client(peer: usize, root: &str) -> Client {
    Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(root.as_bytes()).unwrap()])
        .local_address(IpAddr::from(PEERS[peer]))
        .user_agent(AGENT)
        .build()
        .unwrap()
}

/// Sends requests that must get these statuses, 0 for anything but a server error. Returns the responses.
async fn responses(requests: impl IntoIterator<Item = (RequestBuilder, u16)>) -> Vec<u8> {
    let mut responses = Vec::new();
    for (request, wanted) in requests {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let url = answer.url().clone();
        assert!(
            status == wanted || (wanted == 0 && status < 500),
            "{url}: {status}, not {wanted}"
        );
        responses.extend(format!("{:?}", answer.headers()).into_bytes());
        responses.extend(answer.bytes().await.unwrap());
    }
    responses
}

/// All kinds of refused requests, with rows where none belong.
async fn wrong_requests(url: &str, root: &str, study: &str) -> Vec<u8> {
    let client = client(0, root);
    let studies = format!("{url}/v1/studies");
    let reports = format!("{studies}/{study}/reports");
    let post = |to: &String, media_type: &str, body: &[u8]| {
        let request = client.post(to).header("content-type", media_type);
        request.body(body.to_vec())
    };
    let get = |to: &str| client.get(format!("{url}{to}"));
    let guess = || client.post(&studies).bearer_auth("wrong");
    let json = format!("[{}]", ROWS.replace('\n', ","));
    let requests = [
        (get("/v1/studies"), 200),
        // A device that sends unperturbed rows.
        (post(&reports, REPORT_MEDIA_TYPE, &raw()), 0),
        (post(&reports, REPORT_BATCH_MEDIA_TYPE, &raw()), 0),
        (post(&reports, "text/csv", ROWS.as_bytes()), 415),
        (get(&format!("/rows/{}", ROWS.lines().next().unwrap())), 404),
        (get("/v1/studies/271828.18284"), 404),
        (post(&studies, "application/json", json.as_bytes()), 401),
        (guess(), 0),
        (guess(), 0),
        (guess(), 0),
        (guess(), 429),
        (client.put(&reports).body(ROWS), 405),
        (get("/metrics"), 0),
    ];
    let address = FORWARDED.to_string();
    let forwarded = |request: RequestBuilder| request.header("x-forwarded-for", &address);
    responses(requests.map(|(request, status)| (forwarded(request), status))).await
}

/// Tokens of every kind, used rightly and wrongly, and other refused requests, by one client after the other; `look` is
/// called in between. Returns the responses, the secrets, and the hash of a token, which the database has.
async fn used_tokens(
    server: &ServerProcess,
    ca: &str,
    root: &str,
    look: &mut impl FnMut(),
) -> (Vec<u8>, Vec<Needle>, Vec<u8>) {
    let url = &server.url;
    let settings = HttpSettings::default().add_root_certificate_pem(root.as_bytes());
    let settings = settings.unwrap();
    let flags = format!("--p 4 --epsilon 4 --enrolment token --ca-cert {ca}");
    let id = server.create_study(&flags);
    let first = BearerToken::from_file(server.token_file()).unwrap();
    let operator = OperatorClient::with_settings(url, &first, &settings).unwrap();
    let tokens = operator.issue_tokens(&id, 7).await.unwrap();
    let alice = CreateAnalystTokenRequest {
        name: "alice".into(),
        study: None,
    };
    let analyst = operator.create_token(&alice).await.unwrap();
    let devices = StudyClient::with_settings(url, &settings).unwrap();
    let study = devices.fetch_study(&id).await.unwrap();
    let stranger = ParticipantToken::from_bytes([0x5a; 32]);
    let report = || {
        let report = study
            .report(&Row::new(vec![1.0; 4]), 1_800_000_000_000)
            .unwrap();
        report.into_report()
    };
    let wire = || codec::encode_report(&report());
    let batch = {
        let [one, two] = [report(), report()];
        let pairs = [&one, &two].map(|report| (report.id, report.payload.as_slice()));
        let format = codec::ReportFormat::new(study.params().rows().unwrap());
        codec::encode_batch(&format, pairs).unwrap()
    };
    let http = client(1, root);
    let post_from = |http: &Client, media_type: &str, body: Vec<u8>| {
        http.post(format!("{url}/v1/studies/{id}/reports"))
            .header("content-type", media_type)
            .body(body)
    };
    let post = |media_type: &str, body: Vec<u8>| post_from(&http, media_type, body);
    let one_from = |http: &Client, token: &ParticipantToken, report: &[u8]| {
        let frame = Frame::new(Enrolment::Token, false);
        let token = Admission::Token(token.clone());
        let body = frame.write(&[&token], report.to_vec()).unwrap();
        post_from(http, ENROLLED_REPORT_MEDIA_TYPE, body)
    };
    let one = |token: &ParticipantToken, report: &[u8]| one_from(&http, token, report);
    let many = |tokens: &[&ParticipantToken]| {
        let tokens = tokens
            .iter()
            .map(|token| Admission::Token((*token).clone()));
        let tokens: Vec<_> = tokens.collect();
        let frame = Frame::new(Enrolment::Token, true);
        let body = frame
            .write(&tokens.iter().collect::<Vec<_>>(), batch.clone())
            .unwrap();
        post(ENROLLED_BATCH_MEDIA_TYPE, body)
    };
    let a_token = tokens[4].as_bytes().to_vec();
    let get = |path: &str, bearer: &str| http.get(format!("{url}{path}")).bearer_auth(bearer);
    let open = |path: &str| http.get(format!("{url}{path}"));
    let (results, alices) = (format!("/v1/studies/{id}/estimates"), &analyst.token);
    let participant = tokens[0].reveal();
    let delete = http.delete(format!("{url}/v1/tokens/{}", analyst.token));
    let mut collected = responses([
        (one(&tokens[0], &wire()), 201),
        (one(&tokens[0], &wire()), 409),
        (one(&stranger, &wire()), 403),
        (one(&tokens[1], &[1, 2, 3]), 400),
        (many(&[&tokens[2], &stranger]), 200),
        (many(&[&tokens[3]]), 400),
        // A token where a report should be.
        (post(REPORT_MEDIA_TYPE, a_token), 400),
        (post("text/plain", tokens[5].reveal().into_bytes()), 415),
        // Tokens in the wrong place: as bearer tokens, in the path.
        (get("/v1/tokens", &participant), 403),
        (get("/v1/tokens", alices), 403),
        (get(&results, alices), 200),
        (get(&format!("/v1/studies/{participant}"), "x"), 403),
        (
            get(&format!("/v1/{participant}?token={participant}"), "x"),
            404,
        ),
        (open("/metrics"), 0),
        (open("/openapi.json"), 200),
        (open("/readyz"), 200),
        (open("/v1/studies"), 200),
        (get("/v1/tokens", first.reveal()), 200),
        (delete.bearer_auth(first.reveal()), 404),
    ])
    .await;
    look();
    let other = one_from(&client(0, root), &tokens[6], &wire());
    collected.extend(responses([(other, 201)]).await);
    collected.extend(wrong_requests(url, root, &id).await);
    let second = operator.rotate_token().await.unwrap();
    let debug_text =
        format!("{first:?} {second:?} {analyst:?} {tokens:?} {operator:?} {stranger:?}");
    collected.extend(debug_text.into_bytes());

    let mut secrets: Vec<Needle> = [
        secret("the operator's first", first.reveal()),
        secret("the operator's second", second.reveal()),
        secret("the analyst's", &analyst.token),
        secret("a stranger's", &stranger.reveal()),
    ]
    .into_iter()
    .flatten()
    .collect();
    for token in &tokens {
        secrets.extend(secret("a participant's", &token.reveal()));
    }
    (collected, secrets, tokens[0].digest().to_vec())
}
