//! Estimates of studies of sites: oracles, errors by target, comparison, liars. Tests of minutes are in `sites_at_length`.

use std::num::NonZeroUsize;

use eigenveil_estimation::{
    Cancel, Request, SiteSum, check_site_settings, estimate_sites,
    linalg::symmetric_eigen,
    models::{Model, uniform_frame},
    simulate::{RowSource, SiteExperiment, run_sites},
    sites_in_sentences,
    statistics::MomentEstimate,
    to_json,
};
use eigenveil_shared::{
    api::{Lambda, SparseSettings},
    codec::SiteReportFormat,
    estimate::{ComponentCount, Estimate},
    mechanism::{NoiseModel, table::RowShares},
    packed::PackedSymmetric,
    preprocess::Row,
    privacy::Budget,
    site_estimate::{SiteVerdict, VarianceIntervals},
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms, SiteWeights},
};
use nalgebra::{DMatrix, DVector};
use rand::{Rng, RngExt, SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal, StudentT};

pub(crate) fn study(
    p: usize,
    epsilon: f64,
    centring: Option<f64>,
    site_weights: SiteWeights,
) -> SiteStudyParams {
    let terms = SiteTerms {
        site_weights,
        ..SiteTerms::new(1_000_000)
    };
    let budget = Budget::approximate(epsilon, 1e-7).unwrap();
    SiteStudyParams::freeze(SiteStudyDesign {
        centring,
        ..SiteStudyDesign::new(p, budget, terms)
    })
    .unwrap()
}

pub(crate) fn estimated(reports: &[SiteSum], params: &SiteStudyParams, k: usize) -> Estimate {
    let request = Request {
        name: "sites",
        k: ComponentCount::Fixed(k),
        sparse: None,
        moment: true,
        memory_bytes: 1 << 30,
        stream_from: usize::MAX,
    };
    estimate_sites(reports, params, &request, Cancel::NEVER).unwrap()
}

pub(crate) fn normal<R: Rng>(rng: &mut R) -> f64 {
    StandardNormal.sample(rng)
}

/// The report of a site with these raw rows, as it sends it.
pub(crate) fn report(
    params: &SiteStudyParams,
    site: usize,
    rows: &[Vec<f64>],
    rng: &mut ChaCha20Rng,
) -> SiteSum {
    let shares = RowShares::of_rows(rows.len());
    let row = |number: usize| Row::new(rows[number].clone());
    let sum = params.sum(&shares, NonZeroUsize::MIN, row).unwrap();
    let payload = SiteReportFormat::new(params).payload(sum.perturb_with(rng));
    let table = params.mechanism().decode(&payload.unwrap());
    SiteSum {
        site: format!("site {site}"),
        rows_noisy: table.rows,
        sum: table.moment,
    }
}

/// A report without noise.
fn exact(params: &SiteStudyParams, site: usize, rows: &[Vec<f64>]) -> SiteSum {
    let mut sum = PackedSymmetric::zeros(params.report_dimension());
    let preprocessing = params.preprocessing();
    for row in rows {
        let row = preprocessing
            .preprocessor()
            .unwrap()
            .prepare(&Row::new(row.clone()));
        sum.add_outer(row.unwrap().as_slice(), 1.0);
    }
    SiteSum {
        site: format!("site {site}"),
        rows_noisy: rows.len() as f64,
        sum,
    }
}

fn drawn_rows(rng: &mut ChaCha20Rng, count: usize, mean: [f64; 4]) -> Vec<Vec<f64>> {
    let row = |rng: &mut ChaCha20Rng| {
        let (first, second) = (3.0 * normal(rng), 1.5 * normal(rng));
        let centred = [first + second, first - second, normal(rng), normal(rng)];
        centred.iter().zip(mean).map(|(x, mean)| x + mean).collect()
    };
    (0..count).map(|_| row(rng)).collect()
}

