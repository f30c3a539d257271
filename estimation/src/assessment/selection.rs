//! What choosing features adds to the expected error of a sparse estimate (`docs/derivations/selection.md`).

use eigenveil_shared::{Result, estimate::SelectionLoss};
use nalgebra::{DMatrix, DVector};

use super::{Floor, Measured, Refitted, Spike};
use crate::{linalg::top_k, search::bisect};

/// Quantile of the normal distribution with 5 % beyond it.
pub(super) const NORMAL_95: f64 = 1.645;
/// 4t² over the width of the interval of W from t²/2 to 2t².
const JUMP: f64 = 4.0 / 1.5;
/// Rows of noise taken for missing features, on average.
const FALSELY_SEEN: f64 = 0.05;
/// Most missing features whose rows are fitted together with the selected ones.
const MAX_SEEN: usize = 1_000;

/// Losses of each component by the choice of features, beside those within the chosen `rows`: mean squared sines,
/// nothing for one that does not stand out.
pub(super) fn losses(
    measured: &Measured<'_>,
    rows: &[usize],
    on: &Refitted<'_>,
    floor: &Floor,
    spikes: &[Option<Spike>],
) -> Result<Vec<SelectionLoss>> {
    let mut losses = vec![SelectionLoss::default(); spikes.len()];
    let images = images(measured, on, floor, spikes);
    if images.is_empty() || rows.is_empty() || rows.len() == measured.spectrum.dimension {
        return Ok(losses);
    }
    let choice = Choice::new(rows, &images);
    let apart = choice.apart(measured.vectors, on)?;
    for image in &images {
        losses[image.component] = choice.loss(image, apart[image.component]);
    }
    Ok(losses)
}

/// The image of a component that stands out. Pure noise makes its squares χ² distributed with one degree of freedom.
struct Image {
    component: usize,
    /// Squared entry of each row, in units of the noise.
    squares: Vec<f64>,
    /// Squared tangent that 1 of these squares stands for, V/θ².
    unit: f64,
}

impl Image {
    /// Squared sine of the angle that rows with these squares turn the component by.
    fn squared_sine(&self, squares: f64) -> f64 {
        let tangent = self.unit * squares.max(0.0);
        tangent / (1.0 + tangent)
    }
}

fn images(
    measured: &Measured<'_>,
    on: &Refitted<'_>,
    floor: &Floor,
    spikes: &[Option<Spike>],
) -> Vec<Image> {
    let excess_of_row = excess_of_rows(measured);
    let noise = &floor.noise;
    let along_mean = noise.along_mean / noise.directions as f64;
    let image = |(component, spike): (usize, &Option<Spike>)| {
        let theta = spike.as_ref()?.theta;
        let along = noise.with_excess(measured.excess_along(component));
        let variance = along.variance_between(theta, 0.0);
        if variance <= 0.0 || theta <= 0.0 {
            return None;
        }
        let column =
            on.images.column(component) - measured.vectors.column(component) * floor.centre;
        let squares = column.iter().enumerate().map(|(row, entry)| {
            let excess = excess_of_row.get(row).copied().unwrap_or(0.0);
            entry * entry / (variance + along_mean * excess)
        });
        Some(Image {
            component,
            squares: squares.collect(),
            unit: variance / (theta * theta),
        })
    };
    spikes.iter().enumerate().filter_map(image).collect()
}

/// The rows chosen and those left out, and what noise alone would have made of both.
struct Choice<'a> {
    chosen: &'a [usize],
    /// Rows left out that noise alone does not make so large.
    seen: Vec<usize>,
    /// The other rows left out.
    rest: Vec<usize>,
    /// W: squared length of each row of the images.
    lengths: Vec<f64>,
    /// t²: the least length of the largest rows, as many as were chosen.
    threshold: f64,
    /// Square of one image above the threshold by noise alone.
    falsely: f64,
    /// Square of one image above the threshold if noise alone had chosen every row.
    all_falsely: f64,
}

impl<'a> Choice<'a> {
    /// With at least one row chosen, ascending, and one left out.
    fn new(chosen: &'a [usize], images: &[Image]) -> Self {
        let (p, freedom) = (images[0].squares.len(), images.len());
        let length = |row: usize| images.iter().map(|image| image.squares[row]).sum::<f64>();
        let lengths: Vec<f64> = (0..p).map(length).collect();
        let mut descending = lengths.clone();
        descending.sort_unstable_by(|a, b| b.total_cmp(a));
        let threshold = descending[chosen.len() - 1];
        let shows = limit(FALSELY_SEEN / (p - chosen.len()) as f64, freedom);
        let (mut seen, mut rest): (Vec<usize>, Vec<usize>) = (0..p)
            .filter(|row| chosen.binary_search(row).is_err())
            .partition(|&row| lengths[row] > shows);
        seen.sort_unstable_by(|&a, &b| lengths[b].total_cmp(&lengths[a]));
        rest.extend(seen.drain(MAX_SEEN.min(seen.len())..));
        let of_one =
            |rows: usize, x: f64| chosen_by_noise(rows as f64, x, freedom) / freedom as f64;
        Self {
            threshold,
            falsely: of_one(rest.len(), threshold),
            all_falsely: of_one(p, limit(chosen.len() as f64 / p as f64, freedom)),
            chosen,
            seen,
            rest,
            lengths,
        }
    }

