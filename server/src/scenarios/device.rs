//! A device: the client's book in two windows over one store that fails; and what it may do wrong.

use std::collections::BTreeMap;

use eigenveil_client::{
    EntryState, Limits, ReportResult, Request, Response, Study,
    book::{Book, Change, Entry, Revision, Step},
};
use eigenveil_shared::{enrolment::Admission, preprocess::Row, report::ReportId};
use eigenveil_store::testing::fixtures::START_MS;

use super::{model::P, operations::Fate};

/// Mistakes of a device; each has to be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    SendsBeforeItIsStored,
    DrawsAgainOnRetry,
    TakesAny200ForAReceipt,
    IgnoresWhatAWriteExpects,
}

pub(super) struct Device {
    study: Study,
    mistake: Option<Mistake>,
    /// Sent in the place of the bytes that it draws, so that each of its reports can be found in a sum.
    pub(super) mark: Vec<u8>,
    /// The first report that it kept.
    pub(super) report: Option<ReportId>,
    records: BTreeMap<String, Vec<u8>>,
    revision: Option<Revision>,
    /// Both are open before there is anything to read.
    windows: [Option<Book>; 2],
}

impl Device {
    pub(super) fn new(study: &Study, mark: Vec<u8>, mistake: Option<Mistake>) -> Self {
        Self {
            study: study.clone(),
            mistake,
            mark,
            report: None,
            records: BTreeMap::new(),
            revision: None,
            windows: [(); 2].map(|()| Some(Book::new(Limits::default()))),
        }
    }

    fn book(&mut self, window: usize) -> &mut Book {
        let records = &self.records;
        self.windows[window].get_or_insert_with(|| match records.is_empty() {
            true => Book::new(Limits::default()),
            false => Book::load(records.clone()).unwrap(),
        })
    }

    pub(super) fn take_part(&mut self, window: usize, fate: Fate) {
        let study = self.study.clone();
        let step = self.book(window).take_part(&study, &row(), START_MS);
        if let Step::Join(change) = step.unwrap() {
            self.write(window, change, fate);
        }
        let stored = self.book(window).entries().first().map(Entry::report);
        self.report = self.report.or(stored);
    }

    /// The request that sends the pending report.
    pub(super) fn pending(&mut self, window: usize) -> Option<Request> {
        let entry = self.book(window).pending().next()?.clone();
        if self.mistake == Some(Mistake::DrawsAgainOnRetry) {
            let again = self.study.report(&row(), START_MS).unwrap();
            let mut again = again.into_report();
            again.payload.clone_from(&self.mark);
            return Some(self.study.upload_one(&again, &Admission::Open).unwrap());
        }
        let is_kept = self.records.contains_key(&entry.payload_key());
        if !is_kept && self.mistake != Some(Mistake::SendsBeforeItIsStored) {
            // The window is behind its store.
            self.windows[window] = None;
            return None;
        }
        Some(entry.request(self.mark.clone()).unwrap())
    }

    /// Reads what came back, and writes down what has become of the report; whether the server has it.
    pub(super) fn settle(
        &mut self,
        window: usize,
        request: &Request,
        response: &Response<'_>,
        fate: Fate,
    ) -> bool {
        let result = match response.status {
            200 if self.mistake == Some(Mistake::TakesAny200ForAReceipt) => ReportResult::Accepted,
            _ => request.answer(response).results.remove(0),
        };
        let report = request.reports()[0];
        let change = self.book(window).settle(report, &result).unwrap();
        if let Some(change) = change {
            self.write(window, change, fate);
        }
        matches!(result, ReportResult::Accepted | ReportResult::Duplicate)
    }

    /// Whether its store says that the server has its report.
    pub(super) fn is_acknowledged(&mut self) -> bool {
        self.windows = [None, None];
        let mut entries = self.book(0).entries().iter();
        entries.any(|entry| entry.state() == &EntryState::Acknowledged)
    }

    /// Writes as a store must; a window whose write failed reads the store again.
    fn write(&mut self, window: usize, change: Change, fate: Fate) {
        let write = change.write().unwrap();
        let fits = write.expected_revision == self.revision
            || self.mistake == Some(Mistake::IgnoresWhatAWriteExpects);
        if fits && fate != Fate::Lost {
            self.revision = Some(write.new_revision);
            self.records.extend(write.put);
            self.records.retain(|key, _| !write.delete.contains(key));
        }
        let is_told = fate == Fate::Stored || self.mistake == Some(Mistake::SendsBeforeItIsStored);
        if fits
            && is_told
            && let Some(book) = &mut self.windows[window]
            && book.stored(change).is_ok()
        {
            return;
        }
        self.windows[window] = None;
    }
}

fn row() -> Row {
    Row::new(vec![1.0; P])
}
