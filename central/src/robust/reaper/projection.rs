//! The projection of a large matrix onto the Fantope from the relevant part of its spectrum.

use eigenveil_estimation::{
    fantope::project_eigenvalues,
    linalg::{
        BlockLanczos, Ritz, StartVectors, Symmetric, cross_product, require_rank,
        tall_cross_product, tall_product,
    },
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::lazy_noise::LazyGoe;

/// Columns of a block: wide enough that products are not memory-bound, narrow because the Krylov space grows with the
/// width (measured on noise at p = 2,000: 350 for 8, 700 for 32).
const MIN_BLOCK: usize = 8;
const MAX_BLOCK: usize = 16;
const DIMENSIONS_PER_COLUMN: usize = 625;
/// Growth of the space between two computations of Ritz pairs.
const GROWTH: f64 = 1.15;
/// Without lazy noise a full decomposition is possible, and faster once the space exceeds p over this.
const MAX_SPACE_DIVISOR: usize = 3;

/// A point of the Fantope, given by its nonzero eigenpairs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FantopeFactor {
    /// V, `p × r`: orthonormal.
    pub vectors: DMatrix<f64>,
    /// Weights in (0, 1], descending, that add up to k.
    pub weights: Vec<f64>,
    /// Dimension of the Krylov space that sufficed.
    pub krylov_dimension: usize,
}

impl FantopeFactor {
    /// From a full decomposition.
    pub(super) fn new(vectors: DMatrix<f64>, weights: Vec<f64>) -> Self {
        Self {
            vectors,
            weights,
            krylov_dimension: 0,
        }
    }

    /// `diag(w)·Vᵀ·block`, `r × b` for a `p × b` block.
    pub(super) fn scores(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let mut scores = tall_cross_product(&self.vectors, block);
        for (mut row, &weight) in scores.row_iter_mut().zip(&self.weights) {
            row *= weight;
        }
        scores
    }

    /// `V·diag(w)·Vᵀ·block`.
    pub(super) fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        tall_product(&self.vectors, &self.scores(block))
    }

    /// Distance to a point of the same space, or of a larger one that begins with this one's coordinates.
    pub(super) fn distance(&self, later: &Self) -> f64 {
        let same = later.vectors.rows(0, self.vectors.nrows()).into_owned();
        let overlap = cross_product(&self.vectors, &same);
        let square = |weights: &[f64]| weights.iter().map(|w| w * w).sum::<f64>();
        let mut both = 0.0;
        for (j, wb) in later.weights.iter().enumerate() {
            for (i, wa) in self.weights.iter().enumerate() {
                both += wa * wb * overlap[(i, j)].powi(2);
            }
        }
        let squared = square(&self.weights) + square(&later.weights) - 2.0 * both;
        squared.max(0.0).sqrt()
    }
}

