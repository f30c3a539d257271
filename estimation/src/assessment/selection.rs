//! What choosing features adds to the expected error of a sparse estimate (`docs/derivations/selection.md`).

use eigenveil_shared::{Result, estimate::SelectionLoss};
use nalgebra::DVector;

use super::{Floor, Measured, Spike, Support, closed_form::unit_of_loss, shrinkage::Divergence};
use crate::search::bisect;

/// Quantile of the normal distribution with 5 % beyond it.
pub(super) const NORMAL_95: f64 = 1.645;
/// 2t² over the width of the interval of W from t²/2 to 2t².
const JUMP: f64 = 2.0 / 1.5;
/// The most of the loss within the rows that shrinking is taken to save.
const MOST_SAVED: f64 = 0.9;

/// The images of the components that stand out.
struct Images {
    /// Squared length of each row, in units of the noise.
    squares: Vec<f64>,
    /// Sum of the variances of the components' tangents.
    unit: f64,
    /// θ of each component.
    sizes: Vec<f64>,
}

impl Images {
    fn new(
        measured: &Measured<'_>,
        on: &Support<'_>,
        floor: &Floor,
        spikes: &[Option<Spike>],
    ) -> Self {
        let excess_of_row = excess_of_rows(measured);
        let noise = &floor.noise;
        let along_mean = noise.along_mean / noise.directions as f64;
        let mut squares = vec![0.0; measured.spectrum.dimension];
        let mut unit = 0.0;
        let mut sizes = Vec::new();
        for (j, spike) in spikes.iter().enumerate() {
            let Some(Spike { theta, .. }) = *spike else {
                continue;
            };
            let along = noise.with_excess(measured.excess_along(j));
            let variance = along.variance_between(theta, 0.0);
            if variance <= 0.0 || theta <= 0.0 {
                continue;
            }
            unit += variance / (theta * theta);
            sizes.push(theta);
            let (image, vector) = (on.images.column(j), measured.vectors.column(j));
            for (i, square) in squares.iter_mut().enumerate() {
                let entry = image[i] - floor.centre * vector[i];
                let excess = excess_of_row.get(i).copied().unwrap_or(0.0);
                *square += entry * entry / (variance + along_mean * excess);
            }
        }
        Self {
            squares,
            unit,
            sizes,
        }
    }
}

/// From the images `S̃v̂` of the components that stand out, in units of the noise: pure noise makes their squares χ²
/// distributed in each row, one degree of freedom per component. So many would stand out if they were `refitted`.
pub(super) fn loss(
    measured: &Measured<'_>,
    on: &Support<'_>,
    floor: &Floor,
    spikes: &[Option<Spike>],
    refitted: usize,
) -> Result<SelectionLoss> {
    let images = Images::new(measured, on, floor, spikes);
    let one = unit_of_loss(measured.noise, measured.n_eff);
    if one <= 0.0 {
        return Ok(SelectionLoss::default());
    }
    let shrunk = on
        .shrunk
        .map(|shrunk| (shrunk, measured.vectors.select_rows(on.rows)));
    let moved = shrunk.as_ref().map_or(0.0, |(shrunk, vectors)| {
        let moves = (0..refitted).map(|j| shrunk.moved(vectors, j));
        moves.sum::<f64>() / one
    });
    if images.sizes.is_empty() || on.rows.is_empty() {
        return Ok(SelectionLoss {
            central: moved,
            low: 0.0,
            high: moved,
        });
    }
    let choice = Choice::new(images, on.rows, one);
    let Some((shrunk, vectors)) = &shrunk else {
        return Ok(choice.loss_of_refitted());
    };
    let mut followed = (0.0, 0.0);
    if choice.images.sizes.len() == spikes.len() {
        followed = choice.followed(&shrunk.divergence(vectors, &choice.images.sizes)?);
    }
    Ok(choice.loss_of_shrunk(moved, followed))
}

/// The rows chosen, the others, and what noise alone would have made of both.
struct Choice {
    /// With squares descending.
    images: Images,
    /// A [`SelectionLoss`] of 1, in mean squared sines.
    one: f64,
    /// Components, k.
    k: f64,
    /// Mean variance of a component's tangent, in units of `one`.
    unit: f64,
    selected: usize,
    rejected: f64,
    /// Squares of the rejected rows beyond the mean of noise.
    outside: f64,
    /// Square of the last row chosen.
    threshold: f64,
    /// Square above the threshold by noise alone.
    falsely: f64,
    /// Square above the threshold if noise alone had chosen every row.
    all_falsely: f64,
}

