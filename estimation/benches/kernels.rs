//! The decoding of `double-cap` reports, beside its lower bound in the same run: the expansion of the seeds alone.
//!
//! `cargo bench -p eigenveil-estimation --bench kernels`.

use std::hint::black_box;

use eigenveil_estimation::accumulate::SeedSum;
use eigenveil_shared::mechanism::double_cap::{Seed, expand};

#[path = "../../shared/benches/stopwatch/mod.rs"]
mod stopwatch;
use stopwatch::measure;

fn main() {
    for p in [40, 400, 2_000] {
        // Whole blocks, so that no partial block remains at the end.
        let seeds: Vec<Seed> = (0..512_u128).map(|i| (i * i).to_le_bytes()).collect();
        let units = Some((seeds.len(), "seeds"));
        let Ok(mut sum) = SeedSum::new(p) else {
            unreachable!("p ≥ 1")
        };
        measure(
            &format!("double_cap_decode/decode-and-add/{p}"),
            21,
            units,
            || {
                black_box(&seeds).iter().for_each(|seed| sum.add(seed));
            },
        );
        let mut normals = vec![0.0; p];
        measure(
            &format!("double_cap_decode/floor-expand/{p}"),
            21,
            units,
            || {
                for seed in black_box(&seeds) {
                    black_box(expand(seed, black_box(&mut normals)));
                }
            },
        );
    }
}
