//! Connections to the database, each polled by a task of its own, and transactions on them.

use std::{
    error::Error as _,
    future::poll_fn,
    net::IpAddr,
    ops::Deref,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use eigenveil_shared::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::{
    AsyncMessage, Client, Config,
    config::{Host, SslMode, TargetSessionAttrs},
    error::{Severity, SqlState},
    types::{FromSql, ToSql},
};

use super::tls::Tls;
use crate::{contract::failure::Failure, postgres::lock, store_url::StoreUrl};

/// All objects are in this schema of the database.
pub(crate) const SCHEMA: &str = "eigenveil";
/// Told to the database at the start of a session, whatever the role's and the database's own settings are. A pooler in
/// transaction mode loses or refuses them. Plans are not remembered, since they might be those of an empty table. No
/// statement timeout: a cancelled wait for the standby would leave a commit that nobody else has. A policy that hides rows
/// is an error: a token that is not seen would be unknown. A failed statement is logged without what it was given.
const SESSION: &str = "-c search_path=eigenveil -c synchronous_commit=on -c plan_cache_mode=force_custom_plan \
    -c default_transaction_isolation=read\\ committed -c lock_timeout=5s -c statement_timeout=0 -c tcp_user_timeout=10s \
    -c row_security=off -c client_min_messages=warning -c log_parameter_max_length_on_error=0 \
    -c eigenveil.session=kept";
/// A transaction whose client has stopped frees what it has locked. Each key is looked up by its index: for thousands
/// PostgreSQL would rather read the whole table, or the whole index, which is slower and, where it has grown since it was
/// last counted, endless. A bitmap is made of nothing but what was looked up.
const COMMITTING: &str = " -c idle_in_transaction_session_timeout=5s -c enable_seqscan=off -c enable_indexscan=off \
    -c enable_indexonlyscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";
/// A VACUUM leaves the disk to reports, as PostgreSQL's own do.
const POOL: &str = " -c idle_in_transaction_session_timeout=60s -c vacuum_cost_delay=2ms";
/// To each host: of one that is lost no answer comes.
const CONNECT: Duration = Duration::from_secs(3);
/// Connections for everything but reports.
const POOLED: usize = 8;

/// Which database, and how it is reached.
pub(crate) struct Target {
    config: Config,
    tls: Tls,
    /// Without credentials.
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn new(url: &StoreUrl) -> Result<Self> {
        let Address {
            text,
            ssl_mode,
            authorities,
        } = Address::of(url.secret());
        let mut config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
            let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Error::invalid_config(format!(
                "store cannot be read as an address of a database ({why}); write it like postgres://user@host/database?sslmode=require, with %40 for an @ in a name or password"
            ))
        })?;
        config.ssl_mode(match ssl_mode.as_deref() {
            Some("disable") => SslMode::Disable,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            // Never as a preference: whoever stands in between could talk a client out of it. PostgreSQL of this machine
            // may well have a certificate that nobody has signed.
            None | Some("prefer" | "allow") => match is_near(&config) && authorities.is_none() {
                true => SslMode::Disable,
                false => SslMode::Require,
            },
            Some(_) => {
                return Err(Error::invalid_config(
                    "sslmode of the store's address is unknown; give require, or disable where nobody can listen",
                ));
            }
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("eigenveil");
        }
        config
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(2)
            .tcp_user_timeout(Duration::from_secs(10))
            // After a failover the old primary may still answer, read-only.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(Self {
            config,
            tls: Tls::new(authorities.as_deref())?,
            name: url.to_string(),
        })
    }

    pub(crate) async fn connect_to_commit(&self) -> Result<Connection, Failure> {
        self.connect_with(COMMITTING).await
    }

    /// For everything but reports.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        self.connect_with(POOL).await
    }

    async fn connect_with(&self, more: &str) -> Result<Connection, Failure> {
        let mut config = self.config.clone();
        let given_options = config.get_options().unwrap_or_default();
        config.options(format!("{given_options} {SESSION}{more}"));
        let hosts = config.get_hosts().len() as u32;
        let limit = CONNECT * (hosts + 1);
        let connecting = tokio::time::timeout(limit, config.connect(self.tls.clone()));
        let (client, mut connection) = connecting
            .await
            .map_err(|_| self.named(Failure::Unavailable("it does not answer".into())))?
            .map_err(|error| self.named(error.into()))?;
        let warned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&warned);
        // Ends with the connection.
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = message
                    && notice.parsed_severity() == Some(Severity::Warning)
                {
                    flag.store(true, Ordering::SeqCst);
                    tracing::warn!(
                        code = notice.code().code(),
                        "the database warns: {}",
                        notice.message()
                    );
                }
            }
        });
        Ok(Connection { client, warned })
    }

    /// With the name of the database.
    fn named(&self, mut failure: Failure) -> Failure {
        if let Failure::Unavailable(why) | Failure::DatabaseFull(why) = &mut failure {
            *why = format!("the database {} cannot be used: {why}", self.name);
        }
        failure
    }
}

/// Whether what is sent stays on this machine.
fn is_near(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_local)
        && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

/// An address, and what is said in it about TLS, where tokio-postgres knows less.
#[derive(Default)]
struct Address {
    text: String,
    ssl_mode: Option<String>,
    authorities: Option<PathBuf>,
}