impl Choice {
    fn new(mut images: Images, rows: &[usize], one: f64) -> Self {
        let (p, selected, freedom) = (images.squares.len(), rows.len(), images.sizes.len());
        let k = freedom as f64;
        let rejected = p.saturating_sub(selected) as f64;
        let squares = &mut images.squares;
        let chosen: f64 = rows.iter().map(|&row| squares[row]).sum();
        let outside = squares.iter().sum::<f64>() - chosen - k * rejected;
        squares.sort_unstable_by(|a, b| b.total_cmp(a));
        let threshold = squares[selected.min(p) - 1];
        let share = selected as f64 / p as f64;
        Self {
            one,
            k,
            unit: images.unit / (k * one),
            selected,
            rejected,
            outside,
            threshold,
            falsely: chosen_by_noise(rejected, threshold, freedom),
            all_falsely: match rejected > 0.0 {
                true => chosen_by_noise(p as f64, limit(share, freedom), freedom),
                false => 0.0,
            },
            images,
        }
    }

    /// The loss of these squared tangents: the images are those of components whose length on the selected rows is 1.
    fn sines(&self, tangents: f64) -> f64 {
        let loss = self.unit * tangents;
        loss / (1.0 + loss * self.one / self.k)
    }

    /// How much more than refitted components the shrunk ones follow the noise, at least and at most.
    fn followed(&self, divergence: &Divergence) -> (f64, f64) {
        let sizes = self.images.sizes.iter();
        let inverse_squares: f64 = sizes.map(|theta| theta.powi(-2)).sum();
        let value = 2.0 * self.unit * self.k / inverse_squares * divergence.value;
        match divergence.is_bound {
            true => (f64::NEG_INFINITY, value),
            false => (value, value),
        }
    }

    /// Stein's estimate of a soft threshold: what shrinking moved, and how much more the loadings follow the noise, less
    /// the noise that the rows left out lack.
    fn loss_of_shrunk(&self, moved: f64, (least, most): (f64, f64)) -> SelectionLoss {
        let uncertain = NORMAL_95 * (2.0 * self.k * self.rejected).sqrt();
        let beyond_noise = self.outside + self.falsely;
        let unsaved = self.selected.saturating_sub(self.images.sizes.len());
        let smallest = -MOST_SAVED * self.unit * self.k * unsaved as f64;
        let with = |missing: f64, followed: f64| {
            let moved = moved + followed - self.unit * (self.falsely - missing.min(0.0));
            let missing = self.sines(missing.max(0.0));
            missing + moved.max(smallest) * (1.0 - missing * self.one / self.k)
        };
        let all_falsely = self.sines(self.all_falsely);
        SelectionLoss {
            central: with(significant(beyond_noise, uncertain), most),
            low: with(beyond_noise - uncertain, least),
            high: all_falsely.max(with(beyond_noise.max(0.0) + uncertain, most)),
        }
    }

    /// Stein's estimate of a hard threshold, with the density at the threshold from the rows around it.
    fn loss_of_refitted(&self) -> SelectionLoss {
        if self.rejected == 0.0 {
            return SelectionLoss::default();
        }
        let around = 0.5 * self.threshold..2.0 * self.threshold;
        let squares = self.images.squares.iter();
        let near = squares.filter(|square| around.contains(*square)).count() as f64;
        let unbiased = self.outside + JUMP * near;
        let noise = 2.0 * self.k * self.rejected + JUMP * JUMP * near;
        let uncertain = NORMAL_95 * noise.sqrt();
        let beyond_noise = unbiased - self.falsely;
        let expected = self.falsely + significant(beyond_noise, uncertain);
        let most = self.falsely.max(unbiased) + uncertain;
        SelectionLoss {
            central: self.sines(expected),
            low: self.sines((beyond_noise - uncertain).max(0.0)),
            high: self.sines(self.all_falsely.max(most)),
        }
    }
}

/// The value if it exceeds its uncertainty, else 0.
fn significant(value: f64, uncertain: f64) -> f64 {
    if value > uncertain { value } else { 0.0 }
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
