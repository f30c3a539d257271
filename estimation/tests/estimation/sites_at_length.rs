//! Tests of studies of sites that take minutes: `cargo test --release -p eigenveil-estimation --test estimation -- --ignored
//! sites_at_length`.

use eigenveil_estimation::{
    Cancel,
    models::Model,
    simulate::{RowSource, SiteExperiment, run_sites},
};
use eigenveil_shared::site_estimate::SiteVerdict;
use eigenveil_shared::site_study::SiteWeights::{self, Precision, Rows};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use super::sites::{covered, deviation, study, verdicts};

/// The table of `docs/derivations/sites.md`: p = 40, k = 5, spike 20, N = 100,000, δ = 1e-7, ten repeats. A mean of ten is
/// good to 3 %; predictions are within 10 %, measured errors within 12 % of the numbers there, which have two digits.
#[test]
#[ignore = "minutes"]
fn the_table_is_reproduced() {
    let by_rank: Vec<u64> = {
        let all: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        let sizes = (1..=100).map(|rank| (1e5 / all / f64::from(rank)).round() as u64);
        sizes.collect()
    };
    let even = |sites: u64| vec![100_000 / sites; sites as usize];
    type Line = (Vec<u64>, SiteWeights, Option<f64>, [Option<f64>; 3]);
    let lines: [Line; 8] = [
        (even(1), Rows, None, [Some(0.030), Some(0.016), Some(0.015)]),
        (
            even(10),
            Rows,
            None,
            [Some(0.081), Some(0.026), Some(0.016)],
        ),
        (
            even(100),
            Rows,
            None,
            [Some(0.248), Some(0.069), Some(0.024)],
        ),
        (
            even(1_000),
            Rows,
            None,
            [Some(0.79), Some(0.215), Some(0.060)],
        ),
        (
            by_rank.clone(),
            Rows,
            None,
            [Some(0.250), Some(0.068), Some(0.024)],
        ),
        (
            by_rank.clone(),
            Precision,
            None,
            [Some(0.106), Some(0.035), Some(0.020)],
        ),
        (
            by_rank.clone(),
            Rows,
            Some(11.0),
            [Some(0.262), Some(0.073), None],
        ),
        (
            by_rank,
            Precision,
            Some(11.0),
            [Some(0.269), Some(0.210), None],
        ),
    ];
    for (sizes, weights, tilt, measured) in lines {
        for (epsilon, known) in [0.25, 1.0, 4.0].into_iter().zip(measured) {
            let Some(known) = known else { continue };
            let params = study(40, epsilon, None, weights);
            let experiment = SiteExperiment {
                params: &params,
                source: RowSource::Model(Model::spiked(40, 5, 20.0)),
                sizes: sizes.clone(),
                tilt,
                k: 5,
                sparse: None,
                repeats: 10,
                seed: 9,
                cancel: Cancel::NEVER,
            };
            let (_, summary) = run_sites(&experiment, &mut |_| ()).unwrap();
            let measured = summary.error_mean;
            let line = format!("{} {weights} {tilt:?} {epsilon}: {measured}", sizes.len());
            assert!((measured / known - 1.0).abs() < 0.12, "{line}, not {known}");
            // Precision is for a population that all sites share.
            if tilt.is_none() || weights == Rows {
                let predicted = summary.predicted_error.unwrap();
                assert!(
                    (predicted / measured - 1.0).abs() < 0.1,
                    "{line}, predicted {predicted}"
                );
            }
        }
    }
}

/// Coverage of the three intervals at S = 3 and 10, with and without differences between the sites, 600 studies each: a
/// share of 1,200 is good to 0.7 %.
#[test]
#[ignore = "minutes"]
fn intervals_hold_as_often_as_they_say() {
    for (sizes, epsilon) in [
        (&[1_000_u64; 3][..], 1.0),
        (&[900, 600, 297], 4.0),
        (&[1_000; 10], 1.0),
        (&[4_000; 10], 4.0),
    ] {
        for spread in [0.0, 0.02] {
            let (held, all) = covered(sizes, epsilon, spread, 600, 10);
            let shares = held.map(|held| f64::from(held) / f64::from(all));
            for (target, share) in shares.into_iter().enumerate() {
                let fits = (0.915..0.985).contains(&share);
                assert!(fits, "{sizes:?} {spread} target {target}: {share}");
            }
        }
    }
}

/// 200 studies for each kind of rows and each shift. Without a shift 1e-3 of 400 is 0.4 false alarms: more than 4 once in
/// 10⁴ tests. No innocent site is named in more than 4 of the others.
#[test]
#[ignore = "minutes"]
fn batch_effects_over_two_hundred_studies() {
    let params = study(30, 1.0, Some(std::f64::consts::FRAC_1_SQRT_2), Rows);
    let mut rng = ChaCha20Rng::seed_from_u64(11);
    let (mut false_alarms, mut innocent) = (0, 0);
    for heavy in [false, true] {
        let sd = deviation(heavy);
        let shifts: [(&dyn Fn(usize) -> f64, bool); 3] = [
            (&|_| 0.0, false),
            (&|i| if i == 7 { 0.5 * sd } else { 0.0 }, true),
            (&|_| 0.2 * sd, true),
        ];
        for (shift, differs) in shifts {
            let mut seen = 0;
            for _ in 0..200 {
                let site_verdicts = verdicts(&mut rng, &params, heavy, shift);
                let named = site_verdicts[..9]
                    .iter()
                    .any(|own| *own != SiteVerdict::Alike);
                let last = site_verdicts[9] != SiteVerdict::Alike;
                seen += u32::from(site_verdicts[9] == SiteVerdict::OtherMeans);
                innocent += u32::from(named && differs);
                false_alarms += u32::from((named || last) && !differs);
            }
            assert!(
                !differs || seen >= 180,
                "heavy tails {heavy}: {seen} of 200 seen"
            );
        }
    }
    assert!(
        false_alarms <= 4,
        "{false_alarms} false alarms in 400 studies"
    );
    assert!(
        innocent <= 4,
        "innocent sites named in {innocent} of 800 studies"
    );
}
