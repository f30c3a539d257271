//! What must be nowhere after a full run: values of rows, addresses and programs of clients.
//!
//! Numbers are looked for as text and as bytes, in the log at its most talkative level, the answers, the output of the
//! commands, the outboxes and every file of the data directory. By chance: four patterns have 32 bits, two 32 bits as hexadecimal
//! text, the others 40 or more, and there are fewer than 10⁵ random bytes to find them in: less than one run in 5,000.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::Output,
};

use eigenveil_shared::api::{REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE};

use crate::{
    certificates::Authority,
    program::{ServerProcess, program},
};

/// What no other number looks like.
const ROWS: [[f64; 4]; 3] = [
    [
        271_828.182_84,
        -314_159.265_35,
        141_421.356_23,
        57_721.566_49,
    ],
    [
        -161_803.398_87,
        69_314.718_05,
        230_258.509_29,
        -173_205.080_75,
    ],
    [
        223_606.797_74,
        91_596.559_41,
        -120_205.690_31,
        258_498.175_79,
    ],
];
/// Where a client sits, and whom a proxy says it speaks for.
const PEER: Ipv4Addr = Ipv4Addr::new(127, 83, 97, 113);
const FORWARDED: Ipv4Addr = Ipv4Addr::new(198, 51, 101, 119);
const AGENT: &str = "marker-agent-zebra/7.7";

/// Something to look for, with its name.
struct Needle(String, Vec<u8>);

