//! Generated operations of clients and a server in one process, with written invariants; and of clients and three servers
//! over one database, which take turns.
//!
//! A scenario is a list of [`Operation`]s drawn from a seed: uploads one by one and in batches, lost requests and
//! responses, replays, failing commits, a writer that dies before or after a commit, restarts, closes, exports,
//! imports, deletions, estimates, clock jumps. A device is the client's `Book` in two windows over a store that loses
//! writes. After every operation [`World`] reads the disk and checks:
//!
//! 1. Nobody is counted twice: whatever a device draws, its report adds a number to the sums that no others add up to
//!    (base-4 digits; for seeds, the seed itself), so that the multiplicity of each device can be read off.
//! 2. What was acknowledged is counted, and what was counted stays.
//! 3. What never arrived, arrived in part, was rejected, or was first sent after a close, is not counted.
//! 4. Sums, counts, what HTTP shows, and the identifiers that the server and the devices keep agree.
//! 5. Responses are true: 201 for a report not counted before, 200 for one that was, 409 only if it was not counted and
//!    the study is closed, 404 for a draft; a failed commit has counted nothing. A device takes them for what they are.
//! 6. A finished estimate is of a snapshot between its request and now: its spectrum is that of the sums at its n.
//! 7. An import adds all reports of an export or none, none if one is there already, and the same export once.
//! 8. In the end, without faults, every device is acknowledged in every open study, and nothing is pending.
//!
//! A failing scenario prints its seed and its operations, ready to be pasted into [`reproductions`].
//! `EIGENVEIL_SCENARIOS=20000 EIGENVEIL_SCENARIOS_FROM=1000000 cargo test --workspace --lib scenarios` explores others.

mod audit;
mod device;
mod identifiable;
mod model;
mod operations;
mod operator;
mod reproductions;
mod world;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use self::{
    device::Mistake,
    operations::{Operation, generate},
    world::{Engine, World},
};
#[cfg(feature = "postgres")]
use eigenveil_store::testing::cluster::Cluster;
use eigenveil_store::{Faults, Mutation};

/// `.ci/full` plays 1,500 more.
const DEFAULT_SCENARIOS: u64 = 60;
/// One in so many is played with three servers over one database, too.
#[cfg(feature = "postgres")]
const IN_A_FLEET: u64 = 30;

/// Runs a list of operations; the error is the violated invariant.
fn play(
    seed: u64,
    engine: Engine,
    operations: &[Operation],
    faults: Faults,
    mistake: Option<Mistake>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut step_text = String::new();
    let played = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let mut world = World::new(seed, engine, faults, mistake).await;
            for (step, operation) in operations.iter().enumerate() {
                step_text = format!("step {step}, {operation:?}");
                world.perform(operation.clone()).await;
            }
            step_text = "at the end".to_owned();
            world.check_final_state().await;
        });
    }));
    played.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref().copied());
        format!(
            "{step_text}: {}",
            text.unwrap_or("a panic without a message")
        )
    })
}

fn explore(engine: Engine, seeds: std::ops::Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    let count = seeds.end - seeds.start;
    let started = Instant::now();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let operations = possible(engine, generate(seed));
            if let Err(violation) = play(seed, engine, &operations, Faults::default(), None) {
                panic!(
                    "scenario {seed} fails: {violation}\nas a reproduction: ({seed}, vec!{operations:?})"
                );
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        work();
        other.join().unwrap();
    });
    let seconds = started.elapsed().as_secs_f64();
    println!("{count} scenarios in {seconds:.1} s");
}

/// Only the embedded store has faults.
fn possible(engine: Engine, mut operations: Vec<Operation>) -> Vec<Operation> {
    if engine != Engine::Embedded {
        operations.iter_mut().for_each(Operation::forget_fault);
    }
    operations
}

fn reproduce(engine: Engine) {
    for (name, seed, operations) in reproductions::all() {
        let operations = possible(engine, operations);
        if let Err(violation) = play(seed, engine, &operations, Faults::default(), None) {
            panic!("{name}: {violation}");
        }
    }
}

fn from_environment(key: &str, default: u64) -> u64 {
    std::env::var(key).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn generated_scenarios_keep_the_invariants() {
    let from = from_environment("EIGENVEIL_SCENARIOS_FROM", 0);
    let count = from_environment("EIGENVEIL_SCENARIOS", DEFAULT_SCENARIOS);
    explore(Engine::Embedded, from..from + count);
}

#[cfg(feature = "postgres")]
#[test]
fn generated_scenarios_keep_the_invariants_in_a_fleet() {
    let Some(_cluster) = Cluster::shared() else {
        return;
    };
    let from = from_environment("EIGENVEIL_SCENARIOS_FROM", 0);
    let count = from_environment("EIGENVEIL_SCENARIOS", DEFAULT_SCENARIOS);
    explore(Engine::Fleet, from..from + count.div_ceil(IN_A_FLEET));
}

#[test]
fn reproductions_keep_the_invariants() {
    reproduce(Engine::Embedded);
}

#[cfg(feature = "postgres")]
#[test]
fn reproductions_keep_the_invariants_in_a_fleet() {
    if let Some(_cluster) = Cluster::shared() {
        reproduce(Engine::Fleet);
    }
}

/// Six of 40 scenarios with what is planted violate an invariant that is about it.
#[test]
fn mistakes_are_noticed() {
    let mutated = |mutation| move || Faults::mutated(mutation);
    let lost = &["acknowledged and lost"][..];
    assert_noticed(mutated(Mutation::NoDedupe), None, &["counted 2 times"]);
    assert_noticed(mutated(Mutation::EarlyAcknowledgement), None, lost);
    // Another report than the one that is kept, or one more.
    let drawn = &["identifiers of", "counted 2 times", "gets 201"][..];
    for (mistake, words) in [
        (Mistake::SendsBeforeItIsStored, drawn),
        (Mistake::DrawsAgainOnRetry, drawn),
        (Mistake::TakesAny200ForAReceipt, lost),
        (Mistake::IgnoresWhatAWriteExpects, drawn),
    ] {
        assert_noticed(Faults::default, Some(mistake), words);
    }
}

fn assert_noticed(faults: impl Fn() -> Faults, mistake: Option<Mistake>, words: &[&str]) {
    let violations = (0..40).filter_map(|seed| {
        let operations = generate(seed);
        play(seed, Engine::Embedded, &operations, faults(), mistake).err()
    });
    let expected = violations.filter(|text| words.iter().any(|word| text.contains(word)));
    assert_eq!(expected.take(6).count(), 6, "{mistake:?}: {words:?}");
}