/// Without noise in the reports the components are those of all rows together, around their mean, to rounding; a site
/// that sends its table in two parts is the same site, with one more draw of noise.
#[test]
fn without_noise_it_is_the_pca_of_all_rows() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let params = study(4, 1.0, Some(0.5), SiteWeights::Rows);
    let tables: Vec<Vec<Vec<f64>>> = [900, 600, 297]
        .iter()
        .map(|&size| drawn_rows(&mut rng, size, [1.0, 0.0, 2.0, -1.0]))
        .collect();
    let reports: Vec<SiteSum> = (0..3).map(|j| exact(&params, j, &tables[j])).collect();
    let estimate = estimated(&reports, &params, 2);
    let all: Vec<DVector<f64>> = tables
        .concat()
        .into_iter()
        .map(|row| DVector::from_vec(row).normalize())
        .collect();
    let n = all.len() as f64;
    let mean = all.iter().sum::<DVector<f64>>() / n;
    let covariance: DMatrix<f64> = all
        .iter()
        .map(|row| (row - &mean) * (row - &mean).transpose())
        .sum::<DMatrix<f64>>()
        / n;
    let truth = symmetric_eigen(&covariance).unwrap();
    for j in 0..2 {
        let loadings = DVector::from_vec(estimate.components[j].loadings.clone());
        assert!((loadings.dot(&truth.vectors.column(j)).abs() - 1.0).abs() < 1e-12);
        assert!((estimate.eigenvalues[j] - truth.values[j]).abs() < 1e-12);
    }
    let estimated_mean = DVector::from_vec(estimate.mean.clone().unwrap());
    assert!((estimated_mean - &mean).amax() < 1e-12);
    let moment = MomentEstimate::of_document(&estimate).unwrap();
    assert!((moment.raw() - &covariance).amax() < 1e-12);
    let sites = estimate.sites.as_ref().unwrap();
    assert!((sites.rows - 1_797.0).abs() < 1e-9 && sites.sites.len() == 3);
    assert!((sites.n_eff - 1_797.0_f64.powi(2) / 3.0).abs() < 1e-6);
    assert!((sites.rows_eff - 1_797.0).abs() < 1e-9);
    let json = to_json(&estimate).unwrap();
    assert_eq!(serde_json::from_str::<Estimate>(&json).unwrap(), estimate);
    // The first site's table in two parts.
    let parts = [
        exact(&params, 0, &tables[0][..400]),
        exact(&params, 0, &tables[0][400..]),
        reports[1].clone(),
        reports[2].clone(),
    ];
    let in_parts = estimated(&parts, &params, 2);
    assert!((in_parts.eigenvalues[0] - estimate.eigenvalues[0]).abs() < 1e-12);
    let of_parts = in_parts.sites.as_ref().unwrap();
    assert_eq!(
        (in_parts.n, of_parts.sites.len(), of_parts.sites[0].reports),
        (4, 3, 2)
    );
    assert!((of_parts.n_eff - 1_797.0_f64.powi(2) / 4.0).abs() < 1e-6);
}

/// An estimate of a few sites says which findings it lacks, and why.
#[test]
fn fewer_sites_than_a_finding_takes_are_told_so() {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    let params = study(4, 4.0, Some(0.5), SiteWeights::Rows);
    let mut table = |j: usize, size: usize| {
        let rows = drawn_rows(&mut rng, size, [0.0; 4]);
        report(&params, j, &rows, &mut rng)
    };
    let reports: Vec<SiteSum> = (0..5).map(|j| table(j, 500)).collect();
    let large = table(9, 9_000);
    for count in 1..=5 {
        let estimate = estimated(&reports[..count], &params, 2);
        let sites = estimate.sites.as_ref().unwrap();
        let sentences = sites_in_sentences(&estimate).join(" ");
        assert_eq!(sites.comparison.is_some(), count >= 2);
        assert_eq!(sites.sites[0].movement.is_some(), count >= 2);
        assert_eq!(sites.error_of_sites.is_some(), count >= 3);
        assert_eq!(sites.intervals[0].sites.is_some(), count >= 3);
        assert_eq!(sites.robust.is_some(), count >= 5);
        for (words, until) in [
            ("nothing to be compared with", 1),
            ("spread between sites takes 3", 2),
            ("among 5 or more", 4),
        ] {
            assert_eq!(
                sentences.contains(words),
                count <= until,
                "{count}: {sentences}"
            );
        }
        assert!(sites.intervals[0].rows.is_some() && sites.error_of_rows.is_some());
        assert!(sites.error_of_rows < estimate.expected_error, "{sentences}");
    }
    // One of three has nearly everything.
    let uneven = [large, reports[0].clone(), reports[1].clone()];
    let estimate = estimated(&uneven, &params, 2);
    let sites = estimate.sites.as_ref().unwrap();
    assert!(sites.error_of_sites.is_none() && sites.sites_eff < 2.0);
    assert!(
        sites_in_sentences(&estimate)
            .join(" ")
            .contains("90 % of the weight")
    );
}

