//! Studies as files: exported from one snapshot, imported in one transaction.

use std::{fs::File, sync::Arc};

use eigenveil_shared::{
    Error, Result, api::ImportOutcome, mechanism::double_cap::SEED_LEN, packed::packed_len,
};

use super::{
    Inner, Postgres,
    append::add_to_sum,
    connection::{Session, value},
    lock,
    statements::{KEEP_SUM, SUM, require},
    studies::{insert, lock_buckets, locked_state, require_study},
    unsigned,
};
use crate::contract::{
    archive::{self, ArchiveItem, ArchiveWriter, Header},
    decide,
    engine::{Engine as _, Pending, Transfer},
    failure::Failure,
    participant_token::SiteRoom,
    study::{Study, StudyId, state_from},
    sums::decode_sum,
    transfer::{Imported, VerifiedExport, rewind},
};

/// Identifiers in one statement.
const IDS: usize = 20_000;
/// Seeds in one chunk of an import.
const CHUNK_SEEDS: usize = 1 << 16;

impl Transfer for Postgres {
    fn export(&self, study: &Study) -> Result<File> {
        self.check_running()?;
        let exported = self.inner.export(study).and_then(rewind);
        exported.map_err(|failure| self.inner.note(failure))
    }

    fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Pending<'_, Result<Imported>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.run(async move {
            let handle = inner.handle.clone();
            // Reads a file, and waits for the database in between.
            let imported = handle
                .spawn_blocking(move || inner.import(export, into))
                .await;
            imported.unwrap_or_else(|_| {
                Err(Failure::Unavailable("a task of the store has ended".into()))
            })
        }))
    }

    fn backup(&self) -> Result<File> {
        Err(Error::invalid_request(
            "this server's store is a PostgreSQL database: back it up by pg_basebackup with archived logs, or by the snapshots of whoever provides it",
        ))
    }

    fn temporary_file(&self) -> Result<File> {
        self.inner.temporary_file().map_err(Failure::into_error)
    }
}

impl Inner {
    fn export(&self, study: &Study) -> Result<File, Failure> {
        let file = self.temporary_file()?;
        let seeds = study.has_seeds();
        let per_sum = 8 * packed_len(study.params().sum_dimension()) as u64;
        let (session, header, sizes) = self.wait(async {
            let session = self.pool.snapshot().await?;
            require_study(&session, study).await?;
            let row = session
                .query_one(
                    "SELECT state, identifiers_kept,
                            (SELECT coalesce(sum(n), 0)::bigint FROM buckets WHERE study = $1),
                            (SELECT count(*) FROM identifiers WHERE study = $1)
                     FROM studies WHERE study = $1",
                    &[&study.key.0],
                )
                .await?;
            let (reports, identifiers): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
            let has_all = row.try_get::<_, bool>(1)? && identifiers == reports;
            decide::has_identifiers(study.id(), has_all, decide::EXPORT_INSTEAD)?;
            let select = "SELECT bucket, n FROM buckets WHERE study = $1 AND n > 0 ORDER BY bucket";
            let mut sizes: Vec<(u32, u64)> = Vec::new();
            for row in session.query(select, &[&study.key.0]).await? {
                sizes.push((
                    row.try_get::<_, i32>(0)?.unsigned_abs(),
                    unsigned(row.try_get(1)?),
                ));
            }
            let state = state_from(row.try_get(0)?)?;
            if study.has_sites() {
                sizes.clear();
            }
            let header = Header::of(study, state, unsigned(reports), sizes.len());
            Ok::<_, Failure>((session, header, sizes))
        })?;
        let mut archive = ArchiveWriter::new(&file, study.params().unit(), &header)?;
        let mut last: Vec<u8> = Vec::new();
        loop {
            let select =
                "SELECT id FROM identifiers WHERE study = $1 AND id > $2 ORDER BY id LIMIT $3";
            let rows = self.wait(session.query(select, &[&study.key.0, &last, &(IDS as i64)]))?;
            let Some(end) = rows.last() else { break };
            last = end.try_get(0)?;
            for row in &rows {
                archive.put(row.try_get(0)?)?;
            }
        }
        for (bucket, n) in sizes {
            archive.section(bucket, n, if seeds { SEED_LEN as u64 * n } else { per_sum })?;
            if seeds {
                self.read_chunks(&session, study, bucket, 0, &mut |_, body| {
                    archive.put(body)?;
                    Ok(true)
                })?;
            } else {
                let select = "SELECT body FROM sums WHERE study = $1 AND bucket = $2";
                let row =
                    self.wait(session.query_one(select, &[&study.key.0, &(bucket as i32)]))?;
                archive.put(row.try_get(0)?)?;
            }
        }
        self.read_site_reports(&session, study, &mut |site, payload| {
            archive.report(site, payload)
        })?;
        archive.finish()?;
        self.wait(session.end())?;
        Ok(file)
    }

