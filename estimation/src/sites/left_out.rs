//! The components without each site, and those of the moment in which no site counts for more than alike sites would.

use eigenveil_shared::{Result, packed::PackedSymmetric, site_estimate::RobustEstimate};
use nalgebra::{DMatrix, DVector};

use super::pool::{LEAST_COUNT, Pool, Site, Weighed, counts_of};
use crate::{
    assessment::error_bars::{is_costly, leading_near},
    input::moment::NoisyMoment,
    linalg::{fix_signs, parallel_for_each, submatrix},
    metrics::projector_distance,
};

/// Factor by which a site may be further from the others than noise and sampling explain on average.
const SLACK: f64 = 1.25;
/// Rounds of weighing at most: each brings the weights nearer to what they will be by a factor.
const MAX_ROUNDS: usize = 100;
/// Change of a weight that ends them.
const SETTLED: f64 = 1e-6;

/// Components that are estimated again, on all features or on those that a sparse estimate selected.
pub(crate) struct Again<'a> {
    vectors: DMatrix<f64>,
    rows: Option<&'a [usize]>,
    dimension: usize,
}

/// The components without a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeftOut {
    pub(crate) eigenvalues: DVector<f64>,
    /// ‖V̂V̂ᵀ − V̂₋ⱼV̂₋ⱼᵀ‖_F.
    pub(crate) movement: f64,
}

impl<'a> Again<'a> {
    /// For these components (`p × k`); `None` without any, and where it would take too long.
    pub(crate) fn of(vectors: &DMatrix<f64>, rows: Option<&'a [usize]>) -> Option<Self> {
        let (dimension, k) = vectors.shape();
        let vectors = match rows {
            None => vectors.clone(),
            Some(rows) => vectors.select_rows(rows),
        };
        let rows_of_each = vectors.nrows();
        (k > 0 && rows_of_each >= k && !is_costly(rows_of_each, k)).then_some(Self {
            vectors,
            rows,
            dimension,
        })
    }

    /// The leading components of another moment, near to these, and how far they are.
    fn components(&self, moment: &NoisyMoment) -> Result<(DMatrix<f64>, LeftOut)> {
        let dense = moment.dense();
        let on_rows = match self.rows {
            None => dense,
            Some(rows) => submatrix(&dense, rows),
        };
        let leading = leading_near(&on_rows, &self.vectors)?;
        let movement = projector_distance(&leading.vectors, &self.vectors)?;
        let left_out = LeftOut {
            eigenvalues: leading.values,
            movement,
        };
        Ok((leading.vectors, left_out))
    }

    /// Their loadings on all features.
    fn loadings(&self, mut vectors: DMatrix<f64>) -> Vec<Vec<f64>> {
        fix_signs(&mut vectors);
        let column = |v: nalgebra::DVectorView<'_, f64>| {
            let mut loadings = vec![0.0; self.dimension];
            for (at, value) in v.iter().enumerate() {
                let row = self.rows.map_or(at, |rows| rows[at]);
                loadings[row] = *value;
            }
            loadings
        };
        vectors.column_iter().map(column).collect()
    }
}

/// The components without each site; `None` of one without which noise hides how many rows are left.
pub(crate) fn left_out(
    pool: &Pool<'_>,
    mean: &PackedSymmetric,
    again: &Again<'_>,
) -> Result<Vec<Option<LeftOut>>> {
    let without = |j: usize| -> Result<Option<LeftOut>> {
        let site = &pool.sites[j];
        let draws = pool.counts().draws as f64 - site.draws();
        let sd = pool.params.mechanism().count_sd() * draws.sqrt();
        let counts = pool.counts_without(j);
        let counted = draws > 0.0 && pool.rows() - site.rows > LEAST_COUNT * sd;
        if !counted || !counts.n_eff.is_finite() {
            return Ok(None);
        }
        let moment = pool.moment(pool.mean_without(mean, j), counts)?;
        again.components(&moment).map(|(_, found)| Some(found))
    };
    let mut results: Vec<Option<Result<Option<LeftOut>>>> =
        pool.sites.iter().map(|_| None).collect();
    parallel_for_each(results.iter_mut().enumerate(), |(j, result)| {
        *result = Some(without(j));
    });
    results.into_iter().flatten().collect()
}

/// The robust estimate, and what it multiplies the weight of the rows of each site by.
///
/// M minimises Σⱼ sⱼ²·h(‖Rⱼ − m̂ⱼM‖/sⱼ)/m̂ⱼ with Huber's h: `M = Σ fⱼRⱼ/Σ fⱼm̂ⱼ`, `fⱼ = min(1, 1.25·sⱼ/‖Rⱼ − m̂ⱼM‖_F)`,
/// sⱼ the known root mean square of that norm if the site is like the others.
pub(crate) fn robust(pool: &Pool<'_>, again: &Again<'_>) -> Result<(RobustEstimate, Vec<f64>)> {
    let mut factors = vec![1.0; pool.sites.len()];
    let mut mean = weighed(pool, &factors);
    for _ in 0..MAX_ROUNDS {
        let next: Vec<f64> = pool
            .sites
            .iter()
            .map(|site| factor(pool, site, &mean))
            .collect();
        let changes = next
            .iter()
            .zip(&factors)
            .map(|(new, old)| (new - old).abs());
        let settled = changes.fold(0.0, f64::max) < SETTLED;
        factors = next;
        mean = weighed(pool, &factors);
        if settled {
            break;
        }
    }
    let weighed_sites = factors
        .iter()
        .zip(&pool.sites)
        .map(|(factor, site)| Weighed {
            weight: *factor,
            rows: site.rows,
            reports: site.reports.len() as u64,
        });
    let counts = counts_of(weighed_sites);
    let (vectors, found) = again.components(&pool.moment(mean, counts)?)?;
    let estimate = RobustEstimate {
        loadings: again.loadings(vectors),
        eigenvalues: found.eigenvalues.as_slice().to_vec(),
        distance: found.movement,
    };
    Ok((estimate, factors))
}

