//! A device's book in a store of a program's own: several tabs, restarts, and a store that lost something.

use std::{collections::BTreeMap, sync::LazyLock};

use eigenveil_client::{
    EntryState, Limits, ReportResult, Result, Study,
    book::{Book, Change, Entry, Revision, Step},
};
use eigenveil_shared::{ErrorCode, about::StudyNotice, enrolment::ParticipantToken, study::to_hex};
use proptest::prelude::*;

use crate::common::{
    NOW, PAYLOAD_LEN, SERVER, STUDY, assert_says, limits, params, row, study, study_at,
};

/// A store such as a browser has.
#[derive(Clone, Default)]
struct Store {
    revision: Option<Revision>,
    records: BTreeMap<String, Vec<u8>>,
}

impl Store {
    fn load(&self) -> Result<Book> {
        Book::load(self.records.clone())
    }

    /// All of a change, if nobody else wrote since its book was read; whether it did.
    fn write(&mut self, change: &Change) -> bool {
        let write = change.write().unwrap();
        if write.expected_revision != self.revision {
            return false;
        }
        self.revision = Some(write.new_revision);
        self.records.extend(write.put);
        for key in write.delete {
            self.records.remove(&key);
        }
        true
    }

    /// Writes a change and tells the book; what is read from then on is the same book.
    fn keep(&mut self, book: &mut Book, change: Change) {
        assert!(self.write(&change));
        book.stored(change).unwrap();
        let read = self.load().unwrap();
        assert_eq!(read.receipt(), book.receipt());
        assert_eq!(read.limits(), book.limits());
        assert_eq!(read.entries(), book.entries());
        assert!(read.pending().eq(book.pending()));
    }

    fn body(&self, book: &Book, study: &str) -> Vec<u8> {
        let entry = book.find(study).unwrap();
        let payload = self.records[&entry.payload_key()].clone();
        entry.request(payload).unwrap().body
    }
}

fn join(book: &Book, name: &str) -> Change {
    match book.take_part(&study(name, 0.5), &row(1.0), NOW).unwrap() {
        Step::Join(change) => change,
        Step::Known(entry) => unreachable!("{entry:?}"),
    }
}

/// A store of three studies.
fn filled() -> (Store, Book) {
    let (mut store, mut book) = (Store::default(), Book::new(Limits::default()));
    for name in ["a", "b", "c"] {
        let change = join(&book, name);
        store.keep(&mut book, change);
    }
    (store, book)
}

#[test]
fn a_name_that_meant_another_study_is_refused_and_a_whole_identifier_is_not() {
    let (mut store, mut book) = (Store::default(), Book::new(Limits::default()));
    let other = "f".repeat(32);
    let wine = |server: &str, id: &str, called: &str| {
        let study = study_at(server, id, params(0.5));
        study
            .with_info("wine", StudyNotice::default())
            .called(called)
    };
    let take_part = |book: &Book, study: &Study| book.take_part(study, &row(1.0), NOW);
    let Step::Join(change) = take_part(&book, &wine(SERVER, STUDY, "wine")).unwrap() else {
        unreachable!("the first study");
    };
    store.keep(&mut book, change);
    let refused = take_part(&book, &wine(SERVER, &other, "wine")).unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::AlreadyParticipated));
    assert_says(&refused, &[STUDY, &other, "\"wine\""]);
    let whole = wine(SERVER, &other, &other);
    let elsewhere = wine("https://study.example", &other, "wine");
    for fine in [whole, elsewhere, wine(SERVER, STUDY, "wine")] {
        take_part(&book, &fine).unwrap();
    }
}

#[test]
fn of_two_tabs_only_one_takes_part() {
    for begun in [false, true] {
        let (mut store, mut first) = match begun {
            true => filled(),
            false => (Store::default(), Book::new(Limits::default())),
        };
        let second = first.clone();
        let changes = [join(&first, "one"), join(&second, "one")];
        assert!(store.write(&changes[0]));
        // Its report was drawn and never leaves.
        assert!(!store.write(&changes[1]));
        let [change, _] = changes;
        first.stored(change).unwrap();
        let read = store.load().unwrap();
        let known = read.take_part(&study("one", 0.5), &row(2.0), NOW).unwrap();
        let Step::Known(entry) = known else {
            unreachable!("{known:?}");
        };
        assert_eq!(Some(&entry), first.find("one"));
        assert_eq!(read.spent(), first.spent());
    }
}