impl Address {
    fn of(url: &str) -> Self {
        let mut address = Self::default();
        let (text, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        for parameter in parameters.split('&') {
            match form_urlencoded::parse(parameter.as_bytes()).next() {
                Some((name, mode)) if name == "sslmode" => {
                    address.ssl_mode = Some(mode.into_owned());
                }
                Some((name, file)) if name == "sslrootcert" => {
                    address.authorities = Some(PathBuf::from(file.into_owned()));
                }
                _ => rest.push(parameter),
            }
        }
        address.text = format!("{text}?{}", rest.join("&"));
        address
    }
}

pub(crate) struct Connection {
    client: Client,
    /// The database has warned since the flag was last cleared.
    warned: Arc<AtomicBool>,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Connection {
    /// Commits a transaction all of whose statements have been answered without an error: of another, `COMMIT` would be
    /// a rollback that looks like a success.
    ///
    /// Whatever is not a plain success leaves it in doubt. A warning may say that the wait for the standby was
    /// cancelled, in the server's language: then the commit is visible and may still be lost.
    pub(crate) async fn commit(&self) -> Result<(), Failure> {
        self.warned.store(false, Ordering::SeqCst);
        let committed = self.client.simple_query("COMMIT").await;
        match committed {
            Err(error) => Err(Failure::InDoubt(explain(&error))),
            Ok(_) if self.warned.load(Ordering::SeqCst) => Err(Failure::InDoubt(
                "the database warned about a commit".into(),
            )),
            Ok(_) => Ok(()),
        }
    }
}

/// Connections that were used before and are in no transaction.
pub(crate) struct Pool {
    pub(crate) target: Target,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(target: Target) -> Arc<Self> {
        Arc::new(Self {
            target,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(POOLED)),
        })
    }

    /// A connection, outside of any transaction.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Session, Failure> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| Failure::Unavailable("the server is stopping".into()))?;
        let used = lock(&self.idle).pop();
        let connection = match used {
            Some(connection) if !connection.is_closed() => connection,
            // After a failover all of them are closed.
            _ => self.target.connect().await?,
        };
        Ok(Session {
            connection,
            pool: Arc::clone(self),
            _place: permit,
        })
    }

    /// A transaction that changes something.
    pub(crate) async fn begin(self: &Arc<Self>) -> Result<Session, Failure> {
        self.begin_as("READ COMMITTED").await
    }

    /// A snapshot of one moment.
    pub(crate) async fn snapshot(self: &Arc<Self>) -> Result<Session, Failure> {
        self.begin_as("REPEATABLE READ, READ ONLY").await
    }

    async fn begin_as(self: &Arc<Self>, how: &str) -> Result<Session, Failure> {
        let session = self.take().await?;
        session
            .batch_execute(&format!("BEGIN ISOLATION LEVEL {how}"))
            .await?;
        Ok(session)
    }
}

/// A connection of the pool. Dropped without an end it is closed, and its transaction rolled back.
pub(crate) struct Session {
    connection: Connection,
    pool: Arc<Pool>,
    _place: OwnedSemaphorePermit,
}

impl Deref for Session {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Session {
    pub(crate) async fn commit(self) -> Result<(), Failure> {
        self.connection.commit().await?;
        self.done();
        Ok(())
    }

    /// Ends a transaction that has changed nothing.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        self.connection.batch_execute("ROLLBACK").await?;
        self.done();
        Ok(())
    }

    /// Ends a use without a transaction.
    pub(crate) fn done(self) {
        let Self {
            connection,
            pool,
            _place,
        } = self;
        lock(&pool.idle).push(connection);
    }
}

/// The one value of a query.
pub(crate) async fn value<T: for<'a> FromSql<'a>>(
    client: &Client,
    query: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<T, Failure> {
    Ok(client.query_one(query, params).await?.try_get(0)?)
}

/// The time by the database's clock.
pub(crate) async fn moment_ms(client: &Client) -> Result<i64, Failure> {
    value(client, "SELECT moment_ms()", &[]).await
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let explanation = explain(&error);
        match error.code() {
            Some(&SqlState::DATA_CORRUPTED | &SqlState::INDEX_CORRUPTED) => {
                tracing::error!(explanation, "the database is damaged");
                Self::damaged("the database says so; the server's log has its words")
            }
            Some(&SqlState::DISK_FULL) => Self::DatabaseFull(explanation),
            _ => Self::Unavailable(explanation),
        }
    }
}

/// For the log: the causes, or what the database has answered, with its code. Never the detail of that, which may quote a
/// row, nor a password, which no error has.
fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections to other machines are encrypted unless the address says otherwise; those on this one need no
    /// certificate.
    #[test]
    fn tls_is_left_out_only_where_it_is_said_or_near() {
        use SslMode::{Disable, Require};
        for (address, mode) in [
            ("u:p@db.example/d", Require),
            ("u:p@db.example/d?sslmode=prefer", Require),
            ("u:p@db.example/d?ssl%6Dode=allow", Require),
            (
                "u:sslmode=disable@db.example/d?application_name=sslmode=disable",
                Require,
            ),
            ("u@localhost/d?hostaddr=192.0.2.1", Require),
            ("u@/d?hostaddr=192.0.2.1", Require),
            ("u@localhost,db.example/d", Require),
            ("u@db.example/d?sslmode=verify-full", Require),
            ("u@localhost/d?sslmode=require", Require),
            ("u@db.example/d?sslmode=disable", Disable),
            ("u@localhost/d", Disable),
            ("u@127.0.0.1,[::1]/d?sslmode=prefer", Disable),
            ("u@%2Frun%2Fpostgresql/d", Disable),
        ] {
            let url = format!("postgres://{address}").parse().unwrap();
            let target = Target::new(&url).unwrap();
            assert_eq!(target.config.get_ssl_mode(), mode, "{address}");
        }
        let url = "postgres://u@localhost/d?sslmode=required".parse().unwrap();
        assert!(Target::new(&url).is_err());
    }
}
