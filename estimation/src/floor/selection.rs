//! What choosing features adds to the expected error of a sparse estimate (`docs/derivations/selection.md`).

use eigenveil_shared::{Result, estimate::SelectionLoss, mechanism::NoiseModel};
use nalgebra::DVector;

use super::{Floor, Measured, Spike, Support, centring};
use crate::search::bisect;

/// Quantile of the normal distribution with 5 % beyond it.
pub(super) const NORMAL_95: f64 = 1.645;
/// 2t² over the width of the interval of W from t²/2 to 2t².
const JUMP: f64 = 2.0 / 1.5;
/// The most of the loss within the rows that shrinking is taken to save.
const MOST_SAVED: f64 = 0.9;

/// What a [`SelectionLoss`] of 1 is in mean squared sines, with the noise of `n_eff` reports.
pub(super) fn unit_of_loss(noise: &NoiseModel, n_eff: f64) -> f64 {
    noise.off_diagonal_sd().powi(2) / n_eff
}

/// From the images `S̃v̂` of the components that stand out, in units of the noise: pure noise makes their squares χ²
/// distributed in each row, one degree of freedom a component. So many would stand out if they
/// were `refitted`.
pub(super) fn loss(
    measured: &Measured<'_>,
    on: &Support<'_>,
    floor: &Floor,
    spikes: &[Option<Spike>],
    refitted: usize,
) -> Result<SelectionLoss> {
    let (p, selected) = (measured.spectrum.dimension, on.rows.len());
    let excess_of_row = excess_of_rows(measured);
    let noise = &floor.noise;
    let along_mean = noise.along_mean / noise.directions as f64;
    let mut squares = vec![0.0; p];
    let mut unit = 0.0;
    let mut sizes = Vec::new();
    for (j, spike) in spikes.iter().enumerate() {
        let Some(Spike { theta, .. }) = *spike else {
            continue;
        };
        let along = noise.with_excess(centring::excess(measured, j));
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
    let one = unit_of_loss(measured.noise, measured.n_eff);
    if one <= 0.0 {
        return Ok(SelectionLoss::default());
    }
    let mut moved = 0.0;
    let shrunk = on
        .shrunk
        .map(|shrunk| (shrunk, measured.vectors.select_rows(on.rows)));
    if let Some((shrunk, vectors)) = &shrunk {
        let moves = (0..refitted).map(|j| shrunk.moved(vectors, j));
        moved = moves.sum::<f64>() / one;
    }
    let freedom = sizes.len();
    if freedom == 0 || selected == 0 {
        return Ok(SelectionLoss {
            central: moved,
            low: 0.0,
            high: moved,
        });
    }
    let k = freedom as f64;
    unit /= k * one;
    let rejected = p.saturating_sub(selected) as f64;
    let chosen: f64 = on.rows.iter().map(|&row| squares[row]).sum();
    let outside = squares.iter().sum::<f64>() - chosen - k * rejected;
    squares.sort_unstable_by(|a, b| b.total_cmp(a));
    let threshold = squares[selected.min(p) - 1];
    let falsely = chosen_by_noise(rejected, threshold, freedom);
    let share = selected as f64 / p as f64;
    let all_falsely = match rejected > 0.0 {
        true => chosen_by_noise(p as f64, limit(share, freedom), freedom),
        false => 0.0,
    };
    // What the images show are tangents, of components whose length on the selected rows is 1.
    let sines = |tangents: f64| {
        let loss = unit * tangents;
        loss / (1.0 + loss * one / k)
    };
    if let Some((shrunk, vectors)) = &shrunk {
        // Stein's estimate of a soft threshold: what shrinking moved, and how much more the loadings follow the noise,
        // less the noise that the rows left out lack.
        let uncertain = NORMAL_95 * (2.0 * k * rejected).sqrt();
        let beyond_noise = outside + falsely;
        let mut followed = (0.0, 0.0);
        if freedom == spikes.len() {
            let found = shrunk.divergence(vectors, &sizes)?;
            let inverse_squares: f64 = sizes.iter().map(|theta| theta.powi(-2)).sum();
            let value = 2.0 * unit * k / inverse_squares * found.value;
            followed = match found.is_bound {
                true => (f64::NEG_INFINITY, value),
                false => (value, value),
            };
        }
        let least = -MOST_SAVED * unit * k * selected.saturating_sub(freedom) as f64;
        let with = |missing: f64, followed: f64| {
            let moved = moved + followed - unit * (falsely - missing.min(0.0));
            let missing = sines(missing.max(0.0));
            missing + moved.max(least) * (1.0 - missing * one / k)
        };
        let (least, most) = followed;
        return Ok(SelectionLoss {
            central: with(significant(beyond_noise, uncertain), most),
            low: with(beyond_noise - uncertain, least),
            high: sines(all_falsely).max(with(beyond_noise.max(0.0) + uncertain, most)),
        });
    }
    if rejected == 0.0 {
        return Ok(SelectionLoss::default());
    }
    // Stein's estimate of a hard threshold, with the density at the threshold from the rows around it.
    let near = |square: &&f64| (0.5 * threshold..2.0 * threshold).contains(*square);
    let near = squares.iter().filter(near).count() as f64;
    let unbiased = outside + JUMP * near;
    let uncertain = NORMAL_95 * (2.0 * k * rejected + JUMP * JUMP * near).sqrt();
    let beyond_noise = unbiased - falsely;
    Ok(SelectionLoss {
        central: sines(falsely + significant(beyond_noise, uncertain)),
        low: sines((beyond_noise - uncertain).max(0.0)),
        high: sines(all_falsely.max(falsely.max(unbiased) + uncertain)),
    })
}

/// What exceeds its uncertainty, and 0 for what does not.
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
            let found = limit(share, freedom);
            assert!((found / x - 1.0).abs() < 1e-9, "{share} {freedom}: {found}");
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
