//! Expanding a seed executes the same number of instructions whatever the seed is, counted by valgrind's
//! callgrind. (Seconds cannot be judged in a test. `cargo bench -p eigenveil-shared --bench timing` measures.)
//!
//! Without valgrind it says SKIPPED.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::{env, process::Command};

use eigenveil_shared::mechanism::double_cap::{SEED_LEN, expand};

/// The argument that makes this program expand one seed and end.
const CHILD: &str = "expand";

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let [_, mode, p, byte] = arguments.as_slice()
        && mode == CHILD
    {
        let p: usize = p.parse().expect("a dimension");
        let byte: u8 = byte.parse().expect("a byte");
        let mut z = vec![0.0; p];
        for _ in 0..20 {
            std::hint::black_box(expand(&[byte; SEED_LEN], &mut z));
        }
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: valgrind is not installed; nothing was counted");
        return;
    }
    for p in [2, 40, 403] {
        // p = 2: a seed has a tail coordinate (|q| > 0.425) with probability 0.28, so some have and some have not.
        let counts: Vec<u64> = (100..112).map(|byte| instructions(p, byte)).collect();
        assert!(
            counts.windows(2).all(|pair| pair[0] == pair[1]),
            "p = {p}: the number of instructions depends on the seed: {counts:?}"
        );
        println!(
            "p = {p}: {} instructions for every one of {} seeds",
            counts[0],
            counts.len()
        );
    }
    println!("test expansion_time ... ok");
}

fn instructions(p: usize, byte: u8) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe().expect("this program"))
        // Bytes of three digits: reading the arguments takes one number of instructions too.
        .args([CHILD, &p.to_string(), &byte.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines()
        .find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok())
        .unwrap_or_else(|| panic!("no count in what callgrind says: {text}"))
}
