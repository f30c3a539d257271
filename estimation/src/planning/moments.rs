//! The eigenvectors of the second moment of prepared rows.

use eigenveil_shared::{Result, preprocess::Preprocessing, study::StudyParams};
use nalgebra::{DMatrix, DVector};

use super::sample::Sample;
use crate::{
    Cancel,
    input::missing::ObservedShares,
    linalg::{GramSum, packed_to_dense, symmetric_eigen},
    moment::NoisyMoment,
};

/// The eigenvectors of the second moment of rows, with private centring around their mean, otherwise around 0.
pub(super) struct Moments {
    /// Squared length of the mean.
    pub(super) squared_mean: f64,
    /// The p eigenvalues, descending.
    pub(super) values: Vec<f64>,
    /// The mean's coordinate along each eigenvector.
    pub(super) along: Vec<f64>,
    /// The first eigenvector.
    pub(super) first: DVector<f64>,
}

/// The moments of these rows in a study, of whole rows where their cells may be missing.
pub(super) fn moments(
    sample: &Sample,
    params: &StudyParams,
    cancel: Cancel<'_>,
) -> Result<Moments> {
    let preprocessing = params.preprocessing();
    match ObservedShares::new(preprocessing) {
        Some(shares) => of_whole_rows(sample, params, &shares, cancel),
        None => of_rows(sample, preprocessing, cancel),
    }
}

fn mean_of(sample: &Sample, p: usize) -> DVector<f64> {
    let mut mean = DVector::<f64>::zeros(p);
    for (row, share) in sample.shares() {
        mean += share * DVector::from_column_slice(row);
    }
    mean
}

/// The moments as an estimate without noise has them: divided by what missing cells take from the moment.
fn of_whole_rows(
    sample: &Sample,
    params: &StudyParams,
    shares: &ObservedShares,
    cancel: Cancel<'_>,
) -> Result<Moments> {
    let mut sum = GramSum::<f64>::new(params.report_dimension());
    for (row, share) in sample.reported(params) {
        cancel.check()?;
        sum.add(&row, share);
    }
    let moment = NoisyMoment::without_noise(params.preprocessing(), sum.finish(), 1)?;
    let mut mean = mean_of(sample, params.dimension());
    for (i, entry) in mean.iter_mut().enumerate() {
        *entry *= shares.mean_factor(i);
    }
    let eigen = symmetric_eigen(&moment.dense())?;
    Ok(Moments {
        squared_mean: mean.norm_squared(),
        // The division may leave a small one negative.
        values: eigen.values.iter().map(|x| x.max(0.0)).collect(),
        along: eigen.vectors.tr_mul(&mean).as_slice().to_vec(),
        first: eigen.vectors.column(0).into_owned(),
    })
}

fn of_rows(sample: &Sample, preprocessing: &Preprocessing, cancel: Cancel<'_>) -> Result<Moments> {
    let p = preprocessing.dimension;
    let around_mean = preprocessing.centring.is_some();
    let mean = mean_of(sample, p);
    // The moment is the sum of yyᵀ over these vectors. The mean is removed before rows are multiplied: a large one would
    // leave nothing but rounding of the rest.
    let centred = sample
        .shares()
        .map(|(row, share)| share.sqrt() * (DVector::from_column_slice(row) - &mean));
    let vectors = centred.chain((!around_mean).then(|| mean.clone()));
    let count = sample.rows.len() + usize::from(!around_mean);
    let squared_mean = mean.norm_squared();
    if count >= p {
        let mut sum = GramSum::<f64>::new(p);
        for vector in vectors {
            cancel.check()?;
            sum.add(vector.as_slice(), 1.0);
        }
        let eigen = symmetric_eigen(&packed_to_dense(&sum.finish()))?;
        return Ok(Moments {
            squared_mean,
            // Rounding can leave a zero slightly negative.
            values: eigen.values.iter().map(|x| x.max(0.0)).collect(),
            along: eigen.vectors.tr_mul(&mean).as_slice().to_vec(),
            first: eigen.vectors.column(0).into_owned(),
        });
    }
    // The products of fewer vectors than columns, yᵢ·yⱼ, have the same eigenvalues, and p² numbers are never there.
    let table = DMatrix::from_columns(&vectors.collect::<Vec<_>>()).transpose();
    let mut sum = GramSum::<f64>::new(count);
    for column in 0..p {
        cancel.check()?;
        sum.add(table.column(column).as_slice(), 1.0);
    }
    let eigen = symmetric_eigen(&packed_to_dense(&sum.finish()))?;
    let rounding = eigen.values[0] * count as f64 * f64::EPSILON;
    let rank = eigen
        .values
        .iter()
        .filter(|value| **value > rounding)
        .count();
    let projected = &table * &mean;
    let (mut values, mut along) = (vec![0.0; p], vec![0.0; p]);
    for (j, &value) in eigen.values.iter().take(rank).enumerate() {
        values[j] = value;
        along[j] = eigen.vectors.column(j).dot(&projected) / value.sqrt();
    }
    // All of the other eigenvalues are 0; the rest of the mean lies along one of their eigenvectors.
    let rest = squared_mean - along.iter().map(|m| m * m).sum::<f64>();
    along[rank] = rest.max(0.0).sqrt();
    let length = values[0].sqrt().max(f64::MIN_POSITIVE);
    Ok(Moments {
        squared_mean,
        values,
        along,
        first: table.tr_mul(&eigen.vectors.column(0)) / length,
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::preprocess::Norm;

    use super::*;

    fn moments_of(sample: &Sample, p: usize, around_mean: bool) -> Moments {
        let preprocessing = Preprocessing {
            centring: around_mean.then_some(0.5),
            ..Preprocessing::new(p, Norm::Normalize)
        };
        of_rows(sample, &preprocessing, Cancel::NEVER).unwrap()
    }

    /// Each row twice is the same population, whose p × p moment is decomposed.
    #[test]
    fn few_rows_have_the_moments_of_their_copies() {
        let (n, p) = (7, 12);
        let entry = |i: usize, j: usize| ((i * 31 + j * 17 + i * i * j) % 13) as f64 / 13.0 - 0.3;
        let row = |i: usize| (0..p).map(|j| entry(i, j)).collect::<Vec<_>>();
        let few: Vec<Vec<f64>> = (0..n).map(row).collect();
        let many = Sample::of([few.clone(), few.clone()].concat());
        let few = Sample::of(few);
        for around_mean in [false, true] {
            let few = moments_of(&few, p, around_mean);
            let many = moments_of(&many, p, around_mean);
            let rank = if around_mean { n - 1 } else { n };
            assert_eq!((few.values.len(), few.along.len()), (p, p));
            assert!(few.values[rank - 1] > 1e-6 && few.values[rank..].iter().all(|x| *x == 0.0));
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-10, "{a} {b}");
            close(few.squared_mean, many.squared_mean);
            close(few.first.dot(&many.first).abs(), 1.0);
            let pairs = |of: &Moments| -> Vec<(f64, f64)> {
                let along = of.along.iter().map(|m| m.abs());
                of.values.iter().copied().zip(along).take(rank).collect()
            };
            for (few, many) in pairs(&few).into_iter().zip(pairs(&many)) {
                close(few.0, many.0);
                close(few.1, many.1);
            }
            let rest = |along: &[f64]| along[rank..].iter().map(|m| m * m).sum::<f64>();
            close(rest(&few.along), rest(&many.along));
        }
    }
}
