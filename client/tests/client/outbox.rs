//! What the outbox promises while nothing is killed (`client/tests/client/outbox_crash.rs` kills).

use std::{
    fs,
    path::{Path, PathBuf},
};

use eigenveil_client::{Outbox, OutboxCounts, Reporter, StudyRef};
use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken, preprocess::Row};

use crate::common::{
    Folder, SERVER, STUDY, assert_says, borrowed, params, prepare, reporter, study_ref,
};

fn open(path: &Path) -> Outbox {
    Outbox::open(path, &study_ref(SERVER)).unwrap()
}

/// Perturbs rows of these participants and keeps what is new.
fn fill(outbox: &mut Outbox, participants: &[u64]) -> Vec<u64> {
    let prepared = prepare(&reporter(), participants);
    outbox.enqueue_batch(borrowed(&prepared)).unwrap()
}

fn new_outbox() -> (Folder, PathBuf, Outbox) {
    let folder = Folder::new();
    let path = folder.at("outbox");
    let outbox = open(&path);
    (folder, path, outbox)
}

#[test]
fn bytes_stay_the_same_over_reads_and_restarts() {
    let (_folder, path, mut outbox) = new_outbox();
    let prepared = prepare(&reporter(), &[7, 3, 100]);
    let new = outbox.enqueue_batch(borrowed(&prepared)).unwrap();
    assert_eq!(new, [7, 3, 100]);
    let first = outbox.pending(10).unwrap();
    drop(outbox);
    assert!(first.iter().map(|p| p.participant).eq([3, 7, 100]));
    for pending in &first {
        let mut prepared = prepared.iter();
        let original = prepared.find(|(i, _)| *i == pending.participant);
        assert_eq!(&pending.report, original.unwrap().1.report());
    }
    let outbox = open(&path);
    assert_eq!(outbox.pending(10).unwrap(), first);
    assert_eq!(outbox.pending(2).unwrap(), first[..2]);
    assert_eq!(outbox.pending_from(4, 10).unwrap(), first[1..]);
}

#[test]
fn a_participant_never_gets_a_second_report() {
    let (_folder, path, mut outbox) = new_outbox();
    let reporter = reporter();
    fill(&mut outbox, &[1, 2]);
    let kept = outbox.pending(10).unwrap();

    // While it is pending, in one batch, after a restart.
    let again = prepare(&reporter, &[1, 2, 4, 4]);
    assert_eq!(outbox.enqueue_batch(borrowed(&again)).unwrap(), [4]);
    assert_eq!(outbox.pending(10).unwrap()[..2], kept);
    assert_eq!(&outbox.pending(10).unwrap()[2].report, again[2].1.report());

    // After it was acknowledged or refused.
    outbox.record_acknowledged(&[1]).unwrap();
    outbox.record_refused(2, "malformed-report", "no").unwrap();
    drop(outbox);
    let mut outbox = open(&path);
    for (index, another) in prepare(&reporter, &[1, 2]) {
        assert!(!outbox.enqueue(index, &another).unwrap());
    }
    assert_eq!(outbox.pending(10).unwrap().len(), 1);
    for (index, known) in [(1, true), (2, true), (3, false), (4, true)] {
        assert_eq!(outbox.has_report(index).unwrap(), known, "{index}");
    }
    assert_eq!(outbox.missing(0..7).unwrap(), [0, 3, 5, 6]);
    assert_eq!(outbox.missing(1..3).unwrap(), [0_u64; 0]);
    assert_eq!(outbox.missing(3..3).unwrap(), [0_u64; 0]);
}

#[test]
fn acknowledged_reports_are_gone_and_refused_ones_can_come_back() {
    let (_folder, path, mut outbox) = new_outbox();
    fill(&mut outbox, &[0, 1, 2, 3]);
    let all = outbox.pending(10).unwrap();
    assert_eq!(outbox.record_acknowledged(&[0, 2, 99]).unwrap(), 2);
    // Repeating is harmless.
    assert_eq!(outbox.record_acknowledged(&[0, 2]).unwrap(), 0);
    let detail = "x".repeat(5_000);
    for (participant, detail, new) in [(1, detail.as_str(), true), (0, "too late", false)] {
        let refused = outbox.record_refused(participant, "payload-not-finite", detail);
        assert_eq!(refused.unwrap(), new);
    }
    // Refused is not pending.
    assert_eq!(outbox.record_acknowledged(&[1]).unwrap(), 0);
    let counts = OutboxCounts {
        pending: 1,
        acknowledged: 2,
        refused: 1,
    };
    assert_eq!(outbox.counts().unwrap(), counts);
    assert_eq!(counts.total(), 4);
    drop(outbox);

    let mut outbox = open(&path);
    assert_eq!(outbox.counts().unwrap(), counts);
    assert_eq!(outbox.pending(10).unwrap(), all[3..]);
    let refused = outbox.refused(10).unwrap();
    assert_eq!(refused[0].participant, 1);
    assert_eq!(refused[0].id, all[1].report.id);
    assert_eq!(refused[0].code, "payload-not-finite");
    assert_eq!(refused[0].detail.len(), 1_000);

    assert_eq!(outbox.requeue_refused().unwrap(), 1);
    let back = outbox.pending(10).unwrap();
    assert_eq!(back, [all[1].clone(), all[3].clone()], "the same bytes");
    assert_eq!(outbox.counts().unwrap().refused, 0);
}

