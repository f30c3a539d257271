//! Expanding a seed executes the same number of instructions whatever the seed is, and preparing a row whatever its
//! cells and its weight are, counted by valgrind's callgrind (on a machine with AVX2, which valgrind shows to programs
//! that would use AVX-512). Seconds cannot be judged in a test: `cargo bench -p eigenveil-shared --bench timing`
//! measures.
//!
//! Without valgrind it says SKIPPED.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::{env, hint::black_box, process::Command};

use eigenveil_shared::{
    mechanism::double_cap::{SEED_LEN, expand},
    preprocess::{Feature, Norm, Preprocessing, Row, Weights},
};

/// The arguments that make this program expand a seed, or prepare a row, and end.
const EXPAND: &str = "expand";
const PREPARE: &str = "prepare";
/// Rows of every kind.
const ALL: &str = "all";

/// Kinds of rows: the cells and weights that their rows are drawn from.
const KINDS: [(&str, [f64; 4], [f64; 4]); 4] = [
    ("zeros", [1.0, 0.0, -2.0, 0.0], [1.0; 4]),
    ("missing", [1.0, f64::NAN, 0.0, -2.0], [1.0; 4]),
    ("tiny", [1.0, 1e-310, 1e-155, -1e-80], [1.0; 4]),
    ("weights", [1.0, 0.5, -2.0, 3.0], [1.0, 0.25, 1e-30, 7.0]),
];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, EXPAND, p, byte] => {
            let byte = byte.parse().expect("a byte");
            return expand_one(p.parse().expect("a dimension"), byte);
        }
        [_, PREPARE, kind, row] => return prepare_rows(kind, row.parse().expect("a number")),
        _ => {}
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: valgrind is not installed; nothing was counted");
        return;
    }
    for p in ["2", "40", "403"] {
        // p = 2: a seed has a tail coordinate (|q| > 0.425) with probability 0.28, so some have and some have not.
        let counts = instructions(EXPAND, p, 12);
        assert!(
            all_equal(&counts),
            "p = {p}: the number of instructions depends on the seed: {counts:?}"
        );
        println!("p = {p}: {} instructions for every seed", counts[0]);
    }
    let counts = instructions(PREPARE, ALL, 40);
    if !all_equal(&counts) {
        for (kind, ..) in KINDS {
            println!("{kind}: {:?}", instructions(PREPARE, kind, 40));
        }
        panic!("the number of instructions depends on the row (kinds above): {counts:?}");
    }
    println!("{} instructions for a row of each kind", counts[0]);
    println!("test instructions ... ok");
}

fn expand_one(p: usize, byte: u8) {
    let mut z = vec![0.0; p];
    for _ in 0..20 {
        black_box(expand(&[byte; SEED_LEN], &mut z));
    }
}

/// Prepares row number `number` of each kind that is asked for, for all sorts of studies.
fn prepare_rows(asked: &str, number: u64) {
    for (kind, cells, weights) in KINDS {
        if asked != ALL && asked != kind {
            continue;
        }
        for p in [3, 40, 403] {
            // Looked up, so that making the row takes the same instructions, too.
            let cell = |j| black_box(cells)[random(number, j) % 4];
            let row = Row::new((0..p).map(cell).collect());
            let weight = black_box(weights)[random(number, p) % 4];
            for constants in studies(p, kind == "missing") {
                let preprocessor = constants.preprocessor().expect("good constants");
                black_box(preprocessor.prepare(&row).expect("p values"));
                let weighted = preprocessor.prepare_weighted(&row, weight);
                let (_, warning) = weighted.expect("a study with weights");
                assert!(warning.is_none(), "a row that can be used");
            }
        }
    }
}

/// Public constants of all sorts; a row with a missing cell can be used by those with features only.
fn studies(p: usize, missing: bool) -> Vec<Preprocessing> {
    let feature = |j: usize| Feature::new(format!("x{j:03}"), (j % 3) as f64, 0.5).observed(0.5);
    let named: Option<Vec<_>> = Some((0..p).map(feature).collect());
    let features = if missing {
        vec![named]
    } else {
        vec![None, named]
    };
    let norms = [
        Norm::Normalize,
        Norm::Clip { radius: 2.0 },
        Norm::Require { radius: 1e6 },
    ];
    let mut studies = Vec::new();
    for features in features {
        for norm in norms {
            for centring in [None, Some(0.5)] {
                studies.push(Preprocessing {
                    features: features.clone(),
                    centring,
                    weights: Some(Weights::default()),
                    ..Preprocessing::new(p, norm)
                });
            }
        }
    }
    studies
}

/// A number without a pattern (splitmix64), by the same instructions for all.
fn random(number: u64, place: usize) -> usize {
    let mut z = ((number << 32) | place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 40) as usize
}

fn all_equal(counts: &[u64]) -> bool {
    counts.windows(2).all(|pair| pair[0] == pair[1])
}

/// How many instructions this program executes with these two arguments and each of `repeats` numbers.
fn instructions(mode: &str, first: &str, repeats: usize) -> Vec<u64> {
    // Numbers of three digits: reading the arguments takes one number of instructions, too.
    let numbers = (100..).take(repeats);
    let count = |number: u8| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe().expect("this program"))
            .args([mode, first, &number.to_string()])
            .output()
            .expect("valgrind runs");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines()
            .find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok())
            .unwrap_or_else(|| panic!("no count in what callgrind says: {text}"))
    };
    numbers.map(count).collect()
}
