//! Simulated studies of sites: rows are divided among sites, alike or not, and each reports its table once.

use std::time::Instant;

use eigenveil_shared::{
    Error, Result, api::SparseSettings, estimate::ComponentCount, mechanism::NoiseModel,
    packed::PackedSymmetric, site_study::SiteStudyParams,
};
use nalgebra::DMatrix;
use rand::{Rng, SeedableRng, rngs::ChaCha20Rng, seq::SliceRandom};
use rand_distr::{Distribution, StandardNormal};

use super::{
    Repeat, RowSource, SimulatedParticipants, Summary,
    experiment::{predicted, summarize},
};
use crate::{
    assessment::Prediction,
    cancel::Cancel,
    dense::{pca::pca, principal},
    input::{moment::NoisyMoment, site_report::SiteSum},
    linalg::{GramSum, outer_scaled, require_rank, top_k},
    metrics::{projector_distance, support_score},
    sites::{moments_of_sites, setting_in_words},
    sparse::sparse_components,
};

/// A simulated study of sites.
#[derive(Clone, Debug)]
pub struct SiteExperiment<'a> {
    /// Preprocessing, mechanism, budget, and weights of the sites.
    pub params: &'a SiteStudyParams,
    /// The source of the rows. As many given rows as there are in all tables are divided among them, each row once; they
    /// are drawn with replacement where the numbers differ.
    pub source: RowSource<'a>,
    /// Rows of each site.
    pub sizes: Vec<u64>,
    /// Angle in degrees by which the components of each site are tilted in a direction of its own; the truth is then the
    /// components of all rows together.
    pub tilt: Option<f64>,
    /// Components k.
    pub k: usize,
    /// The sparse estimator; plain PCA when `None`.
    pub sparse: Option<&'a SparseSettings>,
    /// Repeats, each with a population and noise of its own.
    pub repeats: usize,
    /// Seed; the same seed gives the same numbers.
    pub seed: u64,
    /// When to give up.
    pub cancel: Cancel<'a>,
}

/// The tables of one repeat: what each site sends, and what a simulation alone knows.
pub struct SimulatedTables {
    /// The reports, in the order of the sizes.
    pub reports: Vec<SiteSum>,
    /// Σxxᵀ of all rows, without noise.
    sum: PackedSymmetric,
    /// Whether the rows are all that there are, and not a sample.
    divided: bool,
    truth: DMatrix<f64>,
    support: Option<Vec<usize>>,
}

impl SimulatedTables {
    /// The true subspace, `p × k`.
    pub fn truth(&self) -> &DMatrix<f64> {
        &self.truth
    }
}

/// Runs the experiment. `tick` receives the number of rows processed, out of those of all sites times `repeats`.
///
/// # Errors
/// `invalid-request` without repeats, sites or rows, and where rows or a model do not fit; those of the estimate.
pub fn run_sites(
    experiment: &SiteExperiment<'_>,
    tick: &mut dyn FnMut(u64),
) -> Result<(Vec<Repeat>, Summary)> {
    if experiment.repeats == 0 {
        return Err(Error::invalid_request(
            "repeats is 0; at least one is needed",
        ));
    }
    require_rank(experiment.k, experiment.params.dimension())?;
    let started = Instant::now();
    let repeats = (0..experiment.repeats as u64)
        .map(|number| {
            // One random stream per repeat: adding repeats does not change the earlier ones.
            let mut rng = ChaCha20Rng::seed_from_u64(experiment.seed);
            rng.set_stream(number);
            repeat(experiment, &mut rng, tick)
        })
        .collect::<Result<Vec<_>>>()?;
    let summary = summarize(&repeats, started.elapsed().as_secs_f64());
    Ok((repeats, summary))
}

