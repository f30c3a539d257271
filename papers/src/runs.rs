//! Helpers of the exhibits: rows, budgets, one run of an algorithm or of a study.

use eigenveil_central::{
    CentralCalibration, Fit, Generator, Neighbours, Options, Privacy, Request, Rows, find,
    model_row,
};
use eigenveil_estimation::{
    metrics::projector_distance,
    models::Model,
    moment::NoisyMoment,
    simulate::{Experiment, NoisePath, RowSource, SimulatedParticipants, Summary, noisy_sum, run},
};
use eigenveil_shared::{
    Result,
    api::SparseSettings,
    mechanism::{Calibration, MechanismKind},
    preprocess::{Norm, Preprocessing},
    privacy::Budget,
    study::{StudyDesign, StudyParams},
};
use nalgebra::DMatrix;

pub(crate) use eigenveil_estimation::metrics::random_error;
use rand::rngs::ChaCha20Rng;

use crate::{Record, Table, data::RawRows};

/// Where participants come from.
#[derive(Clone)]
pub(crate) enum Source {
    Model(Model),
    Rows(RawRows),
}

impl Source {
    pub(crate) fn rows(&self) -> RowSource<'_> {
        match self {
            Self::Model(model) => RowSource::Model(*model),
            Self::Rows(rows) => RowSource::Rows(rows),
        }
    }
}

/// Unit rows of a model, and its subspace.
pub(crate) fn model_rows(
    model: &Model,
    n: usize,
    rng: &mut Generator,
) -> Result<(Rows, DMatrix<f64>)> {
    let population = model.draw(rng)?;
    let preprocessing = Preprocessing::new(population.subspace().nrows(), Norm::Normalize);
    let preprocessor = preprocessing.preprocessor()?;
    let rows = Rows::collect((0..n).map(|_| model_row(&population, preprocessor, rng)))?;
    Ok((rows, population.subspace().clone()))
}

/// Parameters of a study of p columns without centring; the mechanism's default δ if none is given.
pub(crate) fn params(
    p: usize,
    norm: Norm,
    mechanism: MechanismKind,
    calibration: Calibration,
    epsilon: f64,
    delta: Option<f64>,
) -> Result<StudyParams> {
    StudyParams::freeze(StudyDesign {
        norm,
        calibration,
        ..StudyDesign::new(mechanism, p, mechanism.budget(epsilon, delta)?)
    })
}

/// Simulates one study of n of these rows, drawn from the exact distribution of its sum.
pub(crate) fn study(
    params: &StudyParams,
    source: RowSource<'_>,
    n: u64,
    k: usize,
    sparse: Option<&SparseSettings>,
    repeat: u64,
) -> Result<Summary> {
    let experiment = Experiment {
        sparse,
        seed: repeat,
        ..Experiment::new(params, source, n, k)
    };
    Ok(run(&experiment, &mut |_| ())?.1)
}

/// The moment of the reports of n of these people, and that without noise.
pub(crate) fn noisy_moment(
    params: &StudyParams,
    people: &SimulatedParticipants<'_>,
    n: u64,
    rng: &mut ChaCha20Rng,
) -> Result<(NoisyMoment, NoisyMoment)> {
    noisy_sum(params, people, n, NoisePath::FromSum, rng, &mut |_| Ok(()))
}

/// The true ε at the study's δ; NaN if there is none.
pub(crate) fn study_epsilon(params: &StudyParams) -> f64 {
    let holds = params.mechanism().true_epsilon(params.budget().delta());
    holds.unwrap_or(f64::NAN)
}

/// A budget for replacement neighbours.
pub(crate) fn private(
    epsilon: f64,
    delta: f64,
    calibration: CentralCalibration,
) -> Result<Privacy> {
    let budget = Budget::new(epsilon, delta)?;
    Ok(Privacy::with_budget(
        budget,
        Neighbours::Replace,
        calibration,
    ))
}

/// One run: the fit, and its error against `truth`, whose dimension is k.
pub(crate) fn fit_with_error(
    name: &str,
    options: &Options,
    privacy: Privacy,
    (rows, truth): &(Rows, DMatrix<f64>),
    rng: &mut Generator,
) -> Result<(Fit, f64)> {
    let algorithm = find(name)?.build(options)?;
    let fit = algorithm.fit(rows, &Request::new(truth.ncols(), privacy), rng)?;
    let error = projector_distance(&fit.subspace, truth)?;
    Ok((fit, error))
}

/// The true ε; NaN without privacy.
pub(crate) fn true_epsilon(fit: &Fit) -> f64 {
    let privacy = fit.privacy.as_ref();
    privacy
        .and_then(|guarantee| guarantee.true_epsilon)
        .unwrap_or(f64::NAN)
}

/// The true ε over the claimed one; infinite if it is unknown.
pub(crate) fn share_of_claim(record: &Record) -> f64 {
    let share = record.number("true_epsilon") / record.number("epsilon");
    if share.is_nan() { f64::INFINITY } else { share }
}

/// Slope of the least-squares line through the logarithms of these points.
pub(crate) fn slope(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let middle_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let middle_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let across: f64 = logs.iter().map(|(x, _)| (x - middle_x).powi(2)).sum();
    let both: f64 = logs
        .iter()
        .map(|(x, y)| (x - middle_x) * (y - middle_y))
        .sum();
    both / across
}

/// The points (`x`, `y`) with the smallest and the largest `x`.
pub(crate) fn first_and_last(
    table: &Table,
    wanted: &[(&str, &str)],
    x: &str,
    y: &str,
) -> ((f64, f64), (f64, f64)) {
    let line = table.line(wanted, x, y);
    let none = (f64::NAN, f64::NAN);
    let by_x = |a: &&(f64, f64), b: &&(f64, f64)| a.0.total_cmp(&b.0);
    (
        line.iter().min_by(by_x).copied().unwrap_or(none),
        line.iter().max_by(by_x).copied().unwrap_or(none),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_of_a_power_law_is_its_exponent() {
        let points = [1.0, 10.0, 100.0_f64].map(|x| (x, 3.0 * x.powf(-0.5)));
        assert!((slope(&points) + 0.5).abs() < 1e-12);
    }
}