#[test]
fn what_cannot_be_estimated_is_refused() {
    let params = study(4, 1.0, None, SiteWeights::Rows);
    let cross_validated = SparseSettings {
        lambda: Lambda::CrossValidated,
        ..SparseSettings::default()
    };
    let error = check_site_settings(&cross_validated).unwrap_err();
    assert_eq!(error.field(), Some("lambda"));
    check_site_settings(&SparseSettings::default()).unwrap();
    let request = Request {
        name: "sites",
        k: ComponentCount::Fixed(2),
        sparse: Some(&cross_validated),
        moment: false,
        memory_bytes: 1 << 30,
        stream_from: usize::MAX,
    };
    let refused = |reports: &[SiteSum], request: &Request<'_>| {
        let refused = estimate_sites(reports, &params, request, Cancel::NEVER);
        refused.unwrap_err().detail().to_owned()
    };
    let rows = vec![vec![1.0, 0.0, 0.0, 0.0]; 30];
    let few = [exact(&params, 0, &rows)];
    assert!(refused(&few, &request).contains("sites are not"));
    let plain = Request {
        sparse: None,
        ..request
    };
    assert!(refused(&few, &plain).contains("count 30 usable rows"));
    assert!(refused(&[], &plain).contains("no site"));
    let cancelled = || true;
    let stopped = estimate_sites(&few, &params, &plain, Cancel::when(&cancelled));
    assert!(stopped.is_err());
}

/// Predicted and expected errors are those measured, alike or not, where rows or noise decide: within 10 % (the mean of 12
/// errors is good to about 2 %).
#[test]
fn errors_are_predicted() {
    for (sizes, epsilon, weights, tilt) in [
        (vec![20_000], 4.0, SiteWeights::Rows, None),
        (vec![2_000; 10], 1.0, SiteWeights::Rows, None),
        (
            vec![12_000, 4_000, 2_000, 1_000, 1_000],
            1.0,
            SiteWeights::Precision,
            None,
        ),
        (vec![2_000; 10], 1.0, SiteWeights::Rows, Some(11.0)),
    ] {
        let params = study(40, epsilon, None, weights);
        let experiment = SiteExperiment {
            params: &params,
            source: RowSource::Model(Model::spiked(40, 5, 20.0)),
            sizes: sizes.clone(),
            tilt,
            k: 5,
            sparse: None,
            repeats: 12,
            seed: 3,
            cancel: Cancel::NEVER,
        };
        let (_, summary) = run_sites(&experiment, &mut |_| ()).unwrap();
        let [predicted, expected] = [summary.predicted_error, summary.expected_error]
            .map(|error| error.unwrap() / summary.error_mean);
        assert!(
            (predicted - 1.0).abs() < 0.1,
            "{sizes:?} {tilt:?}: {predicted}"
        );
        assert!(
            (expected - 1.0).abs() < 0.12,
            "{sizes:?} {tilt:?}: {expected}"
        );
    }
}

/// Rows ±eᵢ with probability πᵢ: their second moment is diag π, and a row's square along an axis varies by as much as any
/// square in [0, 1] with this mean can. Sites differ in their π by `spread`.
pub(crate) fn axes(
    params: &SiteStudyParams,
    sizes: &[u64],
    spread: f64,
    rng: &mut ChaCha20Rng,
) -> (Vec<SiteSum>, [Vec<f64>; 3]) {
    const SHARES: [f64; 5] = [0.38, 0.25, 0.15, 0.12, 0.10];
    let all: u64 = sizes.iter().sum();
    let (mut of_rows, mut of_populations) = (vec![0.0; 5], vec![0.0; 5]);
    let mut reports = Vec::new();
    let NoiseModel::Gaussian {
        off_diagonal_sd,
        diagonal_sd,
    } = params.mechanism().noise_model()
    else {
        panic!("tables have Gaussian noise");
    };
    for (j, &size) in sizes.iter().enumerate() {
        let shift: f64 = spread * normal(rng);
        let mut shares = SHARES;
        // From the first to the second and the last three, so that each of three components differs.
        for (share, part) in shares.iter_mut().zip([1.0, -0.6, -0.2, -0.1, -0.1]) {
            *share += shift * part;
        }
        let mut counts = [0.0_f64; 5];
        for _ in 0..size {
            let mut left: f64 = rng.random();
            let axis = shares.iter().position(|share| {
                left -= share;
                left < 0.0
            });
            counts[axis.unwrap_or(4)] += 1.0;
        }
        let mut sum = PackedSymmetric::zeros(5);
        for (axis, count) in counts.iter().enumerate() {
            of_rows[axis] += count / all as f64;
            of_populations[axis] += shares[axis] * size as f64 / all as f64;
            let mut unit = [0.0; 5];
            unit[axis] = 1.0;
            sum.add_outer(&unit, *count);
        }
        let mut entries = sum.as_mut_slice().iter_mut();
        for a in 0..5 {
            for b in a..5 {
                let sd = if a == b { diagonal_sd } else { off_diagonal_sd };
                *entries.next().unwrap() += sd * normal(rng);
            }
        }
        reports.push(SiteSum {
            site: format!("site {j}"),
            rows_noisy: size as f64 + params.mechanism().count_sd() * normal(rng),
            sum,
        });
    }
    (reports, [of_rows, of_populations, SHARES.to_vec()])
}