/// ΣfR/Σfm̂.
fn weighed(pool: &Pool<'_>, factors: &[f64]) -> PackedSymmetric {
    let mut mean = PackedSymmetric::zeros(pool.params.report_dimension());
    let mut weight = 0.0;
    for (site, factor) in pool.sites.iter().zip(factors) {
        site.add_to(&mut mean, *factor);
        weight += factor * site.rows;
    }
    mean.scale(1.0 / weight);
    mean
}

fn factor(pool: &Pool<'_>, site: &Site<'_>, mean: &PackedSymmetric) -> f64 {
    let mut rest = mean.clone();
    rest.scale(-site.rows);
    site.add_to(&mut rest, 1.0);
    let (distance, length) = (squared_norm(&rest), squared_norm(mean));
    let counted = pool.params.mechanism().count_sd().powi(2) * length;
    let noise = site.draws() * (pool.squared_noise() + counted);
    // E‖xxᵀ‖² is 1 at most.
    let sampling = site.rows.max(0.0) * (1.0 - length).max(0.0);
    let expected = (noise + sampling).sqrt();
    match distance > 0.0 {
        true => (SLACK * expected / distance.sqrt()).min(1.0),
        false => 1.0,
    }
}

/// ‖M‖_F².
pub(crate) fn squared_norm(matrix: &PackedSymmetric) -> f64 {
    let p = matrix.dimension();
    let all: f64 = matrix.as_slice().iter().map(|entry| entry * entry).sum();
    let diagonal: f64 = (0..p).map(|i| matrix.get(i, i).powi(2)).sum();
    2.0 * all - diagonal
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::site_study::SiteWeights;

    use super::{super::pool::tests::study, *};
    use crate::{input::site_report::SiteSum, linalg::top_k};

    /// Six tables of 10,000 rows that lie along two axes, without noise, the last of them another way in part.
    fn tables(wrong: f64) -> Vec<SiteSum> {
        let table = |j: usize| {
            let mut sum = PackedSymmetric::zeros(3);
            let strange = if j == 5 { wrong } else { 0.0 };
            let shares = [0.7 * (1.0 - strange), 0.3 * (1.0 - strange), strange];
            for (i, share) in shares.into_iter().enumerate() {
                let mut axis = [0.0; 3];
                axis[i] = 1.0;
                sum.add_outer(&axis, 1e4 * share);
            }
            SiteSum {
                site: format!("site {j}"),
                rows_noisy: 1e4,
                sum,
            }
        };
        (0..6).map(table).collect()
    }

    #[test]
    fn a_site_of_another_kind_moves_the_components_and_not_the_robust_ones() {
        let params = study(3, None, SiteWeights::Rows);
        for (wrong, moves) in [(0.0, false), (1.0, true)] {
            let reports = tables(wrong);
            let pool = Pool::new(&reports, &params).unwrap();
            let mean = pool.mean();
            let moment = pool.moment(mean.clone(), pool.counts()).unwrap();
            // With the last table 0.58, 0.25 and 0.17.
            let leading = top_k(&moment.dense(), 2).unwrap();
            let again = Again::of(&leading.vectors, None).unwrap();
            let without = left_out(&pool, &mean, &again).unwrap();
            assert_eq!(without.len(), 6);
            let values = |j: usize| without[j].as_ref().unwrap().eigenvalues[0];
            let first = if moves { [0.7 * 0.8, 0.7] } else { [0.7, 0.7] };
            assert!((values(0) - first[0]).abs() < 1e-12 && (values(5) - first[1]).abs() < 1e-12);
            let (found, factors) = robust(&pool, &again).unwrap();
            assert!(
                factors[..5].iter().all(|factor| *factor == 1.0),
                "{factors:?}"
            );
            assert_eq!(factors[5] < 0.1, moves, "{factors:?}");
            let share = factors[5] / (5.0 + factors[5]);
            let expected = if moves { 0.7 * (1.0 - share) } else { 0.7 };
            assert!((found.eigenvalues[0] - expected).abs() < 1e-9, "{found:?}");
            assert_eq!(found.loadings.len(), 2);
            assert!(found.distance < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn norms_count_both_triangles() {
        let matrix = PackedSymmetric::from_entries(2, vec![1.0, 2.0, 3.0]).unwrap();
        assert_eq!(squared_norm(&matrix), 1.0 + 4.0 + 4.0 + 9.0);
    }
}
