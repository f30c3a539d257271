//! The stylised POPRES data of Section 5.2: people of Europe among outliers, and the map that a subspace gives.

use std::sync::{Arc, OnceLock};

use eigenveil_central::{Generator, Rows, generator};
use eigenveil_estimation::linalg::{cross_product, orthonormalize, product, top_k};
use eigenveil_shared::{
    Error, Result,
    preprocess::{Norm, Row},
};
use nalgebra::DMatrix;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};

use crate::data::{Data, RawRows, prepared};

pub(super) const FILES: &[&str] = &[
    "popres_pcs.npy",
    "popres_eigenvalues.npy",
    "popres_labels.csv",
];

const OUTLIERS: usize = 1_000;
/// Number of columns that span the outliers.
const OUTLIER_RANK: usize = 30;
/// Cuts a standard Gaussian into thirds.
const TERCILE: f64 = 0.43;

/// The contents of the files, and the rows of dimension D made from them when the first run needs them.
pub(super) struct Popres {
    scores: RawRows,
    eigenvalues: RawRows,
    /// Longitude and latitude, a row for each person.
    coordinates: DMatrix<f64>,
    pub(super) d: usize,
    rows: OnceLock<Result<Rows>>,
}

pub(super) fn row_count(data: &Data) -> Result<usize> {
    Ok(data.raw(FILES[0])?.len() + OUTLIERS)
}

impl Popres {
    pub(super) fn new(data: &Data, d: usize) -> Result<Arc<Self>> {
        let invalid_file = |detail: String| Error::invalid_request(detail);
        let (scores, eigenvalues) = (data.raw(FILES[0])?, data.raw(FILES[1])?);
        let labels = String::from_utf8(data.bytes(FILES[2])?)
            .map_err(|error| invalid_file(format!("{}: {error}", FILES[2])))?;
        let mut coordinates = Vec::new();
        for line in labels.lines().skip(1) {
            // From the end, because a name may contain a comma.
            let fields: Vec<&str> = line.rsplit(',').collect();
            for place in [5, 4] {
                let number = fields.get(place).and_then(|field| field.parse().ok());
                coordinates.push(number.ok_or_else(|| {
                    invalid_file(format!(
                        "{}: no longitude and latitude in {line:?}",
                        FILES[2]
                    ))
                })?);
            }
        }
        let components = scores.first().map_or(0, |row| row.values().len());
        if coordinates.len() != 2 * scores.len() || eigenvalues.len() < components {
            return Err(invalid_file(format!(
                "the numbers of rows differ: scores {}, eigenvalues {}, labels {}; files {}",
                scores.len(),
                eigenvalues.len(),
                coordinates.len() / 2,
                FILES.join(", ")
            )));
        }
        Ok(Arc::new(Self {
            coordinates: DMatrix::from_row_slice(coordinates.len() / 2, 2, &coordinates),
            scores,
            eigenvalues,
            d,
            rows: OnceLock::new(),
        }))
    }

    /// The people, then the outliers; computed once.
    pub(super) fn rows(&self) -> Result<&Rows> {
        let rows = self.rows.get_or_init(|| self.stylised());
        rows.as_ref().map_err(Clone::clone)
    }

    /// The files hold unit columns, so the scores of the twenty components are scaled by the square roots of the
    /// eigenvalues.
    fn stylised(&self) -> Result<Rows> {
        let mut rng = generator(Some(1))?;
        let n = self.scores.len();
        let k = self.scores.first().map_or(0, |row| row.values().len());
        let people = DMatrix::from_fn(n, k, |i, j| {
            self.scores[i].values()[j] * self.eigenvalues[j].values()[0].sqrt()
        });
        let people = alleles(product(&people, &gaussian(k, self.d, &mut rng)));
        let uniform = DMatrix::from_fn(OUTLIERS, OUTLIER_RANK, |_, _| rng.random_range(-0.5..0.5));
        let spread = gaussian(OUTLIER_RANK, self.d, &mut rng);
        let outliers = alleles(product(&uniform, &spread));
        let raw: Vec<Row> = people
            .row_iter()
            .chain(outliers.row_iter())
            .map(|row| Row::new(row.iter().copied().collect()))
            .collect();
        prepared(&raw, Norm::Normalize)
    }

    fn people(&self) -> Result<DMatrix<f64>> {
        let people = self.rows()?.iter().take(self.coordinates.nrows());
        let values = people.flat_map(|row| row.as_slice().iter().copied());
        Ok(DMatrix::from_iterator(
            self.d,
            self.coordinates.nrows(),
            values,
        ))
    }

    /// The share of the places' variance explained by a linear function of the people's scores on this subspace (R²).
    pub(super) fn map_r_squared(&self, subspace: &DMatrix<f64>) -> Result<f64> {
        let mut scores = cross_product(&self.people()?, subspace);
        let mut wanted = self.coordinates.clone();
        for matrix in [&mut scores, &mut wanted] {
            for mut column in matrix.column_iter_mut() {
                let mean = column.mean();
                column.add_scalar_mut(-mean);
            }
        }
        let fitted = cross_product(&orthonormalize(scores)?, &wanted);
        Ok(fitted.norm_squared() / wanted.norm_squared())
    }

    pub(super) fn inlier_subspace(&self) -> Result<DMatrix<f64>> {
        let people = self.people()?;
        let leading = top_k(&cross_product(&people, &people), 2)?.vectors;
        orthonormalize(product(&people, &leading))
    }
}

fn gaussian(rows: usize, columns: usize, rng: &mut Generator) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}

/// Cuts the entries into terciles, coded −1, 0 and 1 (the paper's 0, 1 and 2, centred): the thirds of a Gaussian of
/// this matrix's scale.
fn alleles(mut values: DMatrix<f64>) -> DMatrix<f64> {
    let cut = TERCILE * values.norm() / (values.len() as f64).sqrt();
    values.apply(|x| *x = f64::from(u8::from(*x > cut)) - f64::from(u8::from(*x < -cut)));
    values
}
