//! The persons of a site's tables: a ledger knows them by hashes of their identifiers, whatever the order of a table.

use std::{collections::HashMap, ops::Range};

use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};

use super::ledger::RowLedger;
use crate::error::{Error, Result};

/// A person's identifier under the salt of one ledger.
type PersonHash = [u8; 32];

/// Whose each row of a table is. It holds hashes that only its ledger can compute, 32 bytes for each person, and no
/// identifier. Made by [`RowLedger::site_persons`].
pub struct SitePersons {
    salt: [u8; 32],
    numbers_of: fn(&str) -> Vec<String>,
    /// The persons, numbered by their first row.
    numbers: HashMap<PersonHash, usize>,
    /// Hashes of a number and of an identifier that can mean it, but is spelled otherwise.
    spellings: Vec<(PersonHash, PersonHash)>,
    of_rows: Vec<usize>,
}

impl SitePersons {
    /// Adds the next row, which belongs to the person with this identifier.
    pub fn push(&mut self, identifier: &str) {
        let salt = self.salt;
        let hash = salted(&salt, identifier);
        let count = self.numbers.len();
        let person = *self.numbers.entry(hash).or_insert(count);
        if person == count {
            let numbers = (self.numbers_of)(identifier).into_iter();
            let others = numbers.filter(|number| number != identifier);
            let others = others.map(|number| (salted(&salt, &number), hash));
            self.spellings.extend(others);
        }
        self.of_rows.push(person);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.of_rows.len()
    }

    /// Number of persons.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }
}

fn salted(salt: &[u8; 32], text: &str) -> PersonHash {
    let hash = Sha256::new().chain_update(salt).chain_update(text);
    hash.finalize().into()
}

/// The number of persons alone.
impl std::fmt::Debug for SitePersons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SitePersons({})", self.count())
    }
}

/// A person as a ledger knows them, as far as one study is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Charged for the study.
    Charged,
    /// Not charged for the study, with this number in the ledger.
    Uncharged(u64),
    /// Not in the ledger.
    New,
}

/// The persons of a table whom a ledger has not charged for a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnchargedPersons {
    /// Each person of the table.
    known: Vec<Known>,
    /// Numbers of those whom the ledger knows, ascending.
    pub(super) numbers: Vec<Range<u64>>,
    /// Number of those whom it does not know.
    pub(super) new: u64,
}

impl UnchargedPersons {
    /// Whether the ledger knows none of the persons of the table.
    pub(super) fn are_all_new(&self) -> bool {
        self.new == self.known.len() as u64
    }

    /// The person of each row, in the table's own numbering; `None` if the person was charged.
    pub(super) fn of_rows<'a>(
        &'a self,
        persons: &'a SitePersons,
    ) -> impl Iterator<Item = Option<usize>> + 'a {
        let persons = persons.of_rows.iter();
        persons.map(|person| (self.known[*person] != Known::Charged).then_some(*person))
    }

    /// Stores the new persons, and gives the numbers of all whom this charges, ascending.
    pub(super) fn insert(
        &self,
        ledger: &Connection,
        persons: &SitePersons,
    ) -> rusqlite::Result<Vec<Range<u64>>> {
        let next: u64 = ledger.query_row("SELECT count(*) FROM person", [], |row| row.get(0))?;
        let mut number = next;
        let mut insert =
            ledger.prepare_cached("INSERT INTO person (hash, number) VALUES (?1, ?2)")?;
        for (hash, person) in &persons.numbers {
            if self.known[*person] == Known::New {
                insert.execute(params![hash, number])?;
                number += 1;
            }
        }
        let mut spellings = 0;
        let mut insert = ledger
            .prepare_cached("INSERT OR IGNORE INTO spelling (number, person) VALUES (?1, ?2)")?;
        // Of those whom an earlier program has stored, too.
        for (spelled, hash) in &persons.spellings {
            spellings += insert.execute(params![spelled, hash])? as u64;
        }
        ledger.execute(
            "UPDATE file_state SET row_count = row_count + ?1",
            [number - next + spellings],
        )?;
        let mut numbers = self.numbers.clone();
        if next < number {
            numbers.push(next..number);
        }
        Ok(numbers)
    }
}

impl RowLedger {
    /// The persons of a table of which no row is read yet, for [`SitePersons::push`]. `numbers_of` gives the numbers
    /// that an identifier can mean, as `eigenveil_tables::numbers_of` does: a later table that spells a known one
    /// otherwise (`7.0` after `7`) is refused. What one table may spell in two ways is up to whoever reads its column.
    pub fn site_persons(&self, numbers_of: fn(&str) -> Vec<String>) -> Result<SitePersons> {
        Ok(SitePersons {
            salt: self.salt()?,
            numbers_of,
            numbers: HashMap::new(),
            spellings: Vec::new(),
            of_rows: Vec::new(),
        })
    }