#[test]
fn what_is_read_is_the_book_after_every_change() {
    let (mut store, mut book) = filled();
    let before = ["a", "b", "c"].map(|name| store.body(&book, name));
    let report_of = |book: &Book, name: &str| book.find(name).unwrap().report();
    let refused = ReportResult::Refused {
        code: "token-spent".to_owned(),
        detail: "spent".to_owned(),
    };
    let a = report_of(&book, "a");
    for (name, result) in [("a", &ReportResult::Accepted), ("b", &refused)] {
        let report = report_of(&book, name);
        assert!(
            book.settle(report, &ReportResult::Pending)
                .unwrap()
                .is_none()
        );
        let change = book.settle(report, result).unwrap().unwrap();
        store.keep(&mut book, change);
        // Repeating changes nothing, nor does what comes too late.
        for result in [result, &refused] {
            assert!(book.settle(report, result).unwrap().is_none());
        }
    }
    assert_eq!(book.pending().count(), 1);
    // The bytes of an acknowledged report are gone; the others are those that they were.
    let keys: Vec<_> = store.records.keys().map(String::as_str).collect();
    let expected = [
        "entry/1",
        "entry/2",
        "entry/3",
        "head",
        "payload/2",
        "payload/3",
    ];
    assert_eq!(keys, expected);
    assert_eq!(store.body(&book, "b"), before[1]);

    let token = ParticipantToken::from_bytes([7; 32]);
    assert!(book.set_token("a", &token).unwrap().is_none());
    type Changing = fn(&Book) -> Result<Option<Change>>;
    let changes: [Changing; 5] = [
        // Pending again, for it was refused for its token.
        |book| book.set_token("b", &ParticipantToken::from_bytes([7; 32])),
        |book| book.settle(book.find("c").unwrap().report(), &too_large()),
        Book::requeue_refused,
        |book| book.accept_move(&study_at("https://new.example", "c", params(0.5))),
        |book| book.set_limits(limits(1.0, 2.0, 1e-5)).map(Some),
    ];
    for change in changes {
        let change = change(&book).unwrap().unwrap();
        store.keep(&mut book, change);
    }
    assert_eq!(book.pending().count(), 2);
    assert_eq!(store.body(&book, "b"), [&[7; 32], &before[1][..]].concat());
    assert_eq!(store.body(&book, "c"), before[2]);
    assert_eq!(
        book.find("c").unwrap().server().as_str(),
        "https://new.example"
    );
    assert_eq!((report_of(&book, "a"), book.spent().epsilon), (a, 1.5));
    assert!(book.requeue_refused().unwrap().is_none());
}

/// Two windows of one device.
#[test]
fn a_report_that_was_given_up_is_sent_from_no_window_and_stays_charged() {
    let (mut store, mut book) = filled();
    let elsewhere = store.load().unwrap();
    let outbox = elsewhere.find("b").unwrap().clone();
    let change = book.give_up("b").unwrap().unwrap();
    store.keep(&mut book, change);
    // The other window has it in its outbox, and finds no bytes; what it would store is refused.
    assert!(!store.records.contains_key(&outbox.payload_key()));
    let change = elsewhere.settle(outbox.report(), &too_large()).unwrap();
    assert!(!store.write(&change.unwrap()));
    // No row, no token and no repetition brings it back.
    let known = book.take_part(&study("b", 0.5), &row(2.0), NOW).unwrap();
    assert!(matches!(known, Step::Known(entry) if entry.state() == &EntryState::GivenUp));
    let token = ParticipantToken::from_bytes([7; 32]);
    assert!(book.set_token("b", &token).unwrap().is_none());
    assert!(book.requeue_refused().unwrap().is_none());
    assert!(book.give_up("b").unwrap().is_none());
    assert!(book.pending().map(Entry::study).eq(["a", "c"]));
    assert_eq!(book.spent().epsilon, 1.5);
    // It was on its way: a refusal is no news, that the server has it is.
    let settle = |book: &Book, result: &ReportResult| book.settle(outbox.report(), result).unwrap();
    assert!(settle(&book, &too_large()).is_none());
    let change = settle(&book, &ReportResult::Duplicate).unwrap();
    store.keep(&mut book, change);
    assert_eq!(book.find("b").unwrap().state(), &EntryState::Acknowledged);
    assert!(book.give_up("b").unwrap().is_none());
    // Refused, it could have been sent again.
    let refused = book.find("c").unwrap().report();
    let change = book.settle(refused, &too_large()).unwrap().unwrap();
    store.keep(&mut book, change);
    let change = book.give_up("c").unwrap().unwrap();
    store.keep(&mut book, change);
    assert!(book.requeue_refused().unwrap().is_none());
    let keys: Vec<&str> = store.records.keys().map(String::as_str).collect();
    assert_eq!(keys[4..], ["payload/1"]);
    let error = book.give_up("nothing").unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::StudyNotFound));
}

