//! Studies and whole stores as files: export, import, merge, backup.

use std::{fs::File, sync::Arc};

use eigenveil_shared::{
    Result,
    api::{ImportOutcome, StudyState},
    error,
};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{
    Sqlite, buckets, checksum::verify, database_files::detach_copy, recent, rows, schema, seeds,
    site_reports,
};
use crate::{
    config::StoreConfig,
    contract::{
        archive::{self, ArchiveItem, ArchiveWriter, Header},
        decide,
        engine::{Engine as _, Pending, Transfer},
        failure::{Failure, unavailable},
        participant_token::SiteRoom,
        study::{Study, StudyId, state_from},
        sums::decode_sum,
        transfer::{Imported, VerifiedExport, rewind},
    },
};

impl Transfer for Sqlite {
    fn export(&self, study: &Study) -> Result<File> {
        let write = || -> Result<File, Failure> {
            let file = self.unnamed_file()?;
            let mut connection = schema::open_for_reading(&self.database())?;
            let transaction = connection.transaction()?;
            rows::require(&transaction, study.key, study.id())?;
            export_to(&transaction, study, &file)?;
            Ok(file)
        };
        self.note_damage(write().and_then(rewind))
    }

    fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Pending<'_, Result<Imported>> {
        Box::pin(async move {
            let now = self.unix_ms();
            let config = self.config.clone();
            let studies = Arc::clone(&self.studies);
            let known = Arc::clone(&studies);
            let (imported, _) = self
                .write(
                    move |transaction| {
                        // Looked up on the writer thread: another import may create the study meanwhile.
                        let (target, known) = match into {
                            Some(study) => (study.id(), Some(study)),
                            None => (export.id, known.get(export.id)),
                        };
                        import_into(transaction, export, target, known, (now, &config))
                    },
                    move |(imported, total): &(Imported, u64), caches| {
                        caches.sums.evict(imported.study.key);
                        caches.recent.mark_stale();
                        imported.study.publish_count(*total);
                        if imported.outcome == ImportOutcome::Created {
                            studies.add(Arc::clone(&imported.study));
                        }
                    },
                )
                .await?;
            Ok(imported)
        })
    }

    fn backup(&self) -> Result<File> {
        let write = || -> Result<File, Failure> {
            let named = tempfile::Builder::new()
                .prefix(super::directory::TEMPORARY)
                .tempfile_in(self.directory.path())
                .map_err(Failure::file)?;
            let connection = schema::open_for_reading(&self.database())?;
            let path = named
                .path()
                .to_str()
                .ok_or_else(|| unavailable("the path of the data directory is not UTF-8"))?;
            connection.execute("VACUUM INTO ?", [path])?;
            // Complete without a write-ahead log, and usable anywhere.
            detach_copy(named.path())?;
            // Still open, but without a name from here on.
            named.reopen().map_err(Failure::file)
        };
        write().and_then(rewind).map_err(Failure::into_error)
    }

    fn temporary_file(&self) -> Result<File> {
        self.unnamed_file().map_err(Failure::into_error)
    }
}

impl Sqlite {
    fn unnamed_file(&self) -> Result<File, Failure> {
        tempfile::tempfile_in(self.directory.path()).map_err(Failure::file)
    }

    fn database(&self) -> std::path::PathBuf {
        self.directory.database()
    }
}

