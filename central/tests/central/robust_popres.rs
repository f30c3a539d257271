//! Times on the stylised genes among outliers of Section 5.2 of the robust PCA paper: N = 2,387, D = 10,000,
//! r = 2. The maps themselves are `eigenveil reproduce 000-figure-3`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use eigenveil_central::{
    Neighbours, NoiseRule, Request, Rows, generator,
    robust::{Glad, GladForm, Reaper, ReaperForm},
};
use eigenveil_estimation::linalg::{Threads, cross_product, orthonormalize, product};
use eigenveil_shared::preprocess::{Norm, Row};
use nalgebra::DMatrix;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};

use crate::{
    common::shared_rows,
    tables::{prepared, private},
};

const OUTLIERS: usize = 1_000;

fn gaussian(rows: usize, columns: usize, rng: &mut eigenveil_central::Generator) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}

/// Three values, −1, 0 and 1 (the paper's 0, 1 and 2, centred): the thirds of a Gaussian of this matrix's scale.
fn alleles(mut values: DMatrix<f64>) -> DMatrix<f64> {
    let scale = values.norm() / (values.len() as f64).sqrt();
    values.apply(|x| *x = f64::from(*x > 0.43 * scale) - f64::from(*x < -0.43 * scale));
    values
}

/// The 1,387 people with their places, then the outliers, `D` columns; `None` where the data are not there. The scores of the
/// twenty components carry the roots of their eigenvalues: the files hold unit columns.
fn stylised(d: usize) -> Option<(Rows, DMatrix<f64>)> {
    let scores = shared_rows("popres_pcs.npy")?;
    let eigenvalues = shared_rows("popres_eigenvalues.npy")?;
    let labels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/popres_labels.csv");
    let labels = std::fs::read_to_string(labels).ok()?;
    let mut rng = generator(Some(1)).unwrap();
    let (n, k) = (scores.len(), scores[0].values().len());
    let people = DMatrix::from_fn(n, k, |i, j| {
        scores[i].values()[j] * eigenvalues[j].values()[0].sqrt()
    });
    let people = alleles(product(&people, &gaussian(k, d, &mut rng)));
    let uniform = DMatrix::from_fn(OUTLIERS, 30, |_, _| rng.random_range(-0.5..0.5));
    let outliers = alleles(product(&uniform, &gaussian(30, d, &mut rng)));
    let raw: Vec<Row> = people
        .row_iter()
        .chain(outliers.row_iter())
        .map(|row| Row::new(row.iter().copied().collect()))
        .collect();
    let places: Vec<f64> = labels
        .lines()
        .skip(1)
        .flat_map(|line| {
            // From the end: a name may have a comma.
            let fields: Vec<&str> = line.rsplit(',').collect();
            [fields[5].parse().unwrap(), fields[4].parse().unwrap()]
        })
        .collect();
    let places = DMatrix::from_row_slice(places.len() / 2, 2, &places);
    assert_eq!(places.nrows(), n);
    Some((prepared(&raw, Norm::Normalize), places))
}

/// The share of the places' variance that a linear function of the people's scores on `subspace` gives.
fn map_share(rows: &Rows, subspace: &DMatrix<f64>, places: &DMatrix<f64>) -> f64 {
    let n = places.nrows();
    let columns = DMatrix::from_iterator(
        rows.dimension(),
        n,
        rows.iter()
            .take(n)
            .flat_map(|row| row.as_slice().iter().copied()),
    );
    let mut scores = cross_product(&columns, subspace);
    let mut wanted = places.clone();
    for matrix in [&mut scores, &mut wanted] {
        for mut column in matrix.column_iter_mut() {
            let mean = column.mean();
            column.add_scalar_mut(-mean);
        }
    }
    let fitted = cross_product(&orthonormalize(scores).unwrap(), &wanted);
    fitted.norm_squared() / wanted.norm_squared()
}