/// How many of the intervals of two components hold the truth, by target, and how many there are.
pub(crate) fn covered(
    sizes: &[u64],
    epsilon: f64,
    spread: f64,
    studies: u32,
    seed: u64,
) -> ([u32; 3], u32) {
    let params = study(5, epsilon, None, SiteWeights::Rows);
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut held = [0; 3];
    for _ in 0..studies {
        let (reports, truths) = axes(&params, sizes, spread, &mut rng);
        let estimate = estimated(&reports, &params, 2);
        let sites = estimate.sites.unwrap();
        for j in 0..2 {
            let VarianceIntervals {
                rows,
                populations,
                sites,
            } = sites.intervals[j];
            let intervals = [rows, populations, sites].map(Option::unwrap);
            for ((held, (low, high)), truth) in held.iter_mut().zip(intervals).zip(&truths) {
                *held += u32::from((low..=high).contains(&truth[j]));
            }
        }
    }
    (held, 2 * studies)
}

/// Intervals of 95 % for three targets, 80 studies each: fewer than 88 % of 160 hold once in 10⁴ tests.
#[test]
fn intervals_hold_what_they_are_for() {
    for (sizes, epsilon, spread) in [
        (&[1_500_u64, 1_000, 500][..], 2.0, 0.0),
        (&[1_000; 10], 1.0, 0.02),
    ] {
        let (held, all) = covered(sizes, epsilon, spread, 80, 4);
        for (target, held) in held.into_iter().enumerate() {
            let share = f64::from(held) / f64::from(all);
            assert!(share >= 0.88, "{sizes:?} target {target}: {share}");
        }
    }
}

/// Rows of thirty features, three directions of which hold more; normal, or of Student's law with three degrees.
pub(crate) fn batch(
    rng: &mut ChaCha20Rng,
    (rows, heavy): (usize, bool),
    frame: &DMatrix<f64>,
    shift: &dyn Fn(usize) -> f64,
) -> Vec<Vec<f64>> {
    let student = StudentT::new(3.0).unwrap();
    let p = frame.nrows();
    let row = |rng: &mut ChaCha20Rng| {
        let scores = DVector::from_fn(frame.ncols(), |_, _| 2.0 * normal(rng));
        let common = frame * scores;
        let entry = |rng: &mut ChaCha20Rng| match heavy {
            true => student.sample(rng),
            false => normal(rng),
        };
        (0..p).map(|i| entry(rng) + common[i] + shift(i)).collect()
    };
    (0..rows).map(|_| row(rng)).collect()
}

/// Standard deviation of a feature of such rows.
pub(crate) fn deviation(heavy: bool) -> f64 {
    (if heavy { 3.0 } else { 1.0 } + 4.0 * 3.0 / 30.0_f64).sqrt()
}

/// Verdicts on ten sites with 1,000 rows, of which the last is shifted, at ε = 1.
pub(crate) fn verdicts(
    rng: &mut ChaCha20Rng,
    params: &SiteStudyParams,
    heavy: bool,
    shift: &dyn Fn(usize) -> f64,
) -> Vec<SiteVerdict> {
    let frame = uniform_frame(rng, 30, 3).unwrap();
    let none = |_: usize| 0.0;
    let reports: Vec<SiteSum> = (0..10)
        .map(|j| {
            let site_shift: &dyn Fn(usize) -> f64 = if j == 9 { shift } else { &none };
            let rows = batch(rng, (1_000, heavy), &frame, site_shift);
            report(params, j, &rows, rng)
        })
        .collect();
    let estimate = estimated(&reports, params, 3);
    let sites = estimate.sites.unwrap();
    sites
        .sites
        .iter()
        .map(|line| line.verdict.unwrap())
        .collect()
}