/// Projects H + W onto `F^k` by block Lanczos: H is `matrix`, W is the lazily drawn `noise`, and p the dimension of W.
/// If p exceeds the dimension of H, the vectors are in coordinates: H's, then as many as were needed beyond
/// ([`LazyGoe`]). The result is the point of `F^k` supported on the Krylov space that is nearest to H + W, so it is
/// exactly feasible; the space grows until the residuals bound the distance to the projection by `accuracy` relative to
/// the projection's norm, or until the result moves by less than that while the space grows by a seventh. The second
/// criterion is no proof; on noise the remaining distance was at most a tenth of the move.
///
/// `near` is the projection of a nearby matrix, if known: its vectors start the iteration, and its space tells when to
/// compute Ritz pairs. It must not depend on the noise.
///
/// The work is `m` products and `4pm²` operations for a space of dimension m. If θ lies at depth d below the edge R of
/// a noise spectrum, m is about `4pd/R`.
///
/// Without noise, copies of an eigenvalue repeated more often than the block is wide may be missed; data in general
/// position have none.
///
/// `None` if the space would exceed a third of p without noise, or is invariant: then a full decomposition is better.
/// With noise the space grows up to p if necessary, because noise must not be drawn twice.
pub(super) fn project_onto_fantope_partially(
    matrix: &dyn Symmetric,
    mut noise: Option<&mut LazyGoe<'_>>,
    k: usize,
    near: Option<&FantopeFactor>,
    accuracy: f64,
) -> Result<Option<FantopeFactor>> {
    let own_dimension = matrix.dimension();
    let p = own_dimension + noise.as_ref().map_or(0, |noise| noise.beyond);
    require_rank(k, p)?;
    let is_noisy = noise.is_some();
    let largest = if is_noisy { p } else { p / MAX_SPACE_DIVISOR };
    let width = (p / DIMENSIONS_PER_COLUMN)
        .clamp(MIN_BLOCK, MAX_BLOCK)
        .max(k + 2)
        .min(own_dimension);
    let start = completed_with_random(near.map(|near| &near.vectors), own_dimension, width);
    let mut lanczos = BlockLanczos::new(matrix, &start);
    // A candidate, in the coordinates of the basis.
    let mut previous: Option<FantopeFactor> = None;
    // At least two checks; the second at the size that sufficed last time.
    let previous_size = near.map_or(0.0, |near| near.krylov_dimension as f64 / GROWTH);
    let mut next_check = (previous_size as usize).max(4 * width);
    loop {
        let grown = match &mut noise {
            Some(noise) => lanczos.grow_with(|within, image| {
                noise.add_product(own_dimension, within, image);
            }),
            None => lanczos.grow(),
        };
        if grown && lanczos.krylov_dimension() < next_check.min(largest) {
            continue;
        }
        let krylov_dimension = lanczos.krylov_dimension();
        let mut weights = Vec::new();
        let Ritz {
            coordinates,
            residuals,
            ..
        } = lanczos.ritz(|values| {
            if krylov_dimension >= k {
                weights = project_eigenvalues(values, k)?.values;
                weights.truncate(weights.iter().take_while(|&&w| w > 0.0).count());
            }
            Ok(weights.len())
        })?;
        // An invariant space may contain too few copies of a repeated eigenvalue; with noise no eigenvalue repeats.
        if krylov_dimension < k
            || (!is_noisy && krylov_dimension < p && lanczos.is_rank_deficient())
        {
            return Ok(None);
        }
        let rank = weights.len();
        let size = weights.iter().map(|w| w * w).sum::<f64>().sqrt();
        let residual = residuals.iter().map(|r| r * r).sum::<f64>().sqrt();
        let factor = FantopeFactor::new(coordinates, weights);
        let moved = previous.as_ref().map(|before| before.distance(&factor));
        let all = krylov_dimension == p;
        // The projection is non-expansive: residuals R move it by at most √2‖R‖_F. Part of the spectrum must be
        // outside.
        let settled = rank < krylov_dimension
            && (std::f64::consts::SQRT_2 * residual <= accuracy * size
                || moved.is_some_and(|moved| moved <= accuracy * size));
        if all || settled {
            return Ok(Some(FantopeFactor {
                vectors: lanczos.vectors(&factor.vectors),
                weights: factor.weights,
                // If it hardly moved, the previous space would have sufficed.
                krylov_dimension: match previous {
                    Some(before) if moved.is_some_and(|moved| moved <= 0.1 * accuracy * size) => {
                        before.vectors.nrows()
                    }
                    _ => krylov_dimension,
                },
            }));
        }
        if !grown || krylov_dimension >= largest {
            return Ok(None);
        }
        previous = Some(factor);
        next_check = ((krylov_dimension as f64 * GROWTH) as usize).max(krylov_dimension + width);
    }
}

