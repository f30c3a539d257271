//! The participants of a simulated study.

use eigenveil_shared::{
    Error, Result,
    preprocess::{BoundedRow, Preprocessing, Preprocessor, Row},
    study::StudyParams,
};
use nalgebra::DMatrix;
use rand::{Rng, RngExt};

use crate::{
    dense::pca::{pca, pca_of_rows},
    input::moment::NoisyMoment,
    linalg::GramSum,
    models::{Model, Population},
};

/// Where participants come from.
#[derive(Clone, Copy, Debug)]
pub enum RowSource<'a> {
    /// A synthetic population with a random frame, drawn anew in every repeat.
    Model(Model),
    /// These raw rows, drawn with replacement, and compared with their non-private top-k.
    Rows(&'a [Row]),
    /// Rows, compared with this orthonormal `p × k` subspace, for example the sparse reference of Wang & Xu; the true
    /// support is its nonzero rows.
    RowsWithReference(&'a [Row], &'a DMatrix<f64>),
}

/// The participants of one repeat: a population or prepared rows, and the true subspace.
pub struct SimulatedParticipants<'a> {
    kind: Kind<'a>,
    truth: DMatrix<f64>,
    support: Option<Vec<usize>>,
}

enum Kind<'a> {
    Population(Population, Preprocessor<'a>),
    Prepared(Vec<BoundedRow>),
}

impl<'a> SimulatedParticipants<'a> {
    /// Draws the population of a model, or prepares the rows. The truth is V of the model, or the non-private top-k of
    /// the rows (centred if the study centres).
    pub fn draw<R: Rng + ?Sized>(
        source: &RowSource<'_>,
        k: usize,
        params: &'a StudyParams,
        rng: &mut R,
    ) -> Result<Self> {
        Self::draw_prepared(source, k, params.preprocessing(), rng)
    }

    /// Draws them like [`draw`](Self::draw), for rows that are prepared like this.
    pub(super) fn draw_prepared<R: Rng + ?Sized>(
        source: &RowSource<'_>,
        k: usize,
        preprocessing: &'a Preprocessing,
        rng: &mut R,
    ) -> Result<Self> {
        let preprocessor = preprocessing.preprocessor()?;
        match source {
            RowSource::Model(model) => {
                let population = model.draw(rng)?;
                let truth = population.subspace().clone();
                let sparse = population.support().len() < population.dimension();
                let support = sparse.then(|| population.support().to_vec());
                Ok(Self {
                    kind: Kind::Population(population, preprocessor),
                    truth,
                    support,
                })
            }
            RowSource::Rows(rows) | RowSource::RowsWithReference(rows, _) => {
                let prepared: Vec<BoundedRow> = rows
                    .iter()
                    .enumerate()
                    .map(|(index, row)| {
                        // Refused here, not sent as zeros: the truth is computed from the same rows.
                        preprocessor.prepare_features_nth(index, row)?;
                        preprocessor.prepare(row)
                    })
                    .collect::<Result<_>>()?;
                if prepared.is_empty() {
                    return Err(Error::invalid_request(
                        "there are no rows; give at least one",
                    ));
                }
                let (truth, support) = match source {
                    RowSource::RowsWithReference(_, reference) => {
                        let p = preprocessing.report_dimension();
                        if reference.shape() != (p, k) {
                            return Err(Error::invalid_request(format!(
                                "the reference is {:?}; the study needs {p} × {k}",
                                reference.shape()
                            )));
                        }
                        let rows = reference.row_iter().enumerate();
                        let nonzero = rows.filter(|(_, row)| row.iter().any(|x| *x != 0.0));
                        let support: Vec<usize> = nonzero.map(|(index, _)| index).collect();
                        let sparse = support.len() < p;
                        ((*reference).clone(), sparse.then_some(support))
                    }
                    _ if preprocessing.allows_missing_cells() => {
                        // With missing cells, the raw moment is not the truth: it still has to be divided by the
                        // observed shares.
                        let mut sum = GramSum::<f64>::new(preprocessing.report_dimension());
                        prepared.iter().for_each(|row| sum.add(row.as_slice(), 1.0));
                        let n = prepared.len() as u64;
                        let moment = NoisyMoment::without_noise(preprocessing, sum.finish(), n)?;
                        (pca(&moment.dense(), k)?.vectors, None)
                    }
                    _ => {
                        // The constant of private centring is the last entry, if there is one.
                        let p = preprocessing.dimension;
                        let rows = prepared.iter().map(|row| &row.as_slice()[..p]);
                        let centred = preprocessing.centring.is_some();
                        (pca_of_rows(&rows, p, centred, k)?.vectors, None)
                    }
                };
                Ok(Self {
                    kind: Kind::Prepared(prepared),
                    truth,
                    support,
                })
            }
        }
    }

