//! The limit on open file descriptors: every connection takes one.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::config::ServerConfig;

/// Descriptors reserved for everything but connections: the listener, the database and its readers, backups, temporary
/// files.
const RESERVED_FDS: u64 = 64;

/// The number of connections that fit, and a warning if it is below `max_connections`. Raises the soft limit as far as
/// needed and allowed.
pub(crate) fn raise_fd_limit(config: &ServerConfig) -> (usize, Option<String>) {
    let (soft_limit, hard_limit) = limits();
    let needed = config.max_connections as u64 + RESERVED_FDS;
    let mut allowed = soft_limit.unwrap_or(u64::MAX);
    let target = needed.min(hard_limit.unwrap_or(u64::MAX));
    if allowed < target {
        let limit = Rlimit {
            current: Some(target),
            maximum: hard_limit,
        };
        if setrlimit(Resource::Nofile, limit).is_ok() {
            allowed = target;
        }
    }
    connections_that_fit(config, allowed)
}

/// As [`raise_fd_limit`], without changing the limit.
pub(crate) fn check(config: &ServerConfig) -> (usize, Option<String>) {
    let (soft_limit, hard_limit) = limits();
    let allowed = soft_limit.and(hard_limit).unwrap_or(u64::MAX);
    connections_that_fit(config, allowed)
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

/// The soft and the hard limit of `getrlimit(RLIMIT_NOFILE)`; `None`: unlimited. Read from `/proc`, because a system call
/// filter may forbid `prlimit`.
fn limits() -> (Option<u64>, Option<u64>) {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    parse(&text).unwrap_or_default()
}

fn parse(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let mut fields = line.split_whitespace();
    let mut next = || Some(fields.next()?.parse().ok());
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_by_open_files() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(parse(text), Some((Some(1_024), Some(524_288))));
        let unlimited = parse("Max open files  unlimited  unlimited  files");
        assert_eq!(unlimited, Some((None, None)));
        assert_eq!(parse("nothing"), None);
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