fn repeat(
    experiment: &SiteExperiment<'_>,
    rng: &mut ChaCha20Rng,
    tick: &mut dyn FnMut(u64),
) -> Result<Repeat> {
    let SiteExperiment {
        params, k, cancel, ..
    } = *experiment;
    let tables = draw_tables(experiment, rng, tick)?;
    let (moment, noise) = moments_of_sites(&tables.reports, params)?;
    let rows: u64 = experiment.sizes.iter().sum();
    let preprocessing = params.preprocessing();
    let clean = NoisyMoment::without_noise(preprocessing, tables.sum.clone(), rows)?;
    let setting = setting_in_words(params, tables.reports.len());
    let count = ComponentCount::Fixed(k);
    let plain = principal(&moment, count, &setting, false)?;
    let pca_error = projector_distance(&plain.vectors, &tables.truth)?;
    let nonprivate = pca(&clean.dense(), k)?.vectors;
    let (found, support, converged) = match experiment.sparse {
        None => (plain, None, true),
        Some(settings) => {
            let components = sparse_components(&moment, count, settings, &setting, cancel)?;
            let outcome = components.sparse.as_ref();
            let support = outcome
                .zip(tables.support.as_ref())
                .map(|(outcome, truth)| support_score(&outcome.support, truth));
            let converged = outcome.is_none_or(|outcome| outcome.converged);
            (components, support, converged)
        }
    };
    let prediction = match (experiment.sparse, experiment.source) {
        (None, RowSource::Rows(_) | RowSource::Model(_)) => {
            // Rows that are all divided are no sample.
            let noise = if tables.divided {
                &noise
            } else {
                moment.noise()
            };
            predicted(&clean, k, noise, moment.n_eff())?
        }
        (Some(_), _) | (None, RowSource::RowsWithReference(..)) => None,
    };
    Ok(Repeat {
        error: projector_distance(&found.vectors, &tables.truth)?,
        pca_error,
        nonprivate_error: projector_distance(&nonprivate, &tables.truth)?,
        predicted_error: prediction.as_ref().map(|p| p.expected_error),
        predicted_alignment: prediction.as_ref().map(Prediction::weakest_alignment),
        expected_error: found.floor_report.expected_error,
        components_above: found.floor_report.floor.components_above,
        support,
        converged,
    })
}

/// Draws the tables of one repeat.
///
/// # Errors
/// `invalid-request` without sites or rows, and where rows or a model do not fit; those of preparing rows.
pub fn draw_tables<R: Rng>(
    experiment: &SiteExperiment<'_>,
    rng: &mut R,
    tick: &mut dyn FnMut(u64),
) -> Result<SimulatedTables> {
    let SiteExperiment {
        params, source, k, ..
    } = experiment;
    let sizes = &experiment.sizes;
    if sizes.is_empty() || sizes.contains(&0) {
        return Err(Error::invalid_request(
            "a study of sites needs a site, and a site a row",
        ));
    }
    let people = SimulatedParticipants::draw_prepared(source, *k, params.preprocessing(), rng)?;
    let all: u64 = sizes.iter().sum();
    let given = people.given().filter(|rows| rows.len() as u64 == all);
    let mut order: Vec<usize> = (0..given.map_or(0, <[_]>::len)).collect();
    order.shuffle(rng);
    let mut order = order.into_iter();
    let p = params.report_dimension();
    let mut tables = SimulatedTables {
        reports: Vec::with_capacity(sizes.len()),
        sum: PackedSymmetric::zeros(p),
        divided: given.is_some(),
        truth: people.truth().clone(),
        support: people.support().map(<[_]>::to_vec),
    };
    let mut projectors = DMatrix::zeros(people.truth().nrows(), people.truth().nrows());
    for (j, &size) in sizes.iter().enumerate() {
        experiment.cancel.check()?;
        let mut gram = GramSum::<f64>::new(p);
        let tilted = experiment
            .tilt
            .map(|tilt| people.tilted(tilt.to_radians(), rng));
        let site = tilted.transpose()?;
        let site = site.as_ref().unwrap_or(&people);
        match given {
            Some(rows) => order
                .by_ref()
                .take(size as usize)
                .for_each(|row| gram.add(rows[row].as_slice(), 1.0)),
            None => site.visit(size, rng, |row, times, _| {
                gram.add(row.as_slice(), times as f64);
                Ok(())
            })?,
        }
        if experiment.tilt.is_some() {
            let weights = vec![size as f64 / all as f64; site.truth().ncols()];
            projectors += outer_scaled(site.truth(), &weights);
        }
        tick(size);
        let exact = gram.finish();
        tables.sum.add(&exact);
        tables.reports.push(released(params, j, exact, size, rng));
    }
    if experiment.tilt.is_some() {
        tables.truth = top_k(&projectors, *k)?.vectors;
    }
    Ok(tables)
}

/// A site's report, decoded, from the distribution of its noise (what the grids of the mechanisms add is below 0.2 % of a
/// standard deviation).
fn released<R: Rng>(
    params: &SiteStudyParams,
    number: usize,
    mut sum: PackedSymmetric,
    rows: u64,
    rng: &mut R,
) -> SiteSum {
    let (off_diagonal_sd, diagonal_sd) = match params.mechanism().noise_model() {
        NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } => (off_diagonal_sd, diagonal_sd),
        // Reports of tables have no other.
        other => (other.off_diagonal_sd(), other.off_diagonal_sd()),
    };
    let p = sum.dimension();
    let mut entries = sum.as_mut_slice().iter_mut();
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    for i in 0..p {
        for j in i..p {
            let sd = if i == j { diagonal_sd } else { off_diagonal_sd };
            if let Some(entry) = entries.next() {
                *entry += sd * normal();
            }
        }
    }
    SiteSum {
        site: format!("site {}", number + 1),
        rows_noisy: rows as f64 + params.mechanism().count_sd() * normal(),
        sum,
    }
}
