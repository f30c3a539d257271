//! Layout 1 of a device's ledger, which had columns for each part of an entry, and its upgrade to records.

use super::{
    file::LockedFile,
    records::{RECORDS, put},
};
use crate::{book::Book, error::Result};

const CONSISTENCY_CHECK: &str = "row_count = (SELECT count(*) FROM entry)
    AND (SELECT count(*) FROM entry WHERE state <> 1) = (SELECT count(*) FROM payload)
    AND NOT EXISTS (SELECT 1 FROM payload JOIN entry USING (number) WHERE state = 1)";

/// Its contents as records. (SQLite writes 17 digits of a number, which are read as the same number.)
const AS_RECORDS: &str = "
    SELECT 'head', CAST(json_object('version', 1, 'revision', lower(hex(revision)),
        'limits', json_object('epsilon_per_study', epsilon_per_study, 'epsilon_total', epsilon_total,
            'delta_total', delta_total),
        'entries', row_count) AS BLOB)
    FROM limits, file_state
    UNION ALL SELECT 'entry/' || number, CAST(json_object('number', number,
        'servers', json((SELECT json_group_array(server ORDER BY id) FROM
            (SELECT 0 AS id, entry.server UNION ALL SELECT id, server FROM moved WHERE number = entry.number))),
        'study', study, 'fingerprint', lower(hex(fingerprint)), 'payload_len', payload_len,
        'mechanism', mechanism, 'dimension', dimension, 'neighbours', neighbours, 'sentence', sentence,
        'charge', json_object('epsilon', epsilon, 'delta', delta), 'day', day, 'report', lower(hex(report)),
        'state', json(CASE state WHEN 0 THEN '\"owed\"' WHEN 1 THEN '\"acknowledged\"'
            ELSE json_object('refused', json_object('code', code, 'detail', detail)) END),
        'token', (SELECT lower(hex(bytes)) FROM token WHERE token.number = entry.number),
        'name', name, 'about', json_object('purpose', purpose, 'responsible_party', responsible_party,
            'contact', contact, 'last_day', date(last_day * 86400, 'unixepoch')),
        'canonical_params', lower(hex(canonical_params))) AS BLOB)
    FROM entry JOIN study_terms USING (number)
    UNION ALL SELECT 'payload/' || number, bytes FROM payload";

/// Drops tables before those that they refer to.
const DROP: &str = "
    DROP TABLE payload; DROP TABLE token; DROP TABLE entry;
    DROP TABLE study_terms; DROP TABLE moved; DROP TABLE limits;
    UPDATE file_state SET row_count = 0;
    PRAGMA user_version = 2;
";

/// Upgrades to layout 2.
pub(super) fn to_records(file: &mut LockedFile) -> Result<()> {
    file.check_consistent(CONSISTENCY_CHECK)?;
    let records = file.all(AS_RECORDS, [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
    })?;
    // Written anew, as every later change writes them.
    let book = Book::load_with(records.clone(), |detail| file.damaged_error(detail))?;
    let mut write = book.write_all()?;
    let payloads = |(key, _): &(String, Vec<u8>)| key.starts_with("payload/");
    write.put.extend(records.into_iter().filter(payloads));
    file.write(|file| {
        file.execute_batch(DROP)?;
        file.execute_batch(RECORDS)?;
        Ok(put(file, &write)?)
    })
}
