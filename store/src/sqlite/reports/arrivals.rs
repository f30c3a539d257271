//! Reports received over time: counts that get coarser with age, so that they are few and reveal little.

use eigenveil_shared::Result;
use rusqlite::{Connection, Transaction, params};

use crate::contract::{arrivals::ArrivalCount, failure::Failure, study::StudyKey};

const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;
/// Minutes are rolled up into hours at the first age, hours into days at the second.
const ROLLUPS: [(u64, u64, u64); 2] = [(MINUTE, HOUR, 2 * HOUR), (HOUR, DAY, 14 * DAY)];

/// Counts the reports of a commit. The first commit of a minute rolls up old counts.
pub(crate) fn count(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    now_s: u64,
    reports: u64,
) -> Result<(), Failure> {
    // SQLite's integers are signed.
    let now_s = now_s.min(i64::MAX as u64);
    let minute = now_s - now_s % MINUTE;
    let counted = transaction
        .prepare_cached(
            "UPDATE arrivals SET n = n + ? WHERE study_pk = ? AND seconds = 60 AND start = ?",
        )?
        .execute(params![reports, study_pk, minute])?;
    if counted > 0 {
        return Ok(());
    }
    transaction.execute(
        "INSERT INTO arrivals (study_pk, seconds, start, n) VALUES (?, 60, ?, ?)",
        params![study_pk, minute, reports],
    )?;
    for (fine, coarse, age) in ROLLUPS {
        // Whole intervals only: a coarse one and its parts never exist together.
        let until = now_s.saturating_sub(age) / coarse * coarse;
        transaction.execute(
            "INSERT INTO arrivals (study_pk, seconds, start, n)
             SELECT study_pk, ?1, start / ?1 * ?1, sum(n) FROM arrivals
             WHERE study_pk = ?2 AND seconds = ?3 AND start < ?4 GROUP BY start / ?1
             ON CONFLICT DO UPDATE SET n = n + excluded.n",
            params![coarse, study_pk, fine, until],
        )?;
        transaction.execute(
            "DELETE FROM arrivals WHERE study_pk = ? AND seconds = ? AND start < ?",
            params![study_pk, fine, until],
        )?;
    }
    Ok(())
}

pub(crate) fn read(
    connection: &Connection,
    study_pk: StudyKey,
) -> Result<Vec<ArrivalCount>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT seconds, start, n FROM arrivals WHERE study_pk = ? ORDER BY start",
    )?;
    let rows = statement.query_map([study_pk], |row| {
        Ok(ArrivalCount {
            seconds: row.get(0)?,
            start: row.get(1)?,
            n: row.get(2)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_get_coarser_and_none_is_lost() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE arrivals (study_pk INTEGER, seconds INTEGER, start INTEGER, n INTEGER,
                 PRIMARY KEY (study_pk, seconds, start))",
            )
            .unwrap();
        let transaction = connection.transaction().unwrap();
        let [first, second] = [1, 2].map(StudyKey);
        // Ninety days, a report every seven minutes, starting at an odd second.
        let begin = 1_700_000_123;
        let times: Vec<u64> = (0..90 * DAY / 420).map(|i| begin + i * 420).collect();
        for &now in &times {
            count(&transaction, first, now, 1).unwrap();
        }
        count(&transaction, second, begin, 5).unwrap();
        let counts = read(&transaction, first).unwrap();
        let total: u64 = counts.iter().map(|arrivals| arrivals.n).sum();
        assert_eq!(total, times.len() as u64);
        // Minutes, hours and days: at most 3 h, 15 d and the rest.
        assert!(counts.len() <= 3 * 60 + 15 * 24 + 92, "{}", counts.len());
        for pair in counts.windows(2) {
            assert!(pair[0].start + pair[0].seconds <= pair[1].start, "{pair:?}");
        }
        assert_eq!(counts[0].seconds, DAY);
        assert_eq!(counts[counts.len() - 1].seconds, MINUTE);
        assert_eq!(read(&transaction, second).unwrap()[0].n, 5);
    }
}
