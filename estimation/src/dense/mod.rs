//! Dense components: plain PCA of the moment (Algorithm 1).

pub mod pca;

use eigenveil_shared::{Result, estimate::ComponentCount};
use nalgebra::DMatrix;

use crate::{
    assessment::{
        Eigenvalues, Floor, Measured, assess, count_components,
        error_bars::{Reestimate, error_bars},
    },
    components::ComponentsReport,
    input::moment::NoisyMoment,
    linalg::LazySpectrum,
};

/// Plain PCA of the moment. `setting` names the privacy setting for the warnings: "ε = 1".
///
/// ```
/// use eigenveil_estimation::{accumulate::Accumulator, moment::NoisyMoment, principal_components};
/// use eigenveil_shared::{estimate::ComponentCount, mechanism::NoiseModel, packed::PackedSymmetric};
/// let mut sum = PackedSymmetric::zeros(3);
/// sum.add_outer(&[0.0, 1.0, 0.0], 1000.0);
/// let noise = NoiseModel::gaussian(1.0);
/// let moment = NoisyMoment::from_buckets(vec![Accumulator::from_parts(sum, 1000)?], noise)?;
/// let findings = principal_components(&moment, ComponentCount::Auto, "ε = 1")?;
/// assert_eq!(findings.vectors.as_slice(), &[0.0, 1.0, 0.0]);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn principal_components(
    moment: &NoisyMoment,
    rank: ComponentCount,
    setting: &str,
) -> Result<ComponentsReport> {
    principal(moment, rank, setting, true)
}

/// [`principal_components`], optionally without error bars and comparison of buckets.
pub(crate) fn principal(
    moment: &NoisyMoment,
    rank: ComponentCount,
    setting: &str,
    with_bars: bool,
) -> Result<ComponentsReport> {
    let dense = moment.dense();
    let decomposed = LazySpectrum::new(&dense)?;
    let spectrum = decomposed.values().to_vec();
    let eigenvalues = Eigenvalues::all(&spectrum);
    let (noise, n_eff) = (moment.noise(), moment.n_eff());
    let excess_noise = moment.excess_noise();
    let excess = match &excess_noise {
        None => Vec::new(),
        Some(noise_along) => {
            let floor = Floor::from_eigenvalues(&spectrum, noise, n_eff)?;
            let visible = spectrum.iter().take_while(|&&value| value > floor.edge);
            let leading = leading_vectors(&decomposed, visible.count())?;
            leading
                .column_iter()
                .map(|v| noise_along.along(v))
                .collect()
        }
    };
    let count = count_components(rank, &eigenvalues, noise, n_eff, &excess)?;
    let vectors = leading_vectors(&decomposed, count.k)?;
    let bars = match with_bars {
        true => error_bars(moment, &vectors, Reestimate::Pca)?,
        false => None,
    };
    let floor_report = assess(&Measured {
        vectors: &vectors,
        values: &spectrum[..count.k],
        spectrum: eigenvalues,
        noise,
        n_eff,
        rows_of_tables: moment.counts().rows_of_tables(),
        excess_noise: excess_noise.as_ref(),
        excess: &excess,
        support: None,
        k_is_open: count.is_open,
        error_bars: bars.as_ref(),
        setting,
    })?;
    let mut findings = ComponentsReport {
        vectors,
        spectrum,
        floor_report,
        sparse: None,
        k_is_open: count.is_open,
        k_shares: count.shares,
        bucket_agreement: None,
    };
    if with_bars {
        findings.compare_buckets(moment);
    }
    Ok(findings)
}

fn leading_vectors(decomposed: &LazySpectrum<'_>, k: usize) -> Result<DMatrix<f64>> {
    match k {
        0 => Ok(DMatrix::zeros(decomposed.values().len(), 0)),
        _ => Ok(decomposed.top_k(k)?.vectors),
    }
}
