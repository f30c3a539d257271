//! A participant opens the study's page, runs the printed command, and reads the receipt.

use roxmltree::Document;

use crate::{
    documentation::as_typed,
    harness::{Folder, ReservedPort, ServerProcess, refused, run, says, stderr, succeeded},
    html,
};

const LONG_NAME: &str =
    "od280/od315 of diluted wines, written out whole to the last of its many words";
const TERMS: [(&str, &str); 4] = [
    (
        "--purpose",
        "What makes wines differ, in a <sentence> & a half",
    ),
    ("--responsible-party", "Institute of Wine"),
    ("--contact", "wine@example.org"),
    ("--last-day", "2099-12-31"),
];

async fn page(server: &ServerProcess, id: &str) -> Document<'static> {
    let url = format!("{}/studies/{id}/participate", server.url);
    let answer = reqwest::get(url).await.unwrap().error_for_status().unwrap();
    html::parse(&answer.text().await.unwrap())
}

fn text(page: &Document<'static>, selector: &str) -> String {
    html::text(html::select(page, selector)[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_commands_work_and_the_receipt_is_complete() {
    let folder = Folder::new();
    let server = folder.server();
    let lines = format!(
        "name,center,scale,label,unit\nalcohol,13,0.8125,Strength,% vol\n\"{LONG_NAME}\",2.6,0.75,,\n"
    );
    let constants = folder.write("constants.csv", lines);
    let terms = TERMS
        .map(|(flag, value)| format!("{flag} '{value}'"))
        .join(" ");
    let id = server.create_study(&format!("--features {constants} --epsilon 4 {terms}"));
    let show = format!("study show {id}");
    let study_json = server.cli_json(&show);
    assert_eq!(study_json["about"]["contact"], "wine@example.org");
    assert_eq!(study_json["about"]["last_day"], "2099-12-31");
    let study_json = succeeded(&server.cli(&show));

    let page = page(&server, &id).await;
    let shown_terms = text(&page, "#about");
    let features = text(&page, "#features");
    assert!(features.contains("alcohol") && features.contains(LONG_NAME));
    // The columns in another order, and one that is not a feature.
    let table = format!("\"{LONG_NAME}\",alcohol\n2.5,13.2\n3.1,12.9\n1.8,14.0\n");
    folder.write("mine.csv", table);
    let report = text(&page, "#report-command").replace("ROWS.csv", "mine.csv");
    let reported = as_typed(&folder, &report).output().unwrap();
    let (asked, printed) = (stderr(&reported), succeeded(&reported));
    // A pure mechanism shows no δ.
    says(&printed, &["3 of 3 rows acknowledged", "delta 0;"]);
    assert!(!printed.contains("0e0"), "{printed}");
    // Told before anything is made, and how to stop beside what it reveals.
    for told in [text(&page, "main"), asked.clone()] {
        says(&told, &["doing nothing is refusing"]);
    }
    for told in [text(&page, "#stop"), printed.clone()] {
        says(
            &told,
            &["can be given up", "the server may have it already"],
        );
    }
    let give_up = text(&page, "#give-up-command").replace("ROWS.csv", "mine.csv");
    let given_up = succeeded(&as_typed(&folder, &give_up).output().unwrap());
    says(&given_up, &["nothing to give up", "3 reports"]);
    let receipt = text(&page, "#receipt-command").replace("ROWS.csv", "mine.csv");
    let receipt = succeeded(&as_typed(&folder, &receipt).output().unwrap());
    for (_, value) in TERMS {
        for place in [&shown_terms, &asked, &receipt, &study_json] {
            assert!(place.contains(value), "{value:?} is not in {place}");
        }
    }
    assert!(features.contains("Strength (% vol)"), "{features}");
    for constant in [
        "alcohol: center 13, scale 0.8125",
        "Strength (% vol)",
        LONG_NAME,
        "center 2.6, scale 0.75",
    ] {
        for place in [&receipt, &study_json] {
            assert!(place.contains(constant), "{constant:?} is not in {place}");
        }
    }
    says(
        &receipt,
        &[
            "under test",
            "double-cap",
            "normalize",
            "epsilon 4",
            &id,
            &text(&page, "#parameters code"),
        ],
    );
    // The rows' file in place of their ledger.
    let rows = folder.at("mine.csv");
    let way_out = format!("eigenveil receipt {rows}.ledger");
    refused(
        &run(&format!("receipt {rows}")),
        2,
        &["is not an Eigenveil ledger", &way_out],
    );
}

#[test]
fn missing_terms_are_noted_and_bad_contacts_refused() {
    let folder = Folder::new();
    let server = folder.server();
    let create = |flags: &str| {
        server.cli(&format!(
            "study create --name x --same-name --p 3 --epsilon 4 {flags}"
        ))
    };
    let silent = create("--purpose 'To see'");
    succeeded(&silent);
    let message = stderr(&silent);
    says(
        &message,
        &["not stated", "responsible party, contact, last day"],
    );
    // (All that is refused: `shared/src/about.rs`.)
    let bad = create("--contact javascript:alert(1)");
    refused(&bad, 2, &["the contact is", "https://"]);
    let bad = create("--last-day 31.03.2027");
    refused(&bad, 2, &["2027-03-31", "--last-day"]);
    // Refused by the server: what a study does not say is noted of a study that there is.
    let over = create("--last-day 2020-01-01");
    refused(&over, 2, &["in the past"]);
    assert!(!stderr(&over).contains("note:"), "{}", stderr(&over));
}

/// Reports prepared for one purpose are not silently sent for another, as the ledger knows it.
#[test]
fn reports_are_not_sent_for_a_changed_purpose() {
    let folder = Folder::new();
    let port = ReservedPort::new();
    let start =
        || ServerProcess::start_on(&folder.path().join("data"), &port.address().to_string());
    let mut server = start();
    let id = server.create_study("--p 2 --epsilon 4 --enrolment token --purpose sleep");
    let (rows, tokens) = (
        folder.write("rows.csv", "1,2\n3,4\n"),
        folder.at("tokens.txt"),
    );
    server.cli_json(&format!("study tokens {id} --count 2 --out {tokens}"));
    let others = ["ab", "cd"].map(|pair| pair.repeat(32)).join("\n");
    let others = folder.write("others.txt", others);
    let report = |server: &ServerProcess, more: &str| {
        server.cli(&format!(
            "report --header no --study {id} --rows {rows} {more}"
        ))
    };
    // Prepared and charged, but not accepted with tokens of another study.
    let unknown = report(&server, &format!("--tokens {others}"));
    says(&stderr(&unknown), &["[participant-token-unknown]"]);
    assert!(server.stop());
    rusqlite::Connection::open(eigenveil_store::database_path(&server.data))
        .unwrap()
        .execute("UPDATE studies SET purpose = 'sales'", [])
        .unwrap();
    let server = start();
    let tokens = format!("--tokens {tokens}");
    refused(
        &report(&server, &tokens),
        2,
        &[
            "\"sleep\"",
            "\"sales\" now",
            "nothing was sent",
            "--accept-new-purpose",
        ],
    );
    // At another address the flag would do nothing, and is not recommended.
    let there = server.url.replace("127.0.0.1", "localhost");
    let flags = format!("{tokens} --moved --accept-new-purpose --server {there}");
    let moved = report(&server, &flags);
    refused(&moved, 2, &["\"sales\" now", "nothing was sent"]);
    assert!(!stderr(&moved).contains("or give"), "{}", stderr(&moved));
    assert_eq!(server.accepted(&id), 0);
    let agreed = succeeded(&report(&server, &format!("{tokens} --accept-new-purpose")));
    assert!(agreed.contains("2 of 2 rows acknowledged"), "{agreed}");
}