/// Shifts of half a standard deviation in one feature, and of a fifth in all, are seen, and no innocent site is named; no
/// site without one. A false alarm has a probability of 1e-3 at most in each of the 8 studies.
#[test]
fn a_batch_effect_is_seen_and_no_innocent_site_is_named() {
    let params = study(
        30,
        1.0,
        Some(std::f64::consts::FRAC_1_SQRT_2),
        SiteWeights::Rows,
    );
    let mut rng = ChaCha20Rng::seed_from_u64(5);
    for heavy in [false, true] {
        let sd = deviation(heavy);
        let shifts: [(&dyn Fn(usize) -> f64, bool); 4] = [
            (&|_| 0.0, false),
            (&|i| if i == 7 { 0.5 * sd } else { 0.0 }, true),
            (&|_| 0.2 * sd, true),
            (&|_| 3.0 * sd, true),
        ];
        for (shift, differs) in shifts {
            let site_verdicts = verdicts(&mut rng, &params, heavy, shift);
            assert!(
                site_verdicts[..9]
                    .iter()
                    .all(|own| *own == SiteVerdict::Alike),
                "{site_verdicts:?}"
            );
            assert_eq!(
                site_verdicts[9] == SiteVerdict::OtherMeans,
                differs,
                "{site_verdicts:?}"
            );
        }
    }
}

/// Sentences say of two sites that nobody can tell which one is strange, and of one that counts no rows that it is not
/// compared.
#[test]
fn what_a_comparison_cannot_tell_is_said() {
    let params = study(4, 1.0, Some(0.5), SiteWeights::Rows);
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let mut table = |j: usize, mean: f64| {
        let rows = drawn_rows(&mut rng, 2_000, [mean, 0.0, 2.0 * mean, -mean]);
        exact(&params, j, &rows)
    };
    let (usual, other) = (table(0, 1.0), table(1, -1.0));
    let estimate = estimated(&[usual.clone(), other], &params, 1);
    let lines = &estimate.sites.as_ref().unwrap().sites;
    assert!(lines.iter().all(|line| line.one_of_several));
    let sentences = sites_in_sentences(&estimate).join(" ");
    for said in [&estimate.warnings[0], &sentences] {
        assert!(said.contains("nobody can tell which one differs"), "{said}");
        assert!(!said.contains("not like the others"), "{said}");
    }
    let mut reports: Vec<SiteSum> = (0..3).map(|_| usual.clone()).collect();
    for (j, report) in reports.iter_mut().enumerate() {
        report.site = format!("site {j}");
    }
    reports.push(exact(&params, 3, &[]));
    reports[3].sum.add_outer(&[0.0, 1.0, 0.0, 0.0, 0.0], 122.0);
    let estimate = estimated(&reports, &params, 1);
    let sites = estimate.sites.as_ref().unwrap();
    assert_eq!(sites.sites[3].verdict, None);
    assert!(!sites.sites[3].one_of_several);
    assert_eq!(sites.comparison.unwrap().sites, 3);
    let sentences = sites_in_sentences(&estimate).join(" ");
    assert!(sentences.contains("Not compared: site 3."), "{sentences}");
    let mut codes = estimate.warning_codes.iter();
    assert!(codes.all(|code| code != "sites-differ"));
}

