//! The limit on open file descriptors: every connection takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::ServerConfig;

/// Descriptors reserved for everything but connections: the listener, the database and its readers, backups, temporary
/// files.
const RESERVED_FDS: u64 = 64;

/// The number of connections that fit, and a warning if it is below `max_connections`. Raises the soft limit as far as
/// needed and allowed.
pub(crate) fn raise_fd_limit(config: &ServerConfig) -> (usize, Option<String>) {
    let limit = getrlimit(Resource::Nofile);
    let needed = config.max_connections as u64 + RESERVED_FDS;
    let mut allowed = limit.current.unwrap_or(u64::MAX);
    let target = needed.min(limit.maximum.unwrap_or(u64::MAX));
    if allowed < target {
        let raised = Rlimit {
            current: Some(target),
            ..limit
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            allowed = target;
        }
    }
    connections_that_fit(config, allowed)
}

/// Checks the limit that [`raise_fd_limit`] would set, without changing it.
pub(crate) fn check(config: &ServerConfig) -> (usize, Option<String>) {
    let hard_limit = getrlimit(Resource::Nofile).maximum;
    connections_that_fit(config, hard_limit.unwrap_or(u64::MAX))
}

fn connections_that_fit(config: &ServerConfig, allowed: u64) -> (usize, Option<String>) {
    let left = (allowed - RESERVED_FDS.min(allowed / 4)).max(1);
    let fit = usize::try_from(left).unwrap_or(usize::MAX);
    if fit >= config.max_connections {
        return (config.max_connections, None);
    }
    let warning = format!(
        "max_connections is {}, but the process may open {allowed} files, so it serves {fit} connections at once; \
         raise the limit to {} (LimitNOFILE in the unit, ulimit -n), or lower max_connections",
        config.max_connections,
        config.max_connections as u64 + RESERVED_FDS
    );
    (fit, Some(warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_by_open_files() {
        let config = ServerConfig {
            max_connections: 1_000,
            ..ServerConfig::new("data")
        };
        assert_eq!(connections_that_fit(&config, 1_064), (1_000, None));
        for (allowed, connections) in [(1_063, 999), (256, 192), (64, 48), (1, 1)] {
            let (fit, warning) = connections_that_fit(&config, allowed);
            assert_eq!(fit, connections);
            assert!(warning.unwrap().contains("1064"));
        }
    }
}