    /// Imports an export, all or nothing. Identifiers are inserted in ascending order, and then the buckets are locked,
    /// so that an import and an upload never wait for each other. Blocks.
    fn import(
        &self,
        export: VerifiedExport,
        into: Option<Arc<Study>>,
    ) -> Result<Imported, Failure> {
        let VerifiedExport {
            file,
            header,
            id,
            design,
            sha256,
        } = export;
        // One import at a time: each occupies a connection of the pool while it waits for an import on another server
        // and for the registry, whose holder may itself wait for a connection.
        let _one = lock(&self.importing);
        let session = self.wait(self.pool.begin())?;
        // Wait for another import into the study, however long it takes.
        self.wait(session.batch_execute("SET LOCAL lock_timeout = 0"))?;
        let known = match into {
            None => self.with_id(&session, id)?,
            into => into,
        };
        let created = known.is_none();
        let study = match known {
            Some(study) => {
                decide::may_merge(&study, &design)?;
                self.wait(locked_state(&session, &study))?;
                study
            }
            None => self.wait(insert(&session, id, design, Some(header.created_at_ms)))?,
        };
        self.wait(session.batch_execute("SET LOCAL lock_timeout TO DEFAULT"))?;
        let insert = "INSERT INTO imports (study, sha256, reports, imported_at_ms) VALUES ($1, $2, $3, moment_ms())
                      ON CONFLICT DO NOTHING";
        let reports = header.reports as i64;
        let is_new =
            self.wait(session.execute(insert, &[&study.key.0, &sha256.as_slice(), &reports]))?;
        if is_new == 0 {
            self.wait(session.end())?;
            return Ok(Imported {
                study,
                outcome: ImportOutcome::AlreadyImported,
                reports: 0,
            });
        }
        let kept = "SELECT identifiers_kept FROM studies WHERE study = $1";
        let kept = self.wait(value(&session, kept, &[&study.key.0]))?;
        decide::has_identifiers(study.id(), kept, decide::IMPORT_INSTEAD)?;
        let mut merge = Merge {
            inner: self,
            session: &session,
            study: &study,
            ids: Vec::new(),
            overlap: 0,
            buckets_locked: false,
        };
        let (_, reader) = archive::read_header(rewind(file)?)?;
        let read_again = reader.read_items(&header, study.params(), |item| match item {
            ArchiveItem::Identifier(id) => merge.identifier(id),
            ArchiveItem::Section { bucket, n, bytes } => merge.section(bucket, n, &bytes),
            ArchiveItem::Report { site, payload } => merge.report(&site, &payload),
        })?;
        merge.flush()?;
        decide::none_is_counted(study.id(), merge.overlap, header.reports)?;
        if read_again != sha256 {
            return Err(archive::malformed("its content, which changed while it was read").into());
        }
        let count = "SELECT sum(n)::bigint FROM buckets WHERE study = $1";
        let total = self.wait(value(&session, count, &[&study.key.0]))?;
        if let Some(room) = SiteRoom::of(&study, &self.config) {
            room.check_reports(unsigned(total))?;
        }
        // Only for a new study: for an existing one, whoever closes it may hold the registry while waiting for this
        // commit.
        let _registry = created.then(|| self.registry.blocking_lock());
        self.wait(session.commit())?;
        study.publish_count_unordered(unsigned(total));
        if created {
            self.studies.add(Arc::clone(&study));
        }
        Ok(Imported {
            study,
            outcome: match created {
                true => ImportOutcome::Created,
                false => ImportOutcome::Merged,
            },
            reports: header.reports,
        })
    }

    /// The study with this identifier, according to the database: another server may have created or deleted it.
    /// Blocks.
    fn with_id(&self, session: &Session, id: StudyId) -> Result<Option<Arc<Study>>, Failure> {
        let found = self.wait(async {
            // Another import may be about to create it.
            let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
            session.execute(lock, &[&id.to_string()]).await?;
            let select = "SELECT study FROM studies WHERE id = $1";
            session.query_opt(select, &[&id.0.as_slice()]).await
        })?;
        let found: Option<i64> = found.map(|row| row.try_get(0)).transpose()?;
        let known = || self.studies.get(id);
        if known().map(|study| study.key.0) != found {
            self.wait(self.refresh())?;
        }
        Ok(known())
    }
}

