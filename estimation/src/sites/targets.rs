//! Errors by target: around these very rows, around the populations that they are from, and around sites like these
//! (`docs/derivations/sites.md`, "Error bars").

use eigenveil_shared::{
    Result,
    estimate::{Component, SpectrumEstimate},
    mechanism::NoiseModel,
    site_estimate::VarianceIntervals,
};

use super::left_out::LeftOut;
use crate::{
    assessment::{SpectrumRange, TableBars},
    input::counts::Counts,
    metrics::max_error,
};

/// 97.5 % point of the normal law.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// A site left out: its share w, and the estimate without it.
type Without<'a> = (f64, &'a LeftOut);

/// The intervals of each component, by its standard errors and, if these sites show how sites like them differ, by the
/// estimates without each.
pub(crate) fn intervals(
    components: &[Component],
    bars: &TableBars,
    without: Option<&[Without<'_>]>,
) -> Vec<VarianceIntervals> {
    let of_component = |(j, component): (usize, &Component)| {
        let scaled = component.variance_se.zip(component.eigenvalue_se);
        let Some((variance_se, eigenvalue_se)) = scaled else {
            return VarianceIntervals::default();
        };
        let slope = match eigenvalue_se > 0.0 {
            true => variance_se / eigenvalue_se,
            false => 1.0,
        };
        let around = |centre: f64, half: f64| ((centre - half).max(0.0), (centre + half).max(0.0));
        let by = |se: f64| around(component.variance, NORMAL_975 * slope * se);
        VarianceIntervals {
            rows: bars.of_rows.get(j).copied().map(by),
            populations: bars.of_populations.get(j).copied().map(by),
            sites: without.map(|without| {
                let (centre, se) = jackknife(component.eigenvalue, without, j);
                let freedom = without.len().saturating_sub(1);
                around(centre, student_975(freedom) * se)
            }),
        }
    };
    components.iter().enumerate().map(of_component).collect()
}

/// Estimate without bias and standard error of eigenvalue `j` by the delete-one jackknife for sites of unequal weight
/// (Busing, Meijer & van der Leeden, as in `assessment/error_bars.rs`). Differences between sites lift it as noise does.
fn jackknife(whole: f64, without: &[Without<'_>], j: usize) -> (f64, f64) {
    let pseudo =
        |&(share, left): &Without<'_>| (1.0 - share) / share * (whole - left.eigenvalues[j]);
    let centre: f64 = without.iter().map(|own| own.0 * pseudo(own)).sum();
    let squares = |own: &Without<'_>| (pseudo(own) - centre).powi(2) * own.0 / (1.0 - own.0);
    let variance = without.iter().map(squares).sum::<f64>() / without.len() as f64;
    (whole + centre, variance.sqrt())
}

/// Expected error of the subspace around that of sites like these, by the jackknife.
pub(crate) fn error_of_sites(without: &[Without<'_>], (p, k): (usize, usize)) -> f64 {
    let squares = |(share, left): &Without<'_>| (1.0 - share) * left.movement.powi(2);
    let squared: f64 = without.iter().map(squares).sum();
    squared.sqrt().min(max_error(p, k))
}

/// The errors of components of this spectrum, as noise and sampling of given counts make them.
pub(crate) struct Predicted<'a> {
    pub(crate) spectrum: &'a SpectrumEstimate,
    /// The noise of one report, without sampling.
    pub(crate) noise: NoiseModel,
    /// n_eff of the estimate.
    pub(crate) n_eff: f64,
    /// Dimension, E‖z‖² and E‖z‖⁴/(E‖z‖²)² of the rows around their mean.
    pub(crate) rows: (usize, f64),
    pub(crate) fourth: f64,
    pub(crate) k: usize,
}

impl Predicted<'_> {
    /// Against the components of these rows.
    pub(crate) fn of_noise(&self) -> Result<f64> {
        let range = SpectrumRange::of(self.spectrum, self.n_eff, self.k)?;
        Ok(range.error(&self.noise, self.n_eff)?.central)
    }

    /// The movement of the components without a site like the others, whose rows are a share of this size; `without` are
    /// the counts of the others.
    ///
    /// D̄ − D̄₋ⱼ = w(Dⱼ − D̄₋ⱼ), D the mean of the site's rows.
    pub(crate) fn movement(&self, share: f64, own: Counts, without: Counts) -> Result<f64> {
        let squared = share * share;
        let n_eff = 1.0 / (squared * (1.0 / own.n_eff + 1.0 / without.n_eff));
        let rows = 1.0 / (squared * (1.0 / own.rows + 1.0 / without.rows));
        let noise = self
            .noise
            .with_sampling(self.rows, self.fourth, n_eff / rows);
        // What was selected stays.
        let spectrum = SpectrumEstimate {
            selection: None,
            ..self.spectrum.clone()
        };
        let range = SpectrumRange::of(&spectrum, self.n_eff, self.k)?;
        Ok(range.error(&noise, n_eff)?.central)
    }
}

/// 97.5 % point of Student's law: exact for 2 degrees of freedom, from 3 on within 0.2 % by the expansion around the
/// normal law (Abramowitz & Stegun 26.7.5).
fn student_975(freedom: usize) -> f64 {
    if freedom <= 2 {
        return 0.95 * (2.0 / (4.0 * 0.975 * 0.025_f64)).sqrt();
    }
    let (z, v) = (NORMAL_975, freedom as f64);
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1_482.0 * z.powi(5)
            - 1_920.0 * z.powi(3)
            - 945.0 * z)
            / 92_160.0,
    ];
    let powers = (1..).map(|power| v.powi(power));
    z + terms
        .iter()
        .zip(powers)
        .map(|(term, power)| term / power)
        .sum::<f64>()
}

#[cfg(test)]
mod tests {
    use nalgebra::dvector;

    use super::*;

    /// scipy 1.17: `t.ppf(0.975, v)`.
    #[test]
    fn students_points_are_those_of_the_table() {
        for (freedom, exact) in [
            (2, 4.302_653),
            (3, 3.182_446),
            (4, 2.776_445),
            (9, 2.262_157),
            (30, 2.042_272),
        ] {
            let quantile = student_975(freedom);
            assert!(
                (quantile / exact - 1.0).abs() < 2e-3,
                "{freedom}: {quantile}"
            );
        }
    }

    /// A weighted mean of values x: what the pseudo-values stand for.
    #[test]
    fn jackknife_of_a_mean_is_the_mean_of_what_it_is_made_of() {
        let (values, shares) = ([1.0, 2.0, 4.0], [0.5, 0.3, 0.2]);
        let whole: f64 = values.iter().zip(shares).map(|(x, w)| w * x).sum();
        let left: Vec<LeftOut> = values
            .iter()
            .zip(shares)
            .map(|(x, w)| LeftOut {
                eigenvalues: dvector![(whole - w * x) / (1.0 - w)],
                movement: 0.1,
            })
            .collect();
        let without: Vec<Without<'_>> = shares.into_iter().zip(&left).collect();
        let (centre, se) = jackknife(whole, &without, 0);
        assert!((centre - whole).abs() < 1e-12, "{centre}");
        let squares = values
            .iter()
            .zip(shares)
            .map(|(x, w)| (x - whole).powi(2) * w / (1.0 - w));
        assert!(
            (se - (squares.sum::<f64>() / 3.0).sqrt()).abs() < 1e-12,
            "{se}"
        );
        let error = error_of_sites(&without, (9, 1));
        assert!((error - 0.1 * 2.0_f64.sqrt()).abs() < 1e-12, "{error}");
    }
}