/// One of ten sites sends rows that it made up, all in one direction: its movement, its verdict and the robust estimate
/// show it, and the warning names it.
#[test]
fn made_up_rows_show() {
    let params = study(12, 1.0, None, SiteWeights::Rows);
    let mut rng = ChaCha20Rng::seed_from_u64(6);
    let frame = uniform_frame(&mut rng, 12, 1).unwrap();
    let mut reports: Vec<SiteSum> = (0..9)
        .map(|j| {
            let rows = batch(&mut rng, (2_000, false), &frame, &|_| 0.0);
            report(&params, j, &rows, &mut rng)
        })
        .collect();
    // Halfway between the component and a direction beside it, which moves it most.
    let axis = DVector::from_fn(12, |i, _| f64::from(u8::from(i == 0)));
    let component = frame.column(0).into_owned();
    let beside = (&axis - &component * axis.dot(&component)).normalize();
    let made_up = (component + beside).normalize();
    let made_up = vec![made_up.as_slice().to_vec(); 2_000];
    reports.push(report(&params, 9, &made_up, &mut rng));
    let estimate = estimated(&reports, &params, 1);
    let sites = estimate.sites.as_ref().unwrap();
    let liar = &sites.sites[9];
    assert_eq!(liar.verdict, Some(SiteVerdict::OtherMoments));
    assert!(
        sites.sites[..9]
            .iter()
            .all(|line| line.verdict == Some(SiteVerdict::Alike))
    );
    assert!(
        liar.movement > liar.expected_movement.map(|alike| 4.0 * alike),
        "{liar:?}"
    );
    assert!(liar.robust_factor < Some(0.2) && sites.sites[0].robust_factor > Some(0.8));
    assert!(
        estimate.warnings[0].contains("site 9 in its spread"),
        "{:?}",
        estimate.warnings
    );
    assert_eq!(estimate.warning_codes[0], "sites-differ");
    // The robust component is nearer to the truth.
    let along = |loadings: &[f64]| {
        let loadings = DVector::from_column_slice(loadings);
        loadings.dot(&frame.column(0)).abs()
    };
    let robust = sites.robust.as_ref().unwrap();
    assert!(along(&robust.loadings[0]) > along(&estimate.components[0].loadings));
}

/// Standard errors of the moment's entries are those of repeated studies: the mean square of 150 standardised errors of
/// each kind is within 0.35 of 1 (three standard deviations).
#[test]
fn the_moment_has_the_errors_of_draws_and_rows() {
    // So much noise that it decides: these rows vary more than elliptical ones.
    let params = study(5, 0.5, None, SiteWeights::Rows);
    let mut rng = ChaCha20Rng::seed_from_u64(7);
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for _ in 0..75 {
        let (reports, truths) = axes(&params, &[600, 300, 300], 0.0, &mut rng);
        let moment = MomentEstimate::of_document(&estimated(&reports, &params, 1)).unwrap();
        for i in [0, 4] {
            let error = moment.raw()[(i, i)] - truths[1][i];
            on.push((error / moment.standard_error(i, i)).powi(2));
        }
        for (i, j) in [(0, 1), (2, 4)] {
            off.push((moment.raw()[(i, j)] / moment.standard_error(i, j)).powi(2));
        }
    }
    let mean = |squares: &[f64]| squares.iter().sum::<f64>() / squares.len() as f64;
    // Entries off the diagonal have no sampling here; elliptical rows would have some.
    assert!((mean(&on) - 1.0).abs() < 0.35, "{}", mean(&on));
    assert!(mean(&off) > 0.4 && mean(&off) < 1.35, "{}", mean(&off));
}

/// A row-sparse estimate of tables: components on their features, the components without each site on the same ones.
#[test]
fn a_sparse_estimate_has_its_sites_too() {
    let params = study(20, 4.0, None, SiteWeights::Rows);
    let mut rng = ChaCha20Rng::seed_from_u64(8);
    let population = Model::sparse(20, 1, 4, 20.0).draw(&mut rng).unwrap();
    let reports: Vec<SiteSum> = (0..3)
        .map(|j| {
            let rows: Vec<Vec<f64>> = (0..1_500).map(|_| population.row(&mut rng)).collect();
            report(&params, j, &rows, &mut rng)
        })
        .collect();
    let settings = SparseSettings::default();
    let request = Request {
        name: "sites",
        k: ComponentCount::Fixed(1),
        sparse: Some(&settings),
        moment: false,
        memory_bytes: 1 << 30,
        stream_from: usize::MAX,
    };
    let estimate = estimate_sites(&reports, &params, &request, Cancel::NEVER).unwrap();
    let sparse = estimate.sparse.as_ref().unwrap();
    for row in population.support() {
        assert!(sparse.support.contains(row), "{sparse:?}");
    }
    let sites = estimate.sites.as_ref().unwrap();
    assert!(sites.sites.iter().all(|line| line.movement.is_some()));
    assert!(sites.intervals[0].sites.is_some() && sites.error_of_sites.is_some());
}