/// The first of the `known` columns, filled up to `width` with random ones, at least a quarter: a direction orthogonal
/// to the block would never be found.
fn completed_with_random(known: Option<&DMatrix<f64>>, p: usize, width: usize) -> DMatrix<f64> {
    let most = width - width.div_ceil(4);
    let known_columns = known.map_or(0, |known| known.ncols().min(most));
    let mut block = DMatrix::zeros(p, width);
    if let Some(known) = known {
        block
            .columns_mut(0, known_columns)
            .copy_from(&known.columns(0, known_columns));
    }
    let random = StartVectors::default().block(p, width - known_columns);
    block
        .columns_mut(known_columns, width - known_columns)
        .copy_from(&random);
    block
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{
        fantope::project_onto_fantope,
        linalg::{add_outer_lower, orthonormality_defect, outer_scaled},
        models::uniform_frame,
    };

    use super::*;
    use crate::{Generator, generator, parts::noise::SymmetricNoise};

    fn rng(seed: u64) -> Generator {
        generator(Some(seed)).unwrap()
    }

    /// Noise with this spectral edge, √(2p)·sd.
    fn add_noise(mut matrix: DMatrix<f64>, edge: f64, rng: &mut Generator) -> DMatrix<f64> {
        let sd = edge / (2.0 * matrix.nrows() as f64).sqrt();
        SymmetricNoise::Isotropic(sd).add_to(&mut matrix, rng);
        matrix
    }

    /// Three strong directions, and a few weak ones.
    fn low_rank(p: usize, scale: f64, rng: &mut Generator) -> DMatrix<f64> {
        let vectors = uniform_frame(rng, p, 6).unwrap();
        outer_scaled(&vectors, &[3.0, 2.8, 2.0, 0.3, 0.2, 0.1].map(|w| w * scale))
    }

    fn fully_projected(matrix: &DMatrix<f64>, k: usize) -> DMatrix<f64> {
        let (vectors, weights) = project_onto_fantope(matrix, k).unwrap();
        outer_scaled(&vectors.columns(0, weights.len()).into_owned(), &weights)
    }

    fn distance(factor: &FantopeFactor, full: &DMatrix<f64>) -> f64 {
        let mut rest = full.clone();
        let minus: Vec<f64> = factor.weights.iter().map(|w| -w).collect();
        add_outer_lower(&mut rest, &factor.vectors, &minus);
        rest.fill_upper_triangle_with_lower_triangle();
        rest.norm() / full.norm()
    }

    /// Spectra with a gap and noise of every size: feasible up to rounding and as close to the full projection as
    /// requested.
    #[test]
    fn partial_projection_agrees_with_the_full_one() {
        let p = 600;
        for (seed, edge) in [(1, 1e-3), (2, 0.02), (3, 1.0), (4, 10.0), (5, 100.0)] {
            let mut rng = rng(seed);
            let matrix = add_noise(low_rank(p, 1.0, &mut rng), edge, &mut rng);
            for k in [1, 2, 5] {
                let full = fully_projected(&matrix, k);
                for accuracy in [1e-2, 1e-6] {
                    let projected =
                        project_onto_fantope_partially(&matrix, None, k, None, accuracy).unwrap();
                    let Some(projected) = projected else {
                        // Six directions of total weight 3.6: at k = 5 many others are needed.
                        assert!(
                            edge > 0.01 || k == 5,
                            "a low rank needs only part of the spectrum"
                        );
                        continue;
                    };
                    let distance = distance(&projected, &full);
                    assert!(
                        distance <= accuracy + 1e-9,
                        "edge {edge}, k {k}: {distance}"
                    );
                    assert!(orthonormality_defect(&projected.vectors) < 1e-12);
                    assert!((projected.weights.iter().sum::<f64>() - k as f64).abs() < 1e-12);
                    assert!(projected.weights.iter().all(|w| (0.0..=1.0).contains(w)));
                    assert!(projected.krylov_dimension <= p / 3);
                }
            }
        }
    }

    /// From the vectors of a neighbouring matrix a smaller space suffices.
    #[test]
    fn a_good_start_helps() {
        let p = 600;
        let mut rng = rng(6);
        let matrix = add_noise(low_rank(p, 1.0, &mut rng), 0.17, &mut rng);
        let search = |near: Option<&FantopeFactor>| {
            let projected = project_onto_fantope_partially(&matrix, None, 2, near, 1e-8);
            projected.unwrap().unwrap()
        };
        let mut cold = search(None);
        let warm = search(Some(&cold));
        assert!(cold.distance(&warm) < 1e-7);
        // With the same block width, so that only the vectors make the difference.
        cold.krylov_dimension = 0;
        let warm = search(Some(&cold));
        assert!(cold.distance(&warm) < 1e-7);
        assert!(warm.krylov_dimension < search(None).krylov_dimension);
        // An uninformative start does no harm.
        cold.vectors.fill(0.0);
        assert!(search(Some(&cold)).distance(&warm) < 1e-7);
    }

    /// An iteration that stops early gives nearly the projection of the matrix that the same random numbers yield when
    /// the iteration continues until all noise is drawn.
    #[test]
    fn partially_drawn_noise_gives_the_projection_of_all_of_it() {
        let p = 300;
        for (seed, edge) in [(1, 0.3), (2, 3.0), (3, 30.0)] {
            let h = low_rank(p, 1.0, &mut rng(seed));
            let sd = edge / (2.0 * p as f64).sqrt();
            let width = MIN_BLOCK;
            let start = completed_with_random(None, p, width);
            let whole = fully_drawn(&h, sd, 0, &start, &mut rng(100 + seed));
            let mut source = rng(100 + seed);
            let mut noise = LazyGoe {
                sd,
                beyond: 0,
                rng: &mut source,
            };
            let projected = project_onto_fantope_partially(&h, Some(&mut noise), 2, None, 1e-3);
            let projected = projected.unwrap().unwrap();
            assert!(projected.krylov_dimension < p, "nothing was saved");
            let distance = distance(&projected, &fully_projected(&whole, 2));
            assert!(distance < 1e-3, "edge {edge}: {distance}");
        }
    }

    /// H + W with all of W drawn, the coordinates beyond H rotated randomly.
    fn fully_drawn(
        h: &DMatrix<f64>,
        sd: f64,
        beyond: usize,
        start: &DMatrix<f64>,
        source: &mut Generator,
    ) -> DMatrix<f64> {
        let mut noise = LazyGoe {
            sd,
            beyond,
            rng: source,
        };
        let mut lanczos = BlockLanczos::new(h, start);
        let dimension = h.nrows();
        while lanczos.grow_with(|within, image| noise.add_product(dimension, within, image)) {}
        let ritz = lanczos.ritz(|values| Ok(values.len())).unwrap();
        let mut vectors = lanczos.vectors(&ritz.coordinates);
        assert_eq!(vectors.shape(), (h.nrows() + beyond, h.nrows() + beyond));
        if beyond > 0 {
            let rotation = uniform_frame(source, beyond, beyond).unwrap();
            let rotated = rotation * vectors.rows(h.nrows(), beyond);
            vectors.rows_mut(h.nrows(), beyond).copy_from(&rotated);
        }
        outer_scaled(&vectors, &ritz.values)
    }

    /// The lazily drawn noise has the right distribution, along the axes and along the directions that the iteration
    /// chose adaptively: 60 matrices of dimension 40 with 46,800 entries off the diagonal, 2,400 on it. The relative
    /// standard errors of the variances are 0.65 and 2.9 %, six of them 4 and 17 %; of the 60 values along H, the
    /// mean's is 0.13 sd and the variance's 18 %, six of them 0.78 and 110 %. False alarms below 1e-8. Two cases: H of
    /// full dimension, and of dimension 14 with 26 beyond.
    #[test]
    fn fully_drawn_noise_is_goe() {
        check_noise_distribution(0);
        check_noise_distribution(26);
    }

    fn check_noise_distribution(beyond: usize) {
        let (p, sd, repeats) = (40, 0.7, 60);
        let own_dimension = p - beyond;
        let (mut off, mut on, mut along, mut along_squared) = (0.0, 0.0, 0.0, 0.0);
        let mut products = 0.0;
        for repeat in 0..repeats {
            let mut rng = rng(1000 + repeat);
            let mut h = low_rank(own_dimension, 5.0, &mut rng);
            let start = uniform_frame(&mut rng, own_dimension, 3).unwrap();
            let mut w = fully_drawn(&h, sd, beyond, &start, &mut rng);
            h.resize_mut(p, p, 0.0);
            w -= &h;
            for j in 0..p {
                on += (w[(j, j)] / sd).powi(2);
                for i in 0..j {
                    off += 2.0 * (w[(i, j)] / sd).powi(2);
                    products += w[(i, j)] * w[(j, j)] / (sd * sd);
                }
            }
            let z = w.dot(&h) / (h.norm() * sd);
            along += z;
            along_squared += z * z;
        }
        let n = repeats as f64;
        let pairs = n * (p * (p - 1) / 2) as f64;
        let moments = [
            off / pairs,
            on / (n * p as f64),
            along / n,
            along_squared / n,
        ];
        let [off, on, along, along_squared] = moments;
        assert!(
            (off - 1.0).abs() < 0.04 && (on - 1.0).abs() < 0.17,
            "{moments:?}"
        );
        assert!(
            along.abs() < 0.78 && (along_squared - 1.0).abs() < 1.1,
            "{moments:?}"
        );
        // Products of independent numbers with variances 1/2 and 1: six standard errors.
        assert!(products.abs() < 6.0 * (0.5 * pairs).sqrt(), "{products}");
    }

    #[test]
    fn unsuitable_spectra_return_none_without_noise() {
        let p = 90;
        let projection_of = |matrix: &DMatrix<f64>| {
            project_onto_fantope_partially(matrix, None, 2, None, 1e-6).unwrap()
        };
        // All directions equal: the projection is (2/p)I, of rank p.
        assert_eq!(projection_of(&DMatrix::identity(p, p)), None);
        assert_eq!(projection_of(&DMatrix::zeros(p, p)), None);
        let matrix = low_rank(p, 1.0, &mut rng(1));
        assert!(project_onto_fantope_partially(&matrix, None, 0, None, 1.0).is_err());
    }
}