/// The content of an export on its way into a study.
struct Merge<'a> {
    inner: &'a Inner,
    session: &'a Session,
    study: &'a Study,
    ids: Vec<[u8; 16]>,
    /// Number of reports that were counted before; if there are any, the import is rolled back.
    overlap: u64,
    buckets_locked: bool,
}

impl Merge<'_> {
    fn identifier(&mut self, id: [u8; 16]) -> Result<(), Failure> {
        self.ids.push(id);
        match self.ids.len() < IDS {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<&[u8]> = self.ids.iter().map(|id| &id[..]).collect();
        let insert = "INSERT INTO identifiers (study, id) SELECT $1::bigint, * FROM unnest($2::bytea[]) ON CONFLICT DO NOTHING";
        let new = self
            .inner
            .wait(self.session.execute(insert, &[&self.study.key.0, &ids]))?;
        self.overlap += ids.len() as u64 - new;
        self.ids.clear();
        Ok(())
    }

    /// Before the first section or report: whether it is to be stored.
    fn begin(&mut self) -> Result<bool, Failure> {
        self.flush()?;
        if self.overlap > 0 {
            // The transaction will be rolled back.
            return Ok(false);
        }
        if !self.buckets_locked {
            self.inner
                .wait(lock_buckets(self.session, self.study.key))?;
            self.buckets_locked = true;
        }
        Ok(true)
    }

    fn report(&mut self, site: &str, payload: &[u8]) -> Result<(), Failure> {
        if !self.begin()? {
            return Ok(());
        }
        let insert = "INSERT INTO site_reports (study, site, payload) VALUES ($1, $2, $3)";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&self.study.key.0, &site, &payload];
        let rows = self.inner.wait(self.session.execute(insert, &params))?;
        require("site_reports", rows, 1)?;
        self.count(0, 1, 1)
    }

    fn section(&mut self, bucket: u32, n: u64, bytes: &[u8]) -> Result<(), Failure> {
        if !self.begin()? {
            return Ok(());
        }
        // Buckets are exchangeable, so those of an export with more buckets can be mapped to fewer.
        let bucket = (bucket % self.study.buckets()) as i32;
        let commits = if self.study.has_seeds() {
            self.chunks(bucket, bytes)?
        } else {
            self.sum(bucket, n, bytes)?;
            1
        };
        self.count(bucket, commits, n as i64)
    }

    /// Counts so many reports, of so many commits.
    fn count(&self, bucket: i32, commits: i64, n: i64) -> Result<(), Failure> {
        let update =
            "UPDATE buckets SET seq = seq + $3, n = n + $4 WHERE study = $1 AND bucket = $2";
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&self.study.key.0, &bucket, &commits, &n];
        let rows = self.inner.wait(self.session.execute(update, &params))?;
        require("buckets", rows, 1)
    }

    /// Inserts the seeds of a section as chunks; returns the number of chunks.
    fn chunks(&self, bucket: i32, bytes: &[u8]) -> Result<i64, Failure> {
        let insert = "INSERT INTO chunks (study, bucket, last, first, n, body)
                      SELECT study, bucket, seq + $3, seq + $3, $4, $5 FROM buckets WHERE study = $1 AND bucket = $2";
        let mut number = 0_i64;
        for chunk in bytes.chunks(CHUNK_SEEDS * SEED_LEN) {
            number += 1;
            let n = (chunk.len() / SEED_LEN) as i32;
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&self.study.key.0, &bucket, &number, &n, &chunk];
            let rows = self.inner.wait(self.session.execute(insert, &params))?;
            require("chunks", rows, 1)?;
        }
        Ok(number)
    }

    fn sum(&self, bucket: i32, n: u64, bytes: &[u8]) -> Result<(), Failure> {
        let delta = decode_sum(self.study.params().sum_dimension(), n, bytes)?;
        let adding = add_to_sum(
            self.session,
            [SUM, KEEP_SUM],
            self.study.key.0,
            bucket,
            &delta,
        );
        let added = self.inner.wait(adding)?;
        require("sums", added.into(), 1)
    }
}