    /// Squared sine between each component and the space of as many on the chosen rows together with the missing ones.
    fn apart(&self, vectors: &DMatrix<f64>, on: &Refitted<'_>) -> Result<Vec<f64>> {
        if self.seen.is_empty() {
            return Ok(vec![0.0; vectors.ncols()]);
        }
        let rows = [self.chosen, &self.seen].concat();
        let space = top_k(&(on.moment)(&rows), vectors.ncols())?.vectors;
        let cosines = space.tr_mul(&vectors.select_rows(&rows));
        let sine =
            |cosines: nalgebra::DVectorView<'_, f64>| (1.0 - cosines.norm_squared()).max(0.0);
        Ok(cosines.column_iter().map(sine).collect())
    }

    /// The loss that is seen, and for the rest Stein's estimate of a hard threshold, with the density at the threshold
    /// from the rows around it.
    fn loss(&self, image: &Image, apart: f64) -> SelectionLoss {
        let seen = self.seen.len() as f64;
        let missing = (apart - seen * image.unit).max(0.0).sqrt();
        let open = if seen > 0.0 {
            NORMAL_95 * image.unit.sqrt()
        } else {
            0.0
        };
        let near = 0.5 * self.threshold..2.0 * self.threshold;
        let (mut jump, mut noise) = (0.0, 2.0 * self.rest.len() as f64);
        for &row in self.chosen.iter().chain(&self.rest) {
            if near.contains(&self.lengths[row]) {
                let step = JUMP * image.squares[row] / self.lengths[row];
                jump += step;
                noise += step * step;
            }
        }
        let left_out = self.rest.iter().map(|&row| image.squares[row] - 1.0);
        let unbiased = left_out.sum::<f64>() + jump;
        let beyond_noise = unbiased - self.falsely;
        let uncertain = NORMAL_95 * noise.sqrt();
        let significant = if beyond_noise > uncertain {
            beyond_noise
        } else {
            0.0
        };
        let most = self.all_falsely.max(self.falsely.max(unbiased) + uncertain);
        let with = |missing: f64, squares: f64| {
            (missing.max(0.0).powi(2) + image.squared_sine(squares)).min(1.0)
        };
        SelectionLoss {
            central: with(missing, self.falsely + significant),
            low: with(missing - open, beyond_noise - uncertain),
            high: with(missing + open, most),
        }
    }
}

/// The excess of the noise along each feature; empty where it does not differ.
fn excess_of_rows(measured: &Measured<'_>) -> Vec<f64> {
    let Some(noise) = measured.excess_noise else {
        return Vec::new();
    };
    let mut unit = DVector::zeros(measured.spectrum.dimension);
    (0..unit.len())
        .map(|row| {
            unit[row] = 1.0;
            let excess = noise.along(unit.column(0));
            unit[row] = 0.0;
            excess
        })
        .collect()
}

/// `Σ E[(W − k)·1{W > x}] = 2xf(x)·rows` over rows of noise, W χ² distributed with k degrees of freedom: what they have
/// above x beyond the mean.
fn chosen_by_noise(rows: f64, x: f64, freedom: usize) -> f64 {
    2.0 * rows * x * density(x, freedom)
}

/// Density of χ² with so many degrees of freedom.
fn density(x: f64, freedom: usize) -> f64 {
    let half = 0.5 * freedom as f64;
    if x <= 0.0 {
        return 0.0;
    }
    ((half - 1.0) * (0.5 * x).ln() - 0.5 * x - libm::lgamma(half)).exp() / 2.0
}

/// P(χ² > x), by `Q_{k+2} = Q_k + 2f_{k+2}`.
fn tail(x: f64, freedom: usize) -> f64 {
    let (first, mut sum) = match freedom % 2 {
        1 => (1, libm::erfc((0.5 * x).sqrt())),
        _ => (2, (-0.5 * x).exp()),
    };
    for k in (first + 2..=freedom).step_by(2) {
        sum += 2.0 * density(x, k);
    }
    sum
}

/// x with P(χ² > x) = `share`, by bisection.
fn limit(share: f64, freedom: usize) -> f64 {
    let below = |x: f64| tail(x, freedom) > share;
    let mut high = 1.0;
    while below(high) {
        high *= 2.0;
    }
    let (low, high) = bisect(0.0, high, 60, below);
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_scipy() {
        // scipy.stats.chi2.isf and pdf.
        for (share, freedom, x, f) in [
            (0.1, 1, 2.70554345409542, 0.06270201717980203),
            (0.11, 2, 4.414549826379441, 0.055),
            (0.25, 3, 4.108344935632312, 0.10366394878238103),
            (0.003, 2, 11.618285980628055, 0.0015),
            (1e-05, 7, 35.258536421480876, 4.331971641054466e-06),
        ] {
            let quantile = limit(share, freedom);
            assert!(
                (quantile / x - 1.0).abs() < 1e-9,
                "{share} {freedom}: {quantile}"
            );
            assert!((density(x, freedom) / f - 1.0).abs() < 1e-9);
        }
    }

    /// The two largest of three rows of noise hold `∫` of their excess over the mean, by summing draws' quantiles.
    #[test]
    fn the_excess_of_chosen_noise_is_its_integral() {
        for freedom in [1, 2, 5] {
            let x = limit(0.2, freedom);
            let steps = 20_000;
            let mean: f64 = (0..steps)
                .map(|i| {
                    limit(0.2 * (f64::from(i) + 0.5) / f64::from(steps), freedom) - freedom as f64
                })
                .sum::<f64>()
                * 0.2
                / f64::from(steps);
            let closed = chosen_by_noise(1.0, x, freedom);
            assert!(
                (mean / closed - 1.0).abs() < 1e-3,
                "{freedom}: {mean} {closed}"
            );
        }
    }
}
