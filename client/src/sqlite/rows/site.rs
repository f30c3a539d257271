//! A site's table in its ledger: its admission, its exact sum, and one report for all its rows.
//!
//! Charges are those of rows, or of persons, so that a site's studies add up with all others of the same ledger. A
//! table has charges and report, or neither: they are one write. A table of rows has one report for ever, and must stay
//! as it is. A table of persons may come again, in any order and with others: persons who were charged are left out,
//! and the rest makes a report of its own, with a token of its own.

use std::{
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    about::UtcDate,
    api::SiteToken,
    enrolment::ParticipantToken,
    mechanism::table::{RowShares, TableSum},
    preprocess::Row,
    privacy::Budget,
    report::{Report, ReportId},
};
use rusqlite::params;
use serde::Deserialize;

use super::{
    admission::{UploadRequest, named_rows},
    ledger::{RowFile, RowLedger},
    persons::{SitePersons, UnchargedPersons},
    prepare::{PROGRESS_INTERVAL, insert_charge, insert_file, insert_study},
    queue::RowCounts,
    receipt::{SiteRecord, SiteReportRecord},
    schema::{key, row_of},
    tables::{ACKNOWLEDGED, GIVEN_UP, PENDING, REFUSED},
};
use crate::{
    book::EntryState,
    error::{Error, Result},
    rules::{Limits, charge},
    site_study::SiteStudy,
    study::random_bytes,
};

/// A table whose rows become one report of a site.
pub trait SiteTable: Sync {
    /// Number of rows.
    fn row_count(&self) -> usize;
    /// The rows with these consecutive numbers, from 0, asked for on several threads.
    ///
    /// # Errors
    /// The table cannot be read, or is no longer what it was.
    fn rows(&self, numbers: Range<usize>) -> Result<Vec<Row>>;
    /// Whose each row is; `None` if the table does not say.
    fn persons(&self) -> Option<&SitePersons>;
    /// Bytes that identify the rows: the digest of a file, say. A ledger stores a digest of them.
    fn identity(&self) -> Vec<u8>;
    /// Bytes that identify the settings with which the rows are read, such as the selected columns. A ledger stores a
    /// digest of them.
    fn settings_digest(&self) -> Vec<u8>;
}

/// A request for the report of a site's table, by whoever is responsible for its rows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SiteUploadRequest {
    /// Name of the site, as its token has it.
    pub site: String,
    /// Fewest rows, or persons, of a report; `None`: the study's. ε does not cover the answer: whoever learns of a
    /// refusal learns that there are fewer.
    pub min_rows: Option<u64>,
    /// The rest, as for single rows: one token, for a new report. `connections` and `single` have no effect.
    pub upload: UploadRequest,
}

/// Counts of a table that would be sent. **For the site only.**
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Rows of the table.
    pub rows: u64,
    /// Rows, or persons where persons are protected, that would be charged.
    pub charged: u64,
    /// Rows that are left out because their person was charged before.
    pub charged_before: u64,
    /// Rows that are left out because their person has more than the study counts.
    pub beyond_cap: u64,
    /// Rows that cannot be used and are in neither sum nor count; 0 before [`AdmittedTable::sum`].
    pub unusable: u64,
    /// Rows, or persons, that were never charged and are in no report until an earlier one is acknowledged or given up.
    pub waiting: u64,
    /// Persons whom the ledger knows, if none of the table's is among them; otherwise 0.
    pub known_others: u64,
}

/// Rows or persons whom a table would charge.
#[derive(Clone, Debug, PartialEq)]
enum Uncharged {
    /// The rows of a file that are not charged: all or none, unless it has changed.
    Rows(RowFile, Vec<Range<u64>>),
    Persons(UnchargedPersons),
}

impl Uncharged {
    /// Numbers of those whom the ledger knows.
    fn numbers(&self) -> &[Range<u64>] {
        match self {
            Self::Rows(_, rows) => rows,
            Self::Persons(persons) => &persons.numbers,
        }
    }

    fn count(&self) -> u64 {
        let new = match self {
            Self::Rows(..) => 0,
            Self::Persons(persons) => persons.new,
        };
        let known = self.numbers().iter().map(|rows| rows.end - rows.start);
        known.sum::<u64>() + new
    }
}

