//! The upload of a table: admission, reports, sending, and what is said of it.

use std::{borrow::Cow, ops::ControlFlow};

use eigenveil_client::{
    Holders, Participants, RowLedger, UploadProgress, UploadRequest, http::StudyClient,
    upload_table,
};
use eigenveil_shared::preprocess::Row;

use crate::{
    common::{STUDY, params, row, study},
    files::Folder,
    server::{http, study_server},
};

struct Table(Holders);

impl Participants for Table {
    fn row(&self, number: usize) -> Row {
        row(number as f64)
    }

    fn holders(&self) -> &Holders {
        &self.0
    }

    fn identity(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(b"rows")
    }

    fn settings_digest(&self) -> Vec<u8> {
        self.0.to_bytes()
    }
}

/// Ledgers have digests of these bytes: they stay as they are.
#[test]
fn persons_and_weights_have_bytes() {
    let persons = Holders::persons(["b", "a", "b"]);
    let numbers = [2_u64, 0, 2, 1, 1].map(u64::to_le_bytes);
    assert_eq!((persons.count(), persons.to_bytes()), (2, numbers.concat()));
    let weights = Holders::Weighted(vec![0.5]);
    assert_eq!(weights.to_bytes(), 0.5_f64.to_le_bytes());
    assert!(Holders::Rows(3).to_bytes().is_empty());
}

#[test]
fn a_table_that_its_study_does_not_take_is_refused() {
    let folder = Folder::new();
    let ledger = RowLedger::open(folder.at("rows")).unwrap();
    let study = study(STUDY, 1.0);
    for (holders, connections, word) in [
        (Holders::Weighted(vec![0.5]), Some(1_024), "weights"),
        (Holders::Rows(2), Some(0), "connections"),
        (Holders::Rows(2), Some(1_025), "connections"),
    ] {
        let request = UploadRequest {
            connections,
            ..UploadRequest::default()
        };
        let refused = ledger.admit_table(&study, &Table(holders), &request);
        assert!(refused.unwrap_err().detail().contains(word));
    }
}

#[tokio::test]
async fn a_table_is_uploaded_once_also_if_it_was_broken_off() {
    let (server, store) = study_server(&params(1.0), |_, _, _| None).await;
    let client = StudyClient::with_settings(&server.address, &http()).unwrap();
    let study = client.fetch_study(STUDY).await.unwrap();
    let folder = Folder::new();
    let mut ledger = RowLedger::open(folder.at("rows")).unwrap();
    let table = Table(Holders::persons([7, 8, 7, 9]));
    let request = UploadRequest::default();
    for (breaks, made, acknowledged) in [(true, 3, 0), (false, 0, 3), (false, 0, 3)] {
        let admitted = ledger.admit_table(&study, &table, &request).unwrap();
        let mut last = None;
        let http = http();
        let answer = upload_table(&mut ledger, admitted, &table, &http, |now| {
            last = Some(now.clone());
            match now {
                UploadProgress::Sent(0, 3) if breaks => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        let answer = answer.await.unwrap();
        assert_eq!((answer.rows, answer.charged.rows), (3, made));
        assert_eq!(answer.acknowledged, acknowledged);
        assert_eq!(answer.sent.pending, 3 - acknowledged);
        assert!(matches!(last, Some(UploadProgress::Sent(sent, of)) if breaks || sent == of));
    }
    assert_eq!(store.lock().unwrap().stored.len(), 3);
    let studies = ledger.receipt().unwrap().studies;
    let neighbours = &studies[0].record.neighbours;
    assert!(neighbours.contains("the rows of one person"));
}
