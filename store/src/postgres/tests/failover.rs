//! The primary is killed under load and its standby promoted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use eigenveil_estimation::Cancel;
use tokio::runtime::Runtime;

use super::Devices;
use crate::{
    postgres::testing::{Servers, eventually, of_seeds},
    testing::{cluster::Cluster, fixtures::create},
};

const REPORTS_OF_EACH: u32 = 400;
const SYNCHRONOUS: &[&str] = &["synchronous_standby_names=standby"];

/// The result of a round.
#[derive(Debug)]
struct Round {
    acknowledged: u64,
    counted: u64,
    /// Seeds with a copy that was counted, too.
    twice: u64,
    /// From a device's first attempt to its acknowledgement.
    longest: Duration,
}

/// Three servers; devices send to them, until each report is acknowledged. `lag`: the standby receives nothing for the
/// last 3,000 reports before the end of the primary.
fn round(settings: &'static [&'static str], lag: bool) -> Option<Round> {
    let primary = Arc::new(Cluster::start_with(settings)?);
    let standby = Arc::new(primary.standby("standby"));
    let servers = Servers::start_behind(&primary, &[&standby], 3);
    let runtime = Runtime::new().unwrap();
    Some(runtime.block_on(async {
        let study = create(&servers.stores[0], &of_seeds()).await;
        let everywhere = servers.everywhere(&study).await;
        let devices = Devices::start(&servers, &everywhere, REPORTS_OF_EACH);
        devices.until(2_000).await;
        let receiver = "SELECT pid FROM pg_stat_wal_receiver";
        let receiver =
            async || Some(standby.sql("postgres", receiver)).filter(|pid| !pid.is_empty());
        let receiver = eventually(receiver).await;
        let signal = |name: &str| {
            let sent = std::process::Command::new("kill")
                .args([name, &receiver])
                .status();
            assert!(sent.unwrap().success());
        };
        if lag {
            signal("-STOP");
        }
        devices.until(5_000).await;
        let begun = Instant::now();
        let (killed, promoted) = (Arc::clone(&primary), Arc::clone(&standby));
        tokio::task::spawn_blocking(move || killed.kill())
            .await
            .unwrap();
        if lag {
            signal("-CONT");
        }
        tokio::task::spawn_blocking(move || promoted.promote())
            .await
            .unwrap();
        println!("the standby is the primary after {:?}", begun.elapsed());
        let sent = devices.end().await;
        let sums = servers.stores[0]
            .bucket_sums(&study, Cancel::NEVER)
            .unwrap();
        Round {
            acknowledged: sent.acknowledged,
            counted: sums.n,
            twice: sums.duplicates,
            longest: sent.longest,
        }
    }))
}

#[test]
fn nothing_is_lost_when_the_standby_is_promoted() {
    let Some(round) = round(SYNCHRONOUS, false) else {
        return;
    };
    assert_eq!(
        (round.counted, round.twice),
        (round.acknowledged, 0),
        "{round:?}"
    );
    assert!(round.longest < Duration::from_secs(300), "{round:?}");
    println!("{round:?}");
}

/// The control: what is acknowledged before the standby has it is lost with the primary.
#[test]
fn without_a_synchronous_standby_reports_are_lost() {
    let Some(round) = round(&[], true) else {
        return;
    };
    assert!(round.counted < round.acknowledged, "{round:?}");
    println!("{round:?}");
}
