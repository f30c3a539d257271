//! `sparse-pca`: row-sparse components by "tighten after relax".

mod penalty;
mod second_moment;

use eigenveil_estimation::{
    fantope::{embed, pursue, solve},
    linalg::top_k,
    models::uniform_frame,
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;
use rand::seq::index;

use self::{penalty::Penalty, second_moment::SecondMoment};
use crate::{
    AlgorithmInfo, Fit, Generator, Options, Request, Rows,
    baseline::Run,
    parameter::{LAMBDA, STARTS, SUPPORT},
    parts::trace::Tracer,
};

/// Default number of starts: only the relaxed one.
const DEFAULT_STARTS: usize = 1;

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "sparse-pca",
    source: "Wang, Lu & Liu 2014 (tighten after relax); Vu et al. 2013",
    description: "row-sparse components: Fantope relaxation, then sparse orthogonal iteration on a fixed number of features",
    guarantee: "none: it is the non-private sparse reference",
    parameters: &[LAMBDA, SUPPORT, STARTS.with_default(DEFAULT_STARTS as f64)],
    quadratic_memory: true,
    has_trace: false,
    ..AlgorithmInfo::nonprivate(Run::Table(fit))
};

struct Candidate {
    vectors: DMatrix<f64>,
    support: Vec<usize>,
    captured: f64,
}

impl Candidate {
    /// On the s features that a pursuit from `start` (`p × k`) ends with, or on those it begins with if they capture
    /// more.
    fn pursued(moment: &SecondMoment, start: &DMatrix<f64>, s: usize) -> Result<Self> {
        let (p, k) = start.shape();
        let [first, last] = pursue(moment, start, s)?;
        let first = Self::on_rows(moment, first, p, k)?;
        let last = Self::on_rows(moment, last, p, k)?;
        Ok(if first.captured > last.captured {
            first
        } else {
            last
        })
    }

    /// The k leading components of the matrix on these features.
    fn on_rows(moment: &SecondMoment, support: Vec<usize>, p: usize, k: usize) -> Result<Self> {
        let leading = top_k(&moment.block(&support), k)?;
        Ok(Self {
            vectors: embed(&leading.vectors, &support, p),
            captured: leading.values.sum(),
            support,
        })
    }
}

/// A uniformly random frame on s uniformly random features.
fn random_start(p: usize, s: usize, k: usize, rng: &mut Generator) -> Result<DMatrix<f64>> {
    let rows = index::sample(rng, p, s).into_vec();
    Ok(embed(&uniform_frame(rng, s, k)?, &rows, p))
}

/// The relaxation ([`solve`]) of the second-moment matrix, tightened ([`pursue`]) to exactly s features, and PCA on
/// them; s is what the relaxation selects if not set. The pursuit starts at the relaxed solution, then at uniformly
/// random frames on s random features; the result that captures most wins. Wang & Xu's experiments take the best of 50.
///
/// The relaxation is solved over the features that λ does not rule out ([`solve`] would drop the others too), so that
/// only they determine the running time.
fn fit(options: &Options, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
    let (p, k) = (rows.dimension(), request.k);
    let support = options.count(SUPPORT);
    let starts = options.count(STARTS).unwrap_or(DEFAULT_STARTS);
    let moment = SecondMoment::new(rows);
    let penalty = Penalty::new(&moment, options.number(LAMBDA), support, k);
    let relaxed = solve(
        &moment.block(&penalty.candidates),
        k,
        penalty.lambda,
        &penalty.settings,
        request.cancel,
    )?;
    let s = support.unwrap_or(relaxed.support.len());
    let pursue_from = |start: &DMatrix<f64>| Candidate::pursued(&moment, start, s);
    let mut best = pursue_from(&embed(&relaxed.vectors, &penalty.candidates, p))?;
    let mut best_start = 1;
    for start in 2..=starts {
        request.cancel.check()?;
        let candidate = pursue_from(&random_start(p, s, k, rng)?)?;
        if candidate.captured > best.captured {
            best = candidate;
            best_start = start;
        }
    }
    let mut tracer = Tracer::new(request);
    tracer.record(1, 1.0, &best.vectors, |_| Some(best.captured))?;
    Ok(Fit {
        trace: tracer.finish(),
        diagnostics: vec![
            ("lambda", penalty.lambda),
            ("support", best.support.len() as f64),
            ("screened_rows", penalty.candidates.len() as f64),
            ("relaxed_support", relaxed.support.len() as f64),
            ("relaxed_gap", relaxed.relative_gap),
            ("starts", starts as f64),
            ("best_start", best_start as f64),
        ],
        ..Fit::plain(best.vectors, rows.n() as u64)
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::linalg::Symmetric;

    use super::*;
    use crate::{Baseline, generator, testing::gaussian_rows};

    fn method(support: usize, starts: usize) -> Baseline {
        let options = Options::default().with(SUPPORT, support);
        INFO.build(&options.with(STARTS, starts)).unwrap()
    }

    /// All sets of s of p features.
    fn supports(p: usize, s: usize) -> Vec<Vec<usize>> {
        (0_u32..1 << p)
            .filter(|set| set.count_ones() as usize == s)
            .map(|set| (0..p).filter(|row| set >> row & 1 == 1).collect())
            .collect()
    }

    /// On twelve unstructured tables, 50 starts always find the best support; the relaxed start alone does not.
    #[test]
    fn many_starts_find_the_best_features() {
        let (p, s, k) = (10, 4, 2);
        let mut missed = 0;
        for seed in 0..12 {
            let rows = gaussian_rows(8, &[0.3; 10], seed);
            let moment = SecondMoment::new(&rows);
            let found = supports(p, s)
                .into_iter()
                .map(|support| Candidate::on_rows(&moment, support, p, k).unwrap().captured);
            let best = found.fold(0.0, f64::max);
            let captured = |starts| {
                let method = method(s, starts);
                let mut rng = generator(Some(seed)).unwrap();
                let fit = method
                    .fit(&rows, &Request::nonprivate(k), &mut rng)
                    .unwrap();
                let zero = fit.subspace.row_iter().filter(|row| row.norm() == 0.0);
                assert!(zero.count() >= p - s);
                moment.times(&fit.subspace).dot(&fit.subspace)
            };
            assert!((captured(50) - best).abs() < 1e-12 * best, "seed {seed}");
            missed += u32::from(captured(1) < best * (1.0 - 1e-9));
        }
        assert!((1..12).contains(&missed), "{missed}");
    }

    /// Fewer rows than components: missing directions are filled up.
    #[test]
    fn fewer_rows_than_components_are_no_error() {
        let rows = gaussian_rows(2, &[0.3; 12], 5);
        let (request, mut rng) = (Request::nonprivate(4), generator(Some(1)).unwrap());
        let fit = method(6, 3).fit(&rows, &request, &mut rng).unwrap();
        assert!((rows.captured_variance(&fit.subspace).unwrap()) > 0.5);
    }
}