fn export_to(connection: &Connection, study: &Study, file: &File) -> Result<(), Failure> {
    let (state, reports, has_identifiers): (String, u64, bool) = connection.query_row(
        "SELECT state, reports_accepted, identifiers_kept FROM studies WHERE study_pk = ?",
        [study.key],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let indexed: u64 = connection.query_row(
        "SELECT count(*) FROM report_ids WHERE study_pk = ?",
        [study.key],
        |row| row.get(0),
    )?;
    let recent = recent::of_study(connection, study.key)?;
    let has_all = has_identifiers && indexed + recent.len() as u64 == reports;
    decide::has_identifiers(study.id(), has_all, decide::EXPORT_INSTEAD)?;
    let seeds = study.has_seeds();
    // A study of sites has no rows in either.
    let sizes = if seeds {
        "SELECT bucket, sum(n) FROM seeds WHERE study_pk = ? GROUP BY bucket ORDER BY bucket"
    } else {
        "SELECT bucket, n FROM buckets WHERE study_pk = ? ORDER BY bucket"
    };
    let sizes: Vec<(u32, u64)> = connection
        .prepare(sizes)?
        .query_map([study.key], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let header = Header::of(study, state_from(&state)?, reports, sizes.len());
    let mut archive = ArchiveWriter::new(file, study.params().unit(), &header)?;
    let mut statement =
        connection.prepare("SELECT id FROM report_ids WHERE study_pk = ? ORDER BY id")?;
    let mut rows = statement.query([study.key])?;
    let mut recent = recent.iter().peekable();
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        while let Some(earlier) = recent.next_if(|earlier| **earlier < id) {
            archive.put(earlier)?;
        }
        archive.put(&id)?;
    }
    for id in recent {
        archive.put(id)?;
    }
    let mut statement = connection.prepare(if seeds {
        "SELECT commit_seq, seeds, checksum FROM seeds WHERE study_pk = ? AND bucket = ? ORDER BY commit_seq"
    } else {
        "SELECT n, sum, checksum FROM buckets WHERE study_pk = ? AND bucket = ?"
    })?;
    let per_sum = 8 * eigenveil_shared::packed::packed_len(study.params().sum_dimension()) as u64;
    for (bucket, n) in sizes {
        archive.section(bucket, n, if seeds { 16 * n } else { per_sum })?;
        let mut rows = statement.query(params![study.key, bucket])?;
        while let Some(row) = rows.next()? {
            let bytes = row.get_ref(1)?.as_blob().map_err(Failure::damaged)?;
            verify(study.key, bucket, row.get(0)?, bytes, row.get(2)?)?;
            archive.put(bytes)?;
        }
    }
    site_reports::read(connection, study.key, |site, payload| {
        archive.report(site, payload)
    })?;
    archive.finish()
}

fn import_into(
    transaction: &Transaction<'_>,
    export: VerifiedExport,
    target: StudyId,
    known: Option<Arc<Study>>,
    (now, config): (u64, &StoreConfig),
) -> Result<(Imported, u64), Failure> {
    let VerifiedExport {
        file,
        header,
        design,
        sha256,
        ..
    } = export;
    let created = known.is_none();
    let study = match known {
        Some(study) => {
            rows::require(transaction, study.key, target)?;
            decide::may_merge(&study, &design)?;
            study
        }
        None => {
            let pk = rows::insert(transaction, target, &design, header.created_at_ms)?;
            Arc::new(Study::new(pk, target, design, header.created_at_ms))
        }
    };
    let pk = study.key;
    let (before, commit_seq, has_identifiers): (u64, u64, bool) = transaction.query_row(
        "SELECT reports_accepted, commit_seq, identifiers_kept FROM studies WHERE study_pk = ?",
        [pk],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let seen: Option<()> = transaction
        .query_row(
            "SELECT 1 FROM imports WHERE study_pk = ? AND sha256 = ?",
            params![pk, sha256],
            |_| Ok(()),
        )
        .optional()?;
    let imported = |study, outcome, reports| Imported {
        study,
        outcome,
        reports,
    };
    if seen.is_some() {
        return Ok((imported(study, ImportOutcome::AlreadyImported, 0), before));
    }
    decide::has_identifiers(target, has_identifiers, decide::IMPORT_INSTEAD)?;
    let total = before + header.reports;
    if let Some(room) = SiteRoom::of(&study, config) {
        room.check_reports(total)?;
    }
    let file = rewind(file)?;
    let (_, reader) = archive::read_header(&file)?;
    recent::move_all(transaction, pk)?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO report_ids (study_pk, id) VALUES (?, ?) ON CONFLICT DO NOTHING",
    )?;
    let mut next_commit = commit_seq;
    let mut overlap = 0_u64;
    let mut next_report = before;
    let read_again = reader.read_items(&header, study.params(), |item| match item {
        ArchiveItem::Identifier(id) => {
            overlap += u64::from(insert.execute(params![pk, id])? == 0);
            Ok(())
        }
        // The transaction will be rolled back.
        ArchiveItem::Section { .. } | ArchiveItem::Report { .. } if overlap > 0 => Ok(()),
        ArchiveItem::Report { site, payload } => {
            site_reports::append(transaction, pk, next_report, &site, &payload)?;
            next_report += 1;
            Ok(())
        }
        ArchiveItem::Section { bucket, n, bytes } => {
            // Buckets are exchangeable, so those of an export with more buckets can be mapped to fewer.
            let bucket = bucket % study.buckets();
            if study.has_seeds() {
                next_commit += seeds::append_chunks(transaction, pk, bucket, next_commit, &bytes)?;
            } else {
                let p = study.params().sum_dimension();
                let mut sums = buckets::read_sum(transaction, &study, bucket)?;
                sums.merge(&decode_sum(p, n, &bytes)?)?;
                if !sums.sum().as_slice().iter().all(|entry| entry.is_finite()) {
                    return Err(error!(
                        ImplausibleReport,
                        "with this export a sum of study {target} would not be finite; nothing was imported"
                    )
                    .into());
                }
                buckets::write_sum(transaction, &study, bucket, &sums, &mut Vec::new())?;
            }
            Ok(())
        }
    })?;
    decide::none_is_counted(target, overlap, header.reports)?;
    if read_again != sha256 {
        return Err(archive::malformed("its content, which changed while it was read").into());
    }
    transaction.execute(
        "UPDATE studies SET reports_accepted = ?, commit_seq = ? WHERE study_pk = ?",
        params![total, next_commit.max(commit_seq + 1), pk],
    )?;
    if created && header.state == StudyState::Closed {
        transaction.execute(
            "UPDATE studies SET closed_at_ms = ? WHERE study_pk = ?",
            params![now, pk],
        )?;
    }
    transaction.execute(
        "INSERT INTO imports (study_pk, sha256, reports, imported_at_ms) VALUES (?, ?, ?, ?)",
        params![pk, sha256, header.reports, now],
    )?;
    let outcome = if created {
        ImportOutcome::Created
    } else {
        ImportOutcome::Merged
    };
    Ok((imported(study, outcome, header.reports), total))
}