fn too_large() -> ReportResult {
    ReportResult::Refused {
        code: "implausible-report".to_owned(),
        detail: "x".repeat(5_000),
    }
}

#[test]
fn a_change_of_an_older_book_is_not_taken_for_stored() {
    let (mut store, mut book) = filled();
    let [first, second] = [join(&book, "d"), join(&book, "e")];
    store.keep(&mut book, first);
    assert!(!store.write(&second));
    let error = book.stored(second).unwrap_err();
    assert!(error.is_changed(), "{error}");
    assert_eq!(error.name(), "changed");
    assert_eq!(book.entries().len(), 4);
    assert!(book.find("e").is_none());
}

#[test]
fn the_bytes_of_another_report_make_no_request() {
    let (_, book) = filled();
    let entry = book.find("b").unwrap();
    for len in [0, PAYLOAD_LEN - 1, PAYLOAD_LEN + 1] {
        let error = entry.request(vec![0; len]).unwrap_err();
        assert_says(error, &["report for study b", "instead of 60"]);
    }
}

#[test]
fn nothing_shows_the_bytes_of_a_report_or_a_token() {
    let (_, mut book) = filled();
    let change = join(&book, "d");
    let write = change.write().unwrap();
    let (_, payload) = write
        .put
        .iter()
        .find(|(key, _)| key == "payload/4")
        .unwrap();
    let list = format!("{payload:?}");
    let debug_text = format!("{change:?} {write:?}");
    assert!(!debug_text.contains(&list[1..30]));
    book.stored(change).unwrap();
    let token = ParticipantToken::from_bytes([7; 32]);
    let change = book.set_token("d", &token).unwrap().unwrap();
    let write = change.write().unwrap();
    let list = format!("{:?}", token.reveal().as_bytes());
    let debug_text = format!("{change:?} {write:?} {book:?}");
    assert!(!debug_text.contains(&token.reveal()) && !debug_text.contains(&list[1..30]));
}

#[test]
fn a_store_that_lost_something_is_an_error_and_no_new_book() {
    let (store, _) = filled();
    for key in store.records.keys() {
        let mut lost = store.clone();
        lost.records.remove(key);
        let read = lost.load();
        // Payloads need not be read with the others.
        match key.starts_with("payload/") {
            true => assert!(read.is_ok(), "{key}"),
            false => assert_says(read.unwrap_err(), &["the store is damaged"]),
        }
    }
    // An entry in the place of another, one that is no entry, one that nobody made.
    let change = |edit: &dyn Fn(&mut Store), says: &str| {
        let mut changed = store.clone();
        edit(&mut changed);
        assert_says(changed.load().unwrap_err(), &[says]);
    };
    let second = &store.records["entry/2"];
    for key in ["entry/1", "entry/3", "entry/4"] {
        let edit = |store: &mut Store| {
            store.records.insert(key.to_owned(), second.clone());
        };
        change(&edit, "an entry is missing");
    }
    for key in ["head", "entry/2"] {
        let edit = |store: &mut Store| {
            store.records.insert(key.to_owned(), b"{}".to_vec());
        };
        change(&edit, key);
    }
    let later = |store: &mut Store| {
        let head = store.records["head"].clone();
        let head = String::from_utf8(head).unwrap();
        let later = head.replace("\"version\":2", "\"version\":3");
        assert_ne!(head, later);
        store.records.insert("head".to_owned(), later.into_bytes());
        // As nobody can read it yet: still no damage, for who restores a copy forgets what was charged since.
        store.records.insert("entry/2".to_owned(), b"{}".to_vec());
    };
    change(&later, "a later Eigenveil");
    Book::load([]).unwrap_err();
}