fn needles() -> Vec<Needle> {
    let mut needles = vec![Needle(
        "the user agent".into(),
        b"marker-agent-zebra".into(),
    )];
    for address in [PEER, FORWARDED] {
        let bytes = address.octets();
        let backwards: Vec<u8> = bytes.iter().rev().copied().collect();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        for form in [
            address.to_string().into_bytes(),
            hex.into_bytes(),
            bytes.to_vec(),
            backwards,
        ] {
            needles.push(Needle(address.to_string(), form));
        }
    }
    for row in ROWS {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        for value in row {
            let text = value.abs().to_string();
            // With a dot, which times and identifiers have not there.
            needles.push(Needle(text.clone(), text.as_bytes()[..8].to_vec()));
            for number in [value, value / length] {
                let name = format!("{number} as f64");
                needles.push(Needle(name.clone(), number.to_be_bytes()[..5].to_vec()));
                needles.push(Needle(name, number.to_le_bytes()[3..].to_vec()));
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

fn holds(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}

#[track_caller]
fn holds_none(place: &str, hay: &[u8]) {
    for Needle(name, bytes) in needles() {
        assert!(!holds(hay, &bytes), "{place} holds {name} ({bytes:02x?})");
    }
}

fn said(output: &Output) -> Vec<u8> {
    [output.stdout.as_slice(), &output.stderr].concat()
}

#[test]
fn the_search_finds_what_is_there() {
    for Needle(name, bytes) in needles() {
        assert!(bytes.len() >= 4, "{name}");
        let hay = [&[0; 99], bytes.as_slice(), &[1; 99]].concat();
        assert!(holds(&hay, &bytes) && !holds(&[0; 99], &bytes), "{name}");
    }
    let found = |hay: &[u8]| needles().iter().filter(|n| holds(hay, &n.1)).count();
    assert_eq!(found(csv().as_bytes()), 12);
    let raw: Vec<u8> = ROWS
        .as_flattened()
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    assert_eq!(found(&raw), 12);
    assert!(found(format!("peer {PEER}:40000").as_bytes()) == 1);
}

fn csv() -> String {
    ROWS.iter()
        .map(|row| row.map(|x| x.to_string()).join(",") + "\n")
        .collect()
}

/// Asks for this as somebody who can be recognised, and gives the answer's text. Says so if nothing was answered.
async fn ask(client: &reqwest::Client, request: reqwest::RequestBuilder) -> (u16, Vec<u8>) {
    let request = request
        .header("x-forwarded-for", FORWARDED.to_string())
        .build()
        .unwrap();
    let answer = client.execute(request).await.unwrap();
    let status = answer.status().as_u16();
    let head = format!("{:?}", answer.headers()).into_bytes();
    (
        status,
        [head, answer.bytes().await.unwrap().to_vec()].concat(),
    )
}

#[test]
fn rows_addresses_and_programs_of_clients_are_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let authority = Authority::new("an organisation");
    authority.issue("127.0.0.1").write(folder.path());
    fs::write(at("ca.pem"), &authority.root_pem).unwrap();
    // All that looks at addresses and tokens is in use.
    let config = format!(
        "listen = \"127.0.0.1:0\"\ntls_cert = {:?}\ntls_key = {:?}\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
         address_requests_per_minute = 100000\ntoken_requests_per_minute = 100000\nwrong_tokens_per_minute = 3\n",
        at("cert.pem"),
        at("key.pem")
    );
    fs::write(at("eigenveil.toml"), config).unwrap();
    let log = folder.path().join("log");
    let talkative = || {
        let mut program = program();
        program.env("RUST_LOG", "trace");
        program
    };
    let config = at("eigenveil.toml");
    let mut server = ServerProcess::start_logged(
        talkative,
        &folder.path().join("data"),
        &["--config", &config],
        &log,
    );

    let (rows, ca) = (at("rows.csv"), at("ca.pem"));
    fs::write(&rows, csv()).unwrap();
    let mut spoken = Vec::new();
    for mechanism in ["double-cap", "isotropic-gaussian", "discrete-gaussian"] {
        let flags = [
            "--p",
            "4",
            "--epsilon",
            "4",
            "--mechanism",
            mechanism,
            "--ca-cert",
            &ca,
        ];
        let study = server.create_study(&flags);
        let state = at(mechanism);
        for arguments in [
            vec![
                "report", "--header", "no", "--study", &study, "--rows", &rows, "--state", &state,
            ],
            vec![
                "estimate", "--study", &study, "--k", "1", "--wait", "--out", &state,
            ],
            vec!["study", "show", &study],
        ] {
            let output = server.cli(&[&arguments[..], &["--ca-cert", &ca]].concat());
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            spoken.extend(said(&output));
        }
        // A row that cannot be used is sent as the zero row, and not shown.
        let broken = at("broken.csv");
        fs::write(&broken, csv() + "223606.79774,inf,1,2\n").unwrap();
        let state = at(&format!("broken-{mechanism}"));
        let output = server.cli(&[
            "report",
            "--header",
            "no",
            "--study",
            &study,
            "--rows",
            &broken,
            "--state",
            &state,
            "--ca-cert",
            &ca,
        ]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        spoken.extend(said(&output));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        spoken.extend(runtime.block_on(wrong_requests(&server.url, &authority.root_pem, &study)));
    }
    let token = fs::read_to_string(server.token_file()).unwrap();
    let url = server.url.clone();
    assert!(server.stop());

    let logged = fs::read(&log).unwrap();
    // The log is at work, and knows what it was asked.
    for word in [
        "DEBUG",
        "request",
        "/v1/studies/{id}/reports",
        "status=403",
        "status=429",
    ] {
        assert!(holds(&logged, word.as_bytes()), "the log has no {word}");
    }
    assert!(url.contains("127.0.0.1") && !holds(&logged, token.trim().as_bytes()));
    holds_none("the log", &logged);
    holds_none("what commands and answers said", &spoken);
    let mut files = 0;
    for entry in fs::read_dir(folder.path().join("data")).unwrap() {
        let path = entry.unwrap().path();
        holds_none(&path.display().to_string(), &fs::read(&path).unwrap());
        files += 1;
    }
    assert!(files >= 2, "the data directory has {files} files");
    holds_none_but_the_outbox(folder.path());
}

/// The outboxes hold reports, which are perturbed.
fn holds_none_but_the_outbox(folder: &Path) {
    for mechanism in ["double-cap", "isotropic-gaussian", "discrete-gaussian"] {
        for entry in fs::read_dir(folder.join(mechanism)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                holds_none(&path.display().to_string(), &fs::read(&path).unwrap());
            }
        }
    }
}

/// Everything that is refused, sent by a client that can be recognised, with rows where none belong. Gives the answers.
async fn wrong_requests(url: &str, root: &str, study: &str) -> Vec<u8> {
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(root.as_bytes()).unwrap()])
        .local_address(IpAddr::from(PEER))
        .user_agent(AGENT)
        .build()
        .unwrap();
    let raw: Vec<u8> = ROWS
        .as_flattened()
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let studies = format!("{url}/v1/studies");
    let reports = format!("{studies}/{study}/reports");
    let text = csv();
    let post = |to: &String, media_type: &str, body: &[u8]| {
        let request = client.post(to).header("content-type", media_type);
        request.body(body.to_vec())
    };
    let get = |to: &str| client.get(format!("{url}{to}"));
    let guess = || client.post(&studies).bearer_auth("wrong");
    let json = format!("[{}]", text.replace('\n', ","));
    let mut answers = Vec::new();
    for (request, status) in [
        (get("/v1/studies"), 200),
        // A device that sends its rows as they are.
        (post(&reports, REPORT_MEDIA_TYPE, &raw), 0),
        (post(&reports, REPORT_BATCH_MEDIA_TYPE, &raw), 0),
        (post(&reports, "text/csv", text.as_bytes()), 415),
        (get(&format!("/rows/{}", text.lines().next().unwrap())), 404),
        (get("/v1/studies/271828.18284"), 404),
        (post(&studies, "application/json", json.as_bytes()), 401),
        (guess(), 0),
        (guess(), 0),
        (guess(), 0),
        (guess(), 429),
        (client.put(&reports).body(text), 405),
        (get("/metrics"), 0),
    ] {
        let (answered, said) = ask(&client, request).await;
        assert!(
            status == answered || (status == 0 && answered < 500),
            "{status} {answered}"
        );
        answers.extend(said);
    }
    answers
}