/// Whole runs, timed, one line each: `method,D,iterations,seconds,true_epsilon,map_r2,answer_seconds`, the last one those of the whole
/// in which REAPER's average becomes a subspace: once in a run, however few its iterations. `benches/popres.py` starts it and puts numpy
/// beside it. By hand:
/// `POPRES_D=2000 POPRES_METHODS=dp-gd-reap,dp-sgd-reap cargo test --release --workspace --test central robust_popres::timed_runs -- --ignored --nocapture`.
///
/// `POPRES_STEPS`: that many iterations of REAPER, with the noise of so short a run. Otherwise, at
/// ε = 4, δ = 1e-5, replace: 100 iterations over all rows (the paper's number for REAPER), 500 over batches for `dp-sggd`, and three of
/// the mirror descents above D = 2,000, whose time per iteration is the same in all.
#[test]
#[ignore = "minutes to an hour; prints times"]
fn timed_runs() {
    let set = |name| std::env::var(name).ok();
    let d = set("POPRES_D").map_or(10_000, |d| d.parse().unwrap());
    let Some((rows, places)) = stylised(d) else {
        eprintln!("SKIPPED timed_runs: the data are not there");
        return;
    };
    let methods = set("POPRES_METHODS")
        .unwrap_or("dp-ggd,dp-sggd,dp-gd-reap,dp-sgd-reap,dp-md-reap,dp-smd-reap".to_owned());
    let steps = set("POPRES_STEPS").map(|steps| steps.parse().unwrap());
    let many = steps.unwrap_or(100);
    let few = steps.unwrap_or(if d > 2_000 { 3 } else { 100 });
    let privacy = private(4.0, 1e-5, Neighbours::Replace, NoiseRule::Accounted);
    let request = Request::new(2, privacy);
    for name in methods.split(',') {
        let reaper = |form, iterations| Reaper {
            iterations: Some(iterations),
            ..Reaper::new(form)
        };
        let method = match name {
            "dp-ggd" => Err(GladForm::DpGgd),
            "dp-sggd" => Err(GladForm::DpSggd),
            "dp-gd-reap" => Ok(reaper(ReaperForm::Gd, many)),
            "dp-sgd-reap" => Ok(reaper(ReaperForm::Sgd, many)),
            "dp-md-reap" => Ok(reaper(ReaperForm::Md, few)),
            "dp-smd-reap" => Ok(reaper(ReaperForm::Smd, few)),
            other => panic!("{other} is none of the six"),
        };
        let mut rng = generator(Some(2)).unwrap();
        let threads = Threads::available();
        let (seconds, answer, fit) = match method {
            Err(form) => {
                let method = Glad::new(form);
                let noise = method.calibrate(rows.n(), d, &privacy).unwrap();
                let started = Instant::now();
                let fit = threads
                    .run(|| method.fit_calibrated(&rows, &request, noise.as_ref(), &mut rng));
                (started.elapsed(), Duration::ZERO, fit.unwrap())
            }
            Ok(method) => {
                let noise = method.calibrate(rows.n(), &privacy).unwrap();
                let started = Instant::now();
                let fit = threads
                    .run(|| method.fit_calibrated(&rows, &request, noise.as_ref(), &mut rng));
                let elapsed = started.elapsed();
                let (average, fit) = fit.unwrap();
                assert!((average.trace() - 2.0).abs() < 1e-6);
                // Found again, and the same.
                let started = Instant::now();
                let answer = threads.run(|| average.leading(2, 1e-6)).unwrap();
                let answered = started.elapsed();
                assert_eq!(answer, fit.subspace);
                (elapsed, answered, fit)
            }
        };
        let share = map_share(&rows, &fit.subspace, &places);
        let steps = fit.facts.iter().find(|fact| fact.0 == "steps").unwrap().1;
        let holds = fit.privacy.and_then(|g| g.true_epsilon).unwrap();
        let (seconds, answer) = (seconds.as_secs_f64(), answer.as_secs_f64());
        println!("timed,{name},{d},{steps},{seconds:.2},{holds:.3},{share:.3},{answer:.2}");
    }
}
