//! The schema's version, its migrations, and what is checked of the database at a start.

use std::time::{Duration, Instant};

use eigenveil_shared::{Error, Hint, Result};
use tokio_postgres::Client;

use super::connection::{Connection, SCHEMA, Target, value};
use crate::{
    contract::failure::{Failure, unavailable},
    store_url::Durability,
};

/// Step `i` brings a database of version `i` to version `i + 1`. Steps are only ever added, and what servers of the
/// version before need is removed by a later step.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
];
pub(crate) const VERSION: usize = MIGRATIONS.len();
/// The oldest that the tests have run with.
const MIN_SERVER: i32 = 150_000;
const LOCK: i64 = 0x0045_6956_5300_0001;
const LOCK_WAIT: Duration = Duration::from_secs(60);

/// Brings the schema to this program's version. Returns the version before.
pub(crate) async fn migrate(connection: &Connection) -> Result<usize, Failure> {
    // Polled: a session that waits for the lock would hold up what the holder may wait for.
    let asked = Instant::now();
    while !value::<bool>(connection, "SELECT pg_try_advisory_lock($1)", &[&LOCK]).await? {
        if asked.elapsed() > LOCK_WAIT {
            return Err(unavailable(
                "another migration has run for a minute; wait for it, or end it and try again",
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let before = version(connection).await?.unwrap_or(0);
    if before > VERSION {
        return Err(newer(before).into());
    }
    for (number, step) in MIGRATIONS.iter().enumerate().skip(before) {
        connection.batch_execute("BEGIN").await?;
        if number == 0 {
            // Where it was made for this role, the role may lack the right to make one.
            let exists = "SELECT to_regnamespace($1) IS NOT NULL";
            if !value::<bool>(connection, exists, &[&SCHEMA]).await? {
                let create = format!("CREATE SCHEMA {SCHEMA}");
                connection.batch_execute(&create).await?;
            }
            let create = "CREATE TABLE schema_version (version int NOT NULL); INSERT INTO schema_version VALUES (0)";
            connection.batch_execute(create).await?;
        }
        connection.batch_execute(step).await?;
        let reached = number as i32 + 1;
        connection
            .execute("UPDATE schema_version SET version = $1", &[&reached])
            .await?;
        connection.commit().await?;
    }
    connection
        .execute("SELECT pg_advisory_unlock($1)", &[&LOCK])
        .await?;
    Ok(before)
}

/// The schema's version; `None` where there is none.
async fn version(client: &Client) -> Result<Option<usize>, Failure> {
    // By its full name: without a right to the schema that is an error, and not "none".
    let exists = format!("SELECT to_regclass('{SCHEMA}.schema_version') IS NOT NULL");
    if !value::<bool>(client, &exists, &[]).await? {
        return Ok(None);
    }
    let version: i32 = value(client, "SELECT version FROM schema_version", &[]).await?;
    Ok(usize::try_from(version).ok())
}

/// Refuses a database that cannot keep its promise, or that a migration is missing from; returns warnings.
pub(crate) async fn check(
    target: &Target,
    client: &Client,
    durability: Durability,
) -> Result<Vec<String>, Failure> {
    check_server(target, client).await?;
    match version(client).await? {
        Some(VERSION) => {}
        Some(newer_one) if newer_one > VERSION => return Err(newer(newer_one).into()),
        found => {
            return Err(unavailable(format!(
                "the database {} has {}, and this program needs version {VERSION}; migrate the store first",
                target.name,
                found.map_or("no tables of eigenveil".to_owned(), |found| format!("schema version {found}"))
            ))
            .with_hint(Hint::MigrateStore)
            .into());
        }
    }
    let standbys = setting(client, "synchronous_standby_names").await?;
    let mut warnings: Vec<String> = warning(durability, &standbys).into_iter().collect();
    if setting(client, PARAMETERS).await? != "0" {
        let mut logs = Vec::new();
        for (name, off) in STATEMENTS {
            let logged = setting(client, name).await?;
            logs.extend((logged != off).then(|| format!("{name} = {logged}")));
        }
        warnings.push(log_warning(&logs));
    }
    Ok(warnings)
}

/// How much of what a statement is given stands beside it in the database's log.
const PARAMETERS: &str = "log_parameter_max_length";
/// Settings that put statements there, and their values that do not.
const STATEMENTS: [(&str, &str); 3] = [
    ("log_statement", "none"),
    ("log_min_duration_statement", "-1"),
    ("log_min_duration_sample", "-1"),
];

/// A warning about a log that pairs what the tables do not. `logs`: the settings that put statements there now.
fn log_warning(logs: &[String]) -> String {
    let when = match logs {
        [] => "as soon as slow statements are logged".to_owned(),
        logs => format!("now ({})", logs.join(", ")),
    };
    format!(
        "{when} a line of the database's log has a report's token, identifier and seed: \
         set {PARAMETERS} = 0 (and {PARAMETERS}_on_error = 0) and reload its configuration"
    )
}

/// Checks the requirements that hold before a migration, too.
pub(crate) async fn check_server(target: &Target, client: &Client) -> Result<(), Failure> {
    let refuse = |why: String| {
        Err(Failure::from(unavailable(format!(
            "the database {} {why}",
            target.name
        ))))
    };
    let number = setting(client, "server_version_num").await?;
    if number.parse::<i32>().unwrap_or(0) < MIN_SERVER {
        return refuse(format!(
            "is PostgreSQL {}; this program needs 15 or newer",
            setting(client, "server_version").await?
        ));
    }
    let encoding = setting(client, "server_encoding").await?;
    if encoding != "UTF8" {
        return refuse(format!(
            "has the encoding {encoding}, which has not every character that a study's text may have; make one with ENCODING 'UTF8'"
        ));
    }
    // Told when the session began: a pooler would have passed on another session, or nothing.
    if setting(client, "eigenveil.session").await? != "kept" {
        return refuse("is reached through a pooler, which loses a session's settings; give the address of PostgreSQL itself".into());
    }
    for (name, wanted, why) in [
        (
            "fsync",
            "on",
            "an acknowledged report could be lost when the machine stops",
        ),
        (
            "full_page_writes",
            "on",
            "a page that is half written when the machine stops would be damaged",
        ),
        (
            "synchronous_commit",
            "on",
            "an acknowledged report could be lost when the server stops",
        ),
    ] {
        let setting_value = setting(client, name).await?;
        if setting_value != wanted {
            return refuse(format!(
                "has {name} = {setting_value}: {why}; set {name} = {wanted} and reload its configuration"
            ));
        }
    }
    Ok(())
}

async fn setting(client: &Client, name: &str) -> Result<String, Failure> {
    let query = "SELECT coalesce(current_setting($1, true), '')";
    value(client, query, &[&name]).await
}

fn newer(version: usize) -> Error {
    unavailable(format!(
        "the database has schema version {version}; this program knows versions up to {VERSION}: use the newer program that migrated it"
    ))
}

/// A warning about reports that would be lost with the primary's machine.
fn warning(durability: Durability, standbys: &str) -> Option<String> {
    if durability == Durability::Provider {
        return None;
    }
    let standbys = standbys.trim();
    if standbys.is_empty() {
        return Some(
            "the database has no synchronous standby (synchronous_standby_names is empty): with its disk, acknowledged reports are lost. \
             Add one, or set durability = \"provider\" if whoever provides the database keeps every commit elsewhere"
                .to_owned(),
        );
    }
    let any_one = standbys
        .get(..4)
        .is_some_and(|any| any.eq_ignore_ascii_case("any "))
        && standbys[4..].trim_start().starts_with("1 ")
        && standbys.contains([',', '*']);
    any_one.then(|| {
        format!(
            "synchronous_standby_names = '{standbys}': any one standby of several has a commit, so promoting another one loses it. Use one standby, or ANY 2 of three; \
             or stop the receivers of all of them before a promotion, and take the furthest"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_can_lose_commits_is_told() {
        for (standbys, warns) in [
            ("", true),
            ("one", false),
            ("FIRST 1 (a, b)", false),
            ("ANY 1 (a, b)", true),
            ("any 1 (*)", true),
            ("ANY 1 (a)", false),
            ("ANY 2 (a, b, c)", false),
        ] {
            assert_eq!(
                warning(Durability::Standby, standbys).is_some(),
                warns,
                "{standbys}"
            );
            assert_eq!(warning(Durability::Provider, standbys), None);
        }
    }

    #[test]
    fn a_log_that_has_parameters_now_is_told() {
        let logs = ["log_min_duration_statement = 250ms".to_owned()];
        assert!(log_warning(&logs).starts_with("now (log_min_duration_statement = 250ms) a line"));
        assert!(log_warning(&[]).starts_with("as soon as"));
    }
}