#[test]
fn an_outbox_belongs_to_one_study() {
    let (_folder, path, outbox) = new_outbox();
    drop(outbox);
    // The slash does not count.
    drop(Outbox::open(&path, &study_ref("http://localhost:8080/")).unwrap());
    let (own, others) = (params(1.0), params(2.0));
    for (server, study, params, names) in [
        (SERVER, "ffff", &own, "ffff"),
        ("http://elsewhere", STUDY, &own, "http://elsewhere"),
        (SERVER, STUDY, &others, &others.fingerprint().to_string()),
    ] {
        let other = StudyRef::new(server, study, params);
        let error = Outbox::open(&path, &other).unwrap_err();
        assert!(error.is_study_mismatch(), "{error}");
        assert_says(error, &[names]);
    }
    let mut outbox = Outbox::open_existing(&path).unwrap();
    assert_eq!(outbox.study_ref(), &study_ref(SERVER));

    // A report of other parameters is refused, and with it the whole batch.
    let mut mixed = prepare(&reporter(), &[1]);
    mixed.extend(prepare(&Reporter::new(params(2.0)), &[2]));
    let error = outbox.enqueue_batch(borrowed(&mixed)).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    assert_eq!(outbox.counts().unwrap().total(), 0);
}

#[test]
fn meta_values_stay() {
    let (_folder, path, mut outbox) = new_outbox();
    assert_eq!(outbox.get_meta("rows").unwrap(), None);
    outbox.set_meta("rows", b"digest").unwrap();
    outbox.set_meta("rows", &[0, 255]).unwrap();
    drop(outbox);
    assert_eq!(open(&path).get_meta("rows").unwrap(), Some(vec![0, 255]));
}

#[test]
fn the_space_of_acknowledged_reports_is_used_again() {
    let folder = Folder::new();
    let path = folder.at("outbox");
    let size = |rounds: std::ops::Range<u64>| {
        let mut outbox = open(&path);
        for round in rounds {
            let indices: Vec<u64> = (round * 500..(round + 1) * 500).collect();
            fill(&mut outbox, &indices);
            outbox.record_acknowledged(&indices).unwrap();
        }
        drop(outbox);
        fs::metadata(&path).unwrap().len()
    };
    let early = size(0..2);
    let late = size(2..40);
    // What stays is participant, identifier and state: below 40 bytes, where a report is over 60.
    assert!(late - early < 38 * 500 * 40, "{early} -> {late}");
}

#[test]
fn impossible_participants_are_errors() {
    let (_folder, _, mut outbox) = new_outbox();
    let report = reporter().report(&Row::new(vec![1.0; 5])).unwrap();
    for result in [
        outbox.enqueue(u64::MAX, &report).map(|_| ()),
        outbox.has_report(1 << 63).map(|_| ()),
        outbox.record_acknowledged(&[u64::MAX]).map(|_| ()),
    ] {
        assert_says(result.unwrap_err(), &["below 2^63"]);
    }
    assert!(outbox.enqueue((1 << 63) - 1, &report).unwrap());
}

fn token(byte: u8) -> ParticipantToken {
    ParticipantToken::from_bytes([byte; 32])
}

fn tokens_of(outbox: &Outbox) -> Vec<(u64, Option<ParticipantToken>)> {
    let pending = outbox.pending(10).unwrap().into_iter();
    pending.map(|p| (p.participant, p.token)).collect()
}

#[test]
fn a_token_stays_with_its_report_until_it_is_acknowledged() {
    let (_folder, path, mut outbox) = new_outbox();
    // Before there is a report, too.
    assert_eq!(outbox.set_tokens([(2, &token(2))]).unwrap(), 1);
    fill(&mut outbox, &[1, 2, 3]);
    assert_eq!(outbox.set_tokens([(1, &token(1))]).unwrap(), 1);
    drop(outbox);
    let mut outbox = open(&path);
    let expected = [(1, Some(token(1))), (2, Some(token(2))), (3, None)];
    assert_eq!(tokens_of(&outbox), expected);
    // Refused for its token: another one makes it good. Refused for another reason: it does not.
    outbox.record_refused(1, "token-spent", "spent").unwrap();
    let broken = outbox.record_refused(3, "payload-not-finite", "broken");
    assert!(broken.unwrap());
    let again = [(1, &token(4)), (3, &token(5))];
    assert_eq!(outbox.set_tokens(again).unwrap(), 2);
    let expected = [(1, Some(token(4))), (2, Some(token(2)))];
    assert_eq!(tokens_of(&outbox), expected);
    assert_eq!(outbox.counts().unwrap().refused, 1);
    outbox.record_acknowledged(&[1]).unwrap();
    assert_eq!(outbox.set_tokens([(1, &token(6))]).unwrap(), 0);
    let debug = format!("{:?}", outbox.pending(10).unwrap());
    assert!(debug.contains("ParticipantToken(…)"), "{debug}");
}