/// Records of version 1.
const RECORDS: [(&str, &str); 4] = [
    (
        "head",
        r#"{"version":1,"revision":"00112233445566778899aabbccddeeff","limits":{"epsilon_per_study":8.001,"epsilon_total":16.01,"delta_total":0.00001},"entries":3}"#,
    ),
    (
        "entry/1",
        r#"{"number":1,"servers":["http://localhost:8080","https://new.example"],"study":"a","fingerprint":"ae239378f3f1218f29540842448e752d47d2b8108c75a2ae39a36b6074a913a5","payload_len":24,"mechanism":"isotropic-gaussian","dimension":3,"neighbours":"replacement","sentence":"One report.","charge":{"epsilon":5.264999123456789,"delta":1e-6},"day":20526,"report":"0123456789abcdef0123456789abcdef","state":"acknowledged","token":null,"name":"One","about":{"purpose":"What makes \"wines\" differ","responsible_party":"Institute of Wine","contact":"wine@example.org","last_day":"2027-03-31"},"canonical_params":"010003000000000000000000000000000000000000000010408dedb5a0f7c6b03e01010100000000000000c923234af931f53f"}"#,
    ),
    (
        "entry/2",
        r#"{"number":2,"servers":["http://localhost:8080"],"study":"b","fingerprint":"0202020202020202020202020202020202020202020202020202020202020202","payload_len":60,"mechanism":"discrete-gaussian","dimension":5,"neighbours":"replacement","sentence":"One report.","charge":{"epsilon":0.7,"delta":0.00001},"day":20527,"report":"ffffffffffffffffffffffffffffffff","state":{"refused":{"code":"implausible-report","detail":"too \"large\""}},"token":"0202020202020202020202020202020202020202020202020202020202020202","name":null,"about":{"purpose":null,"responsible_party":null,"contact":null,"last_day":null},"canonical_params":"00"}"#,
    ),
    (
        "entry/3",
        r#"{"number":3,"servers":["http://localhost:8080"],"study":"c","fingerprint":"0303030303030303030303030303030303030303030303030303030303030303","payload_len":16,"mechanism":"double-cap","dimension":2,"neighbours":"replacement","sentence":"One report.","charge":{"epsilon":4.000000953674317,"delta":0.0},"day":20528,"report":"00000000000000000000000000000001","state":"owed","token":"0303030303030303030303030303030303030303030303030303030303030303","name":"Three","about":{"purpose":"é","responsible_party":null,"contact":null,"last_day":null},"canonical_params":"00"}"#,
    ),
];

fn record((key, text): (&str, &str)) -> (String, Vec<u8>) {
    (key.to_owned(), text.as_bytes().to_vec())
}

/// Byte for byte: a ledger's file refuses an entry that is written otherwise than it was.
#[test]
fn records_of_version_1_are_read_and_written_as_they_are() {
    let book = Book::load(RECORDS.map(record)).unwrap();
    assert_eq!(book.limits(), limits(8.001, 16.01, 1e-5));
    let studies = book.receipt().studies;
    assert_eq!(studies[0].moved_to, ["https://new.example"]);
    assert_eq!(studies[0].day, "2026-03-14");
    assert_eq!(studies[0].charged.epsilon(), 5.264_999_123_456_789);
    let read = studies[0].terms.parameters.as_ref().unwrap();
    assert_eq!(read.fingerprint().to_string(), studies[0].fingerprint);
    let about = &studies[0].terms.about;
    assert_eq!(about.last_day, Some("2027-03-31".parse().unwrap()));
    assert_eq!(studies[0].state, EntryState::Acknowledged);
    let pending: Vec<_> = book.pending().map(Entry::study).collect();
    assert_eq!(pending, ["c"]);
    for (number, study) in [(2, "b"), (3, "c")] {
        // The token that it has.
        let token = ParticipantToken::from_bytes([number as u8; 32]);
        let change = book.set_token(study, &token).unwrap().unwrap();
        let write = change.write().unwrap();
        let (head, entry) = (&write.put[0], &write.put[1]);
        assert_eq!(*entry, record(RECORDS[number]));
        let (was, is) = (
            "00112233445566778899aabbccddeeff",
            to_hex(&write.new_revision),
        );
        let text = RECORDS[0].1.replace(was, &is);
        let text = text.replace("\"version\":1", "\"version\":2");
        assert_eq!(*head, record(("head", &text)));
    }
    // Version 2 has one more state.
    let mut records = RECORDS.map(record);
    let given_up = RECORDS[3].1.replace("\"owed\"", "\"given-up\"");
    records[3].1 = given_up.into_bytes();
    let book = Book::load(records).unwrap();
    assert_eq!(book.find("c").unwrap().state(), &EntryState::GivenUp);
    assert_eq!(book.pending().count(), 0);
}

proptest! {
    #[test]
    fn a_record_that_was_cut_or_overwritten_is_an_error(
        key in prop::sample::select(vec!["head", "entry/1", "entry/2", "entry/3"]),
        at in any::<prop::sample::Index>(),
        rubbish in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        static STORE: LazyLock<Store> = LazyLock::new(|| filled().0);
        let store = &*STORE;
        let record = &store.records[key];
        let at = at.index(record.len());
        for changed in [record[..at].to_vec(), [&record[..at], &rubbish].concat(), rubbish] {
            let mut store = store.clone();
            store.records.insert(key.to_owned(), changed);
            prop_assert!(store.load().is_err());
        }
    }
}