    /// Number of persons that the ledger knows.
    pub(super) fn known_persons(&self) -> Result<u64> {
        if !self.has_sites()? {
            return Ok(0);
        }
        self.store
            .one("SELECT count(*) FROM person", [], |row| row.get(0))
    }

    /// Whether the file has the tables of sites: before its first change one of an earlier layout may have none.
    pub(super) fn has_sites(&self) -> Result<bool> {
        let query = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'spelling')";
        self.store.one(query, [], |row| row.get(0))
    }

    /// The persons among these whom the ledger has not charged for this study.
    ///
    /// # Errors
    /// `usage` if the ledger knows rows by their place, or a number among the identifiers in another spelling.
    pub(super) fn uncharged(&self, study: &str, persons: &SitePersons) -> Result<UnchargedPersons> {
        let known_persons = self.known_persons()?;
        if known_persons == 0 && self.has_files()? {
            return Err(self.other_participants(
                "knows participants by the place of their row, and this table says whose its rows are",
            ));
        }
        if known_persons > 0 {
            self.check_spellings(persons)?;
        }
        let uncharged_ranges = self.missing(study, known_persons)?;
        let is_uncharged = |number: u64| {
            let at = uncharged_ranges.partition_point(|range| range.end <= number);
            uncharged_ranges
                .get(at)
                .is_some_and(|range| range.start <= number)
        };
        let mut known = vec![Known::New; persons.count()];
        let mut numbers = Vec::new();
        for (hash, person) in persons.numbers.iter().filter(|_| known_persons > 0) {
            let query = "SELECT number FROM person WHERE hash = ?1";
            let number: Option<u64> = self.store.first(query, [hash], |row| row.get(0))?;
            known[*person] = match number {
                None => Known::New,
                Some(number) if is_uncharged(number) => {
                    numbers.push(number);
                    Known::Uncharged(number)
                }
                Some(_) => Known::Charged,
            };
        }
        let new = known.iter().filter(|known| **known == Known::New).count();
        Ok(UnchargedPersons {
            numbers: ranges_of(numbers),
            new: new as u64,
            known,
        })
    }

    /// Refuses a number by which the ledger knows somebody in another spelling: it would be another person. Whoever is
    /// known as spelled is not: one column may tell 12.1 and 12.10 apart.
    fn check_spellings(&self, persons: &SitePersons) -> Result<()> {
        let query = "SELECT NOT EXISTS (SELECT 1 FROM person WHERE hash = ?2)
             AND (EXISTS (SELECT 1 FROM person WHERE hash = ?1) OR EXISTS (SELECT 1 FROM spelling WHERE number = ?1))";
        let as_spelled = persons.numbers.keys().map(|hash| (hash, hash));
        let otherwise = persons
            .spellings
            .iter()
            .map(|(number, hash)| (number, hash));
        let mut respelled: Option<usize> = None;
        for (number, hash) in as_spelled.chain(otherwise) {
            if self.store.one(query, [number, hash], |row| row.get(0))? {
                let person = persons.numbers[hash];
                respelled = Some(respelled.map_or(person, |first| first.min(person)));
            }
        }
        let row =
            respelled.and_then(|first| persons.of_rows.iter().position(|person| *person == first));
        match row {
            None => Ok(()),
            Some(row) => Err(Error::usage(format!(
                "row {} has the number of a person of an earlier table in another spelling, as 7.0 and 7, and would be charged as somebody else: nothing was charged or sent; write the identifiers as that table has them; somebody else needs an identifier that is no number",
                row + 1
            ))),
        }
    }

    /// Refuses rows that are known by their place in a ledger that knows persons.
    pub(super) fn check_no_persons(&self) -> Result<()> {
        match self.known_persons()? {
            0 => Ok(()),
            _ => Err(self.other_participants(
                "knows persons by their identifiers, and this table does not say whose its rows are",
            )),
        }
    }

    fn other_participants(&self, why: &str) -> Error {
        Error::usage(format!(
            "the ledger {} {why}: nothing was charged. Use the other kind of table, or another ledger, whose limits do not know what these have spent",
            self.path().display()
        ))
    }

    fn has_files(&self) -> Result<bool> {
        self.store
            .one("SELECT EXISTS (SELECT 1 FROM file)", [], |row| row.get(0))
    }
}

/// These numbers as ranges, ascending.
fn ranges_of(mut numbers: Vec<u64>) -> Vec<Range<u64>> {
    numbers.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_ranges() {
        assert_eq!(ranges_of(vec![7, 3, 4, 0, 5]), [0..1, 3..6, 7..8]);
        assert!(ranges_of(Vec::new()).is_empty());
    }
}