/// A report that is pending or refused, which is to be sent before another one is made.
#[derive(Clone, Debug, PartialEq)]
struct Unsent {
    row: u64,
    /// Rows, or persons, that it counts for.
    units: u64,
    /// The stored token with which it is sent.
    token: Option<ParticipantToken>,
}

/// A site's table, admitted by [`RowLedger::admit_site`]; nothing is stored yet.
pub struct AdmittedTable<'a> {
    /// The study's reports in the ledger; refused ones that the request sends again are pending.
    pub counts: RowCounts,
    /// The charge of each row, or person.
    pub cost: Budget,
    pub(crate) study: &'a SiteStudy,
    pub(crate) request: &'a SiteUploadRequest,
    table: &'a dyn SiteTable,
    uncharged: Uncharged,
    /// Persons whom the ledger knows, if none of the table's is among them.
    known_others: u64,
    /// `None`: no report is made.
    shares: Option<RowShares>,
    /// The report that is still to be sent; none if one is made.
    unsent: Option<Unsent>,
    moved: bool,
    limits: Limits,
    sum: Option<TableSum>,
}

impl RowLedger {
    /// Checks the whole upload of a site's table but for what its server says of the token
    /// ([`AdmittedTable::check_token`]), and stores nothing. While an earlier report of the study is pending or
    /// refused, that one is to be sent, with the token that is given, and none is made.
    ///
    /// # Errors
    /// Those of [`admit_upload`](Self::admit_upload), except for tokens. Before a new report: `token-required`;
    /// `invalid-request` for a table beyond the terms of the study; `usage` for several tokens and for fewer rows than
    /// `min_rows`. `usage` for another site than before, and where the ledger knows rows and the table says whose they
    /// are, or the other way round; `usage` for a known number in another spelling.
    pub fn admit_site<'a>(
        &self,
        study: &'a SiteStudy,
        table: &'a dyn SiteTable,
        request: &'a SiteUploadRequest,
    ) -> Result<AdmittedTable<'a>> {
        let upload = &request.upload;
        let uncharged = self.uncharged_of(study.id(), table, upload)?;
        let unfinished = self.counts(study)?;
        let is_new = uncharged.count() > 0 && unfinished.pending + unfinished.refused == 0;
        let admitted = self.admit_study(study, upload, is_new)?;
        self.check_site(
            study,
            admitted.known.as_ref().map(|known| known.number),
            request,
        )?;
        if let Uncharged::Rows(file, _) = &uncharged {
            self.check_no_persons()?;
            if let Some(known) = &admitted.known {
                self.check_settings(known, file)?;
            }
            self.check_file(file)?;
        }
        let mut counts = admitted.counts;
        let requeued = match &upload.tokens {
            _ if upload.resend_refused => counts.refused,
            Some(_) => self.refused_for_tokens(study)?,
            None => 0,
        };
        counts.pending += requeued;
        counts.refused -= requeued;
        let cost = charge(study.id(), study.parameters(), &study.privacy())?;
        let shares = is_new.then(|| shares_of(study, table, &uncharged));
        if let Some(shares) = &shares {
            request.check_new(study, shares)?;
            self.check_charges(study, admitted.limits, cost, &uncharged)?;
        }
        let known_others = match &uncharged {
            Uncharged::Persons(persons) if persons.are_all_new() => self.known_persons()?,
            _ => 0,
        };
        Ok(AdmittedTable {
            counts,
            cost,
            study,
            request,
            table,
            uncharged,
            known_others,
            unsent: self.unsent(study)?,
            shares,
            moved: admitted.moved,
            limits: admitted.limits,
            sum: None,
        })
    }

    fn uncharged_of(
        &self,
        study: &str,
        table: &dyn SiteTable,
        upload: &UploadRequest,
    ) -> Result<Uncharged> {
        if let Some(persons) = table.persons() {
            if persons.rows() != table.row_count() {
                return Err(Error::usage(format!(
                    "there are {} identifiers for {} rows; give one for each",
                    persons.rows(),
                    table.row_count()
                )));
            }
            return Ok(Uncharged::Persons(self.uncharged(study, persons)?));
        }
        let rows = table.row_count() as u64;
        let mut file = self.row_file(rows, &table.identity(), &table.settings_digest())?;
        file.same_participants = upload.same_participants;
        Ok(Uncharged::Rows(file, self.missing(study, rows)?))
    }

    /// Refuses another site than the one whose reports to this study the ledger has.
    fn check_site(
        &self,
        study: &SiteStudy,
        number: Option<i64>,
        request: &SiteUploadRequest,
    ) -> Result<()> {
        let site = &request.site;
        if site.trim().is_empty() {
            return Err(Error::usage(
                "`site` is empty; give the name of the site, as its token has it",
            ));
        }
        let Some(number) = number else {
            return Ok(());
        };
        match self.site_of(number)? {
            Some(before) if before.name != *site => Err(Error::usage(format!(
                "this ledger has the reports of site {:?} to study {}, not of {site:?}; give that name as `site`, or use another ledger",
                before.name,
                study.id()
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a study that would exceed a limit of a row or a person.
    fn check_charges(
        &self,
        study: &SiteStudy,
        limits: Limits,
        cost: Budget,
        uncharged: &Uncharged,
    ) -> Result<()> {
        let whom = |rows: &Range<u64>| match uncharged {
            Uncharged::Rows(..) => named_rows(rows),
            Uncharged::Persons(_) => "some persons".to_owned(),
        };
        self.check_limits(limits, study, cost, uncharged.numbers(), whom)?;
        // Somebody whom the ledger does not know has spent nothing.
        limits.check(&[], cost).map_err(|exceeded| {
            exceeded.to_error(
                "taking part in",
                study.id(),
                "this ledger lets a row spend",
                "whoever is responsible for the rows",
            )
        })
    }

    /// Stores what the request asks for and then, if the table is to have a report, draws its noise: charges, report
    /// and token are one write. Returns how many rows or persons were charged.
    ///
    /// # Errors
    /// Those of [`admit_site`](Self::admit_site); `changed` if somebody else has charged some of them since;
    /// `randomness-unavailable`; the ledger could not be written.
    pub fn take_part_as_site(&mut self, mut table: AdmittedTable<'_>) -> Result<u64> {
        let (study, request) = (table.study, table.request);
        self.apply(study, &request.upload, table.moved, table.limits)?;
        if let (Some(unsent), Some(token)) = (&table.unsent, request.token()) {
            self.set_tokens(study, [(unsent.row, token)])?;
        }
        if table.shares.is_none() {
            return Ok(0);
        }
        let again = self.admit_site(study, table.table, request)?;
        if again.uncharged != table.uncharged {
            return Err(Error::changed(
                "some of the table's rows were charged since it was admitted; nothing was charged or sent: run it again",
            ));
        }
        let Some(sum) = table.sum.take() else {
            return Err(Error::usage(
                "the table was not summed up before its report",
            ));
        };
        let now = Error::check_clock(self.clock.unix_ms())?;
        let report = Report {
            id: ReportId::from_parts(now, random_bytes()?),
            fingerprint: study.fingerprint(),
            payload: sum.perturb()?,
        };
        self.store_site_report(&table, &report, now)
    }

    /// Charges the table's rows or persons, and stores its report with its token. Returns how many were charged.
    fn store_site_report(
        &mut self,
        table: &AdmittedTable<'_>,
        report: &Report,
        now: u64,
    ) -> Result<u64> {
        let (study, request) = (table.study, table.request);
        let known = self.known(study.id())?.map(|known| known.number);
        let day = UtcDate::from_unix_ms(now).0;
        self.store.write(|ledger| {
            let number = match known {
                Some(number) => number,
                None => {
                    let number = insert_study(ledger, study, &study.privacy(), now)?;
                    ledger.execute(
                        "INSERT INTO site (study, name) VALUES (?1, ?2)",
                        params![number, request.site],
                    )?;
                    number
                }
            };
            let charged = match (&table.uncharged, table.table.persons()) {
                (Uncharged::Persons(uncharged), Some(persons)) => {
                    uncharged.insert(ledger, persons)?
                }
                (Uncharged::Rows(file, rows), _) => {
                    insert_file(ledger, number, file)?;
                    rows.clone()
                }
                (Uncharged::Persons(_), None) => Vec::new(),
            };
            let mut units = 0;
            for rows in &charged {
                insert_charge(ledger, number, rows.start, rows.end - rows.start)?;
                units += rows.end - rows.start;
            }
            let key = key(number, charged.first().map_or(0, |rows| rows.start));
            ledger.execute(
                "INSERT INTO report (key, id, state) VALUES (?1, ?2, ?3)",
                params![key, report.id.0, PENDING],
            )?;
            ledger.execute(
                "INSERT INTO payload (key, bytes) VALUES (?1, ?2)",
                params![key, report.payload],
            )?;
            ledger.execute(
                "INSERT INTO site_report (key, units, day) VALUES (?1, ?2, ?3)",
                params![key, units, day],
            )?;
            if let Some(token) = request.token() {
                ledger.execute(
                    "INSERT INTO token (key, bytes) VALUES (?1, ?2)",
                    params![key, token.as_bytes()],
                )?;
            }
            Ok(units)
        })
    }

    /// The report of the study that is pending or refused: there is one at most.
    fn unsent(&self, study: &SiteStudy) -> Result<Option<Unsent>> {
        let has_sites = self.has_sites()?;
        let Some(known) = self.known(study.id())?.filter(|_| has_sites) else {
            return Ok(None);
        };
        self.store.first(
            "SELECT s.key, s.units, t.bytes FROM site_report AS s
             JOIN report AS r ON r.key = s.key LEFT JOIN token AS t ON t.key = s.key
             WHERE s.key >= ?1 AND s.key < ?2 AND r.state IN (?3, ?4)",
            [
                key(known.number, 0),
                key(known.number + 1, 0),
                PENDING,
                REFUSED,
            ],
            |row| {
                Ok(Unsent {
                    row: row_of(row.get(0)?),
                    units: row.get(1)?,
                    token: row
                        .get::<_, Option<_>>(2)?
                        .map(ParticipantToken::from_bytes),
                })
            },
        )
    }

    /// The site that reports to the study with this number, as the ledger has it; `None` for a study of single rows.
    pub(super) fn site_of(&self, study: i64) -> Result<Option<SiteRecord>> {
        if !self.has_sites()? {
            return Ok(None);
        }
        let query = "SELECT name FROM site WHERE study = ?1";
        let Some(name) = self.store.first(query, [study], |row| row.get(0))? else {
            return Ok(None);
        };
        let reports = self.store.all(
            "SELECT r.id, s.units, s.day, r.state, f.code, f.detail FROM site_report AS s
             JOIN report AS r ON r.key = s.key LEFT JOIN refusal AS f ON f.key = s.key
             WHERE s.key >= ?1 AND s.key < ?2 ORDER BY s.day, s.key",
            [key(study, 0), key(study + 1, 0)],
            |row| {
                Ok(SiteReportRecord {
                    report: ReportId(row.get(0)?).to_string(),
                    units: row.get(1)?,
                    day: UtcDate(row.get(2)?).to_string(),
                    state: match (row.get::<_, i64>(3)?, row.get(4)?, row.get(5)?) {
                        (ACKNOWLEDGED, _, _) => EntryState::Acknowledged,
                        (GIVEN_UP, _, _) => EntryState::GivenUp,
                        (_, Some(code), Some(detail)) => EntryState::Refused { code, detail },
                        _ => EntryState::Pending,
                    },
                })
            },
        )?;
        Ok(Some(SiteRecord { name, reports }))
    }
}

impl SiteUploadRequest {
    /// The token for a new report, which [`RowLedger::admit_site`] requires.
    fn token(&self) -> Option<&ParticipantToken> {
        self.upload.tokens.as_deref()?.first()
    }

    /// Refuses a table that this study or this site does not want as a new report.
    fn check_new(&self, study: &SiteStudy, shares: &RowShares) -> Result<()> {
        let terms = study.params().terms();
        terms.check_table(shares)?;
        let (units, unit) = (shares.units() as u64, terms.unit());
        if let Some(least) = self.min_rows.filter(|least| units < *least) {
            return Err(Error::usage(format!(
                "the table has {units} {unit}, and the site wants at least {least} (`min_rows`); nothing was charged or sent. Epsilon does not cover this answer: whoever learns of it learns that there are fewer"
            )));
        }
        match self.upload.tokens.as_deref().unwrap_or_default().len() {
            1 => Ok(()),
            0 => Err(SharedError::new(
                ErrorCode::TokenRequired,
                "a new report needs a one-time token of the site, and there is none; whoever runs the study makes it. Nothing was charged",
            )
            .into()),
            count => Err(Error::usage(format!(
                "there are {count} tokens, and a table makes one report; give one token. Nothing was charged"
            ))),
        }
    }
}

/// The shares of the rows that are charged now.
fn shares_of(study: &SiteStudy, table: &dyn SiteTable, uncharged: &Uncharged) -> RowShares {
    match (uncharged, table.persons()) {
        (Uncharged::Persons(uncharged), Some(persons)) => {
            let cap = study.params().terms().rows_per_person;
            // In a study that protects rows a table with persons is refused, whatever its shares are.
            RowShares::of_some_persons(uncharged.of_rows(persons), cap.unwrap_or(1))
        }
        _ => RowShares::of_rows(table.row_count()),
    }
}

impl AdmittedTable<'_> {
    /// The token that is given for a new report, or in place of the one that the report that is still to be sent has;
    /// `None` if none is to be stored.
    pub fn token(&self) -> Option<&ParticipantToken> {
        let token = self.request.token()?;
        let is_new = match &self.unsent {
            Some(unsent) => unsent.token.as_ref() != Some(token),
            None => self.shares.is_some(),
        };
        is_new.then_some(token)
    }

    /// Refuses a token of another site, one that was used, and one for smaller tables, before anything is stored.
    ///
    /// # Errors
    /// `usage`; `token-spent`.
    pub fn check_token(&self, found: &SiteToken) -> Result<()> {
        let nothing = "nothing was charged or sent";
        let unit = self.study.params().terms().unit();
        let (subject, units, without) = match &self.unsent {
            Some(unsent) => (
                "the report that is still to be sent",
                unsent.units,
                ", or leave `tokens` out: the report has one",
            ),
            None => ("the table", self.counts().charged, ""),
        };
        if found.site != self.request.site {
            return Err(Error::usage(format!(
                "the token is that of site {:?}, not of {:?} (`site`); {nothing}: give the token of this site",
                found.site, self.request.site
            )));
        }
        if found.spent {
            return Err(SharedError::new(
                ErrorCode::TokenSpent,
                format!(
                    "the token of {:?} was used for another report; {nothing}: ask whoever runs the study for another one, as each report needs its own",
                    found.site
                ),
            )
            .into());
        }
        if units > found.max_rows {
            return Err(Error::usage(format!(
                "{subject} has {units} {unit}, and the token of {:?} is for at most {}; {nothing}: ask whoever runs the study for a token for more{without}",
                found.site, found.max_rows
            )));
        }
        Ok(())
    }

    /// Sums up the rows that are to be charged, on all cores; nothing is stored, and nothing leaves. `progress` gets the
    /// number of rows that were read, several times a second; if it breaks, the result is false.
    ///
    /// # Errors
    /// Those of the table; `wrong-dimension`. None depends on a value of a row.
    pub fn sum(&mut self, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<bool> {
        let Some(shares) = &self.shares else {
            return Ok(true);
        };
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let (table, params) = (self.table, self.study.params());
        let rows = |numbers: Range<usize>| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::usage("the sum of the table was stopped"));
            }
            let count = numbers.len() as u64;
            let rows = table.rows(numbers)?;
            done.fetch_add(count, Ordering::Relaxed);
            Ok(rows)
        };
        let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let summed = thread::scope(|scope| {
            let (ended, receiver) = mpsc::channel::<()>();
            let work = scope.spawn(move || {
                // Dropped at the end, which the receiver notices.
                let _ended = ended;
                params.sum_blocks(shares, threads, rows)
            });
            while receiver.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if progress(done.load(Ordering::Relaxed)).is_break() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            work.join()
        });
        let summed = match summed {
            Ok(summed) => summed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.sum = Some(summed?);
        Ok(true)
    }

    /// Counts of the table that would be sent. **For the site only.**
    pub fn counts(&self) -> TableCounts {
        let rows = self.table.row_count() as u64;
        let Some(shares) = &self.shares else {
            return TableCounts {
                rows,
                waiting: self.uncharged.count(),
                ..TableCounts::default()
            };
        };
        let charged_before = match (&self.uncharged, self.table.persons()) {
            (Uncharged::Persons(uncharged), Some(persons)) => {
                let persons = uncharged.of_rows(persons);
                persons.filter(Option::is_none).count()
            }
            _ => 0,
        };
        TableCounts {
            rows,
            charged: shares.units() as u64,
            charged_before: charged_before as u64,
            beyond_cap: shares.beyond_cap() as u64,
            unusable: self.sum.as_ref().map_or(0, TableSum::unusable) as u64,
            waiting: 0,
            known_others: self.known_others,
        }
    }
}

/// Nothing of the table.
impl std::fmt::Debug for AdmittedTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdmittedTable({:?})", self.study)
    }
}