    /// The true subspace, `p × k`.
    pub fn truth(&self) -> &DMatrix<f64> {
        &self.truth
    }

    /// The rows of the truth that are not zero, for a sparse model.
    pub fn support(&self) -> Option<&[usize]> {
        self.support.as_deref()
    }

    /// The participants of a site whose components are tilted by `angle`, in radians.
    ///
    /// # Errors
    /// `invalid-request` for rows, which are given, and those of [`Population::tilted`].
    pub(super) fn tilted<R: Rng + ?Sized>(&self, angle: f64, rng: &mut R) -> Result<Self> {
        let Kind::Population(population, preprocessor) = &self.kind else {
            return Err(Error::invalid_request(
                "`tilt` turns the components of a `model`; rows have those that they have",
            )
            .with_field("tilt"));
        };
        let population = population.tilted(angle, rng)?;
        Ok(Self {
            truth: population.subspace().clone(),
            kind: Kind::Population(population, *preprocessor),
            support: None,
        })
    }

    /// The given rows, prepared; `None` of a model.
    pub(super) fn given(&self) -> Option<&[BoundedRow]> {
        match &self.kind {
            Kind::Population(..) => None,
            Kind::Prepared(rows) => Some(rows),
        }
    }

    /// The centring constant a and the rows' mean (0 for the constant). The covariance is computed around the mean to
    /// avoid cancellation. `None` without private centring, and with missing cells or weights, whose division changes
    /// the covariance.
    pub(super) fn centre(&self, params: &StudyParams) -> Option<(f64, Vec<f64>)> {
        let preprocessing = params.preprocessing();
        let (Some(a), Kind::Prepared(rows)) = (preprocessing.centring, &self.kind) else {
            return None;
        };
        if preprocessing.weights.is_some() || preprocessing.allows_missing_cells() {
            return None;
        }
        let mut centre = vec![0.0; params.report_dimension()];
        for row in rows {
            for (entry, x) in centre.iter_mut().zip(row.as_slice()) {
                *entry += x / rows.len() as f64;
            }
        }
        centre[params.dimension()] = 0.0;
        Some((a, centre))
    }

    /// Calls `each` with `count` participants' prepared rows and how many participants share each:
    /// rows of a model are distinct; resampled rows are grouped, with their multiplicity.
    pub fn visit<R: Rng + ?Sized>(
        &self,
        count: u64,
        rng: &mut R,
        mut each: impl FnMut(&BoundedRow, u64, &mut R) -> Result<()>,
    ) -> Result<()> {
        match &self.kind {
            Kind::Population(population, preprocessor) => {
                for _ in 0..count {
                    let row = preprocessor.prepare(&Row::new(population.row(rng)))?;
                    each(&row, 1, rng)?;
                }
            }
            Kind::Prepared(rows) => {
                let mut multiplicities = vec![0_u64; rows.len()];
                for _ in 0..count {
                    multiplicities[rng.random_range(0..rows.len())] += 1;
                }
                for (row, &multiplicity) in rows.iter().zip(&multiplicities) {
                    if multiplicity > 0 {
                        each(row, multiplicity, rng)?;
                    }
                }
            }
        }
        Ok(())
    }
}
