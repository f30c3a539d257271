//! The second moment, or the covariance, that the mean report shows.

use eigenveil_shared::{
    Error, Result, error,
    estimate::Estimate,
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    parameters::Parameters,
    preprocess::{Norm, Preprocessing},
    study::StudyParams,
};
use nalgebra::{DMatrix, Matrix3, Vector3};

use super::{
    law::{Frame, ReportLaw, Tables},
    nearest_with_trace,
};
use crate::{floor::Floor, linalg::packed_to_dense, linalg::symmetric_eigenvalues};

/// `w₁₁·qqᵀ + w₁₂·(qwᵀ + wqᵀ) + w₂₂·wwᵀ`, as weight on the covariance: that of an entry between q and w.
pub(super) const BETWEEN: [f64; 3] = [0.0, 0.5, 0.0];
/// Slopes of the variance along q.
pub(super) const ALONG: [f64; 3] = [1.0, 0.0, 0.0];

/// Why some studies have no moment: told when one is made, and when it is asked for its moment.
pub(crate) const NO_MOMENT: &str = "reports of a study with missing cells or weights are divided by their rates, and how far off that may be is not known: such a study gives components, and no correlations or regressions";

/// The point around which second moments are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// The public centre of each feature, 0 where the study has none: `E[xxᵀ]`.
    PublicCentres,
    /// The mean, which private centring estimated: the covariance.
    EstimatedMean,
}

/// The second moment of the prepared rows, or with private centring their covariance, with the errors of its entries.
///
/// ```
/// use eigenveil_estimation::statistics::MomentEstimate;
/// use eigenveil_shared::{
///     mechanism::MechanismKind, packed::PackedSymmetric, study::{StudyDesign, StudyParams},
/// };
/// let kind = MechanismKind::DoubleCap;
/// let params = StudyParams::freeze(StudyDesign::new(kind, 2, kind.budget(4.0, None)?))?;
/// // The mean of decoded reports, which have no trace: E[xxᵀ] − I/p.
/// let mean = PackedSymmetric::from_entries(2, vec![0.1, 0.2, -0.1]).expect("a triangle");
/// let moment = MomentEstimate::new(&mean, 1_000_000, &params)?;
/// assert!((moment.raw()[(0, 0)] - 0.6).abs() < 1e-12);
/// assert!(moment.standard_error(0, 1) < 0.01);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Debug)]
pub struct MomentEstimate {
    law: ReportLaw,
    raw: DMatrix<f64>,
    centring: Option<Centring>,
    has_variances: bool,
    /// Moments that the rows may have, for the noise that follows them: one, or two where their length is not known.
    populations: Vec<Population>,
    /// The variable of each feature that is a category of one.
    variables: Vec<Option<String>>,
}

#[derive(Debug)]
struct Centring {
    /// a.
    constant: f64,
    /// m̂.
    mean: Vec<f64>,
    /// Whether the multiple of I that the reports lack is measured, by the constant's own entry.
    measures_identity: bool,
}

/// ρ = E‖y‖², and the positive semidefinite moment (with centring the covariance) of the rows.
#[derive(Debug)]
struct Population {
    rho: f64,
    moment: DMatrix<f64>,
}

impl MomentEstimate {
    /// From the mean decoded report ([`NoisyMoment::mean_report`](crate::moment::NoisyMoment::mean_report)) of `n`
    /// reports of a study.
    pub fn new(mean_report: &PackedSymmetric, n: u64, params: &StudyParams) -> Result<Self> {
        let law = ReportLaw {
            noise: params.noise_model(),
            n: n as f64,
            dimension: params.report_dimension() as f64,
            tables: None,
        };
        Self::of_report(mean_report, law, params.preprocessing())
    }

    fn of_report(
        mean_report: &PackedSymmetric,
        law: ReportLaw,
        preprocessing: &Preprocessing,
    ) -> Result<Self> {
        let dimension = preprocessing.report_dimension();
        if mean_report.dimension() != dimension {
            return Err(error!(
                WrongDimension,
                "the mean report has dimension {}; those of this study have {dimension}",
                mean_report.dimension()
            ));
        }
        // Also false for NaN.
        let counted = law.n > 0.0;
        if !counted || !mean_report.as_slice().iter().all(|entry| entry.is_finite()) {
            return Err(Error::estimate_failed(
                "the mean report is of no reports, or has an entry that is not a finite number",
            ));
        }
        Self::check_preprocessing(preprocessing)?;
        let report = packed_to_dense(mean_report);
        let moment = match preprocessing.centring {
            Some(a) => Self::centred(law, &report, a, preprocessing.norm),
            None => Self::uncentred(law, report, preprocessing.norm),
        }?;
        let features = preprocessing.features.iter().flatten();
        let variables = features.map(|feature| feature.variable().map(str::to_owned));
        Ok(Self {
            variables: variables.collect(),
            ..moment
        })
    }

    /// Whether the errors of a moment of rows that are prepared like this are known.
    ///
    /// # Errors
    /// `invalid-request` for a study that allows missing cells or weights; the sentence is for whoever makes one, too.
    pub fn check_preprocessing(preprocessing: &Preprocessing) -> Result<()> {
        if !preprocessing.allows_missing_cells() && preprocessing.weights.is_none() {
            return Ok(());
        }
        Err(Error::invalid_request(NO_MOMENT))
    }

    /// From the document of an estimate that was requested with the moment.
    pub fn of_document(estimate: &Estimate) -> Result<Self> {
        let report = estimate.mean_report.clone().ok_or_else(|| {
            Error::invalid_request(
                "this estimate was requested without the moment; request one that has it",
            )
        })?;
        let (dimension, numbers) = (estimate.params.sum_dimension(), report.len());
        let report = PackedSymmetric::from_entries(dimension, report).ok_or_else(|| {
            error!(
                WrongDimension,
                "the mean report has {numbers} numbers, not those of a triangle of dimension {dimension}; fetch the estimate again"
            )
        })?;
        let (params, sites) = match (&estimate.params, &estimate.sites) {
            (Parameters::Sites(params), Some(sites)) => (params, sites),
            (Parameters::Sites(_), None) => {
                return Err(Error::invalid_request(
                    "this estimate of a study of sites lacks its sites; fetch it again",
                ));
            }
            (params, _) => return Self::new(&report, estimate.n, params.rows()?),
        };
        let law = ReportLaw {
            noise: params.mechanism().noise_model(),
            n: sites.n_eff,
            dimension: params.report_dimension() as f64,
            tables: Some(Tables {
                rows: sites.rows_eff,
                count: params.mechanism().count_sd().powi(2),
            }),
        };
        Self::of_report(&report, law, params.preprocessing())
    }

    fn uncentred(law: ReportLaw, mut report: DMatrix<f64>, norm: Norm) -> Result<Self> {
        let without_trace = matches!(law.noise, NoiseModel::DoubleCap { .. });
        let known = matches!(norm, Norm::Normalize);
        let populations = if without_trace && !known {
            // E‖x‖² lies between what stands above the noise and 1.
            let eigenvalues = symmetric_eigenvalues(&report)?;
            let floor = Floor::from_eigenvalues(eigenvalues.as_slice(), &law.noise, law.n)?;
            let least = (-law.dimension * floor.centre).clamp(0.0, 1.0);
            let population = |rho| Population::new(&report, rho, rho);
            let populations = vec![population(1.0)?, population(least)?];
            report.fill_diagonal(f64::NAN);
            populations
        } else {
            if without_trace {
                let identity = 1.0 / law.dimension;
                (0..report.nrows()).for_each(|i| report[(i, i)] += identity);
            }
            let rho = if known {
                1.0
            } else {
                report.trace().clamp(0.0, 1.0)
            };
            vec![Population::new(&report, rho, rho)?]
        };
        Ok(Self {
            law,
            raw: report,
            centring: None,
            has_variances: known || !without_trace,
            populations,
            variables: Vec::new(),
        })
    }

    fn centred(law: ReportLaw, report: &DMatrix<f64>, a: f64, norm: Norm) -> Result<Self> {
        let p = report.nrows() - 1;
        let factor = 1.0 + a * a;
        let mean: Vec<f64> = (0..p).map(|i| factor / a * report[(i, p)]).collect();
        let known = matches!(norm, Norm::Normalize);
        let without_trace = matches!(law.noise, NoiseModel::DoubleCap { .. });
        // Not clamped, as in the floor: a bound would bias it.
        let identity = match (without_trace, known) {
            (false, _) => 0.0,
            (true, true) => 1.0 / law.dimension,
            (true, false) => a * a / factor - report[(p, p)],
        };
        let raw = DMatrix::from_fn(p, p, |i, j| {
            let shift = if i == j { factor * identity } else { 0.0 };
            factor * report[(i, j)] - mean[i] * mean[j] + shift
        });
        let squared_mean: f64 = mean.iter().map(|m| m * m).sum();
        let most = (1.0 - squared_mean).max(0.0);
        let trace = if known {
            most
        } else {
            raw.trace().clamp(0.0, most)
        };
        let rho = ((trace + squared_mean + a * a) / factor).min(1.0);
        let population = Population::new(&raw, trace, rho)?;
        Ok(Self {
            law,
            raw,
            centring: Some(Centring {
                constant: a,
                mean,
                measures_identity: without_trace && !known,
            }),
            has_variances: true,
            populations: vec![population],
            variables: Vec::new(),
        })
    }

    /// Whether both features are categories of one variable, whose correlation says nothing but that one excludes the
    /// other.
    pub(super) fn are_of_one_variable(&self, i: usize, j: usize) -> bool {
        let [own, other] = [i, j].map(|feature| self.variables.get(feature)?.as_deref());
        own.is_some() && own == other
    }

    /// p.
    pub fn dimension(&self) -> usize {
        self.raw.nrows()
    }

    /// The point around which the moment is taken.
    pub fn around(&self) -> Around {
        match self.centring {
            Some(_) => Around::EstimatedMean,
            None => Around::PublicCentres,
        }
    }

    /// The `p × p` moment before the projection: unbiased, but for the square of the estimated mean's own error, and
    /// not always positive semidefinite. NaN on the diagonal where the reports show no variances.
    pub fn raw(&self) -> &DMatrix<f64> {
        &self.raw
    }

    /// The nearest positive semidefinite moment with the rows' trace: nearer to the truth in the mean, biased; `None`
    /// where the reports show no variances.
    pub fn projected(&self) -> Option<&DMatrix<f64>> {
        let projected = self.populations.first().map(|first| &first.moment);
        projected.filter(|_| self.has_variances)
    }

    /// The mean of the rows, p entries, where private centring estimated it.
    pub fn mean(&self) -> Option<&[f64]> {
        Some(&self.centring.as_ref()?.mean)
    }

    /// Standard error of entry i of the mean, sampling included; `None` without private centring.
    pub fn mean_standard_error(&self, i: usize) -> Option<f64> {
        let centring = self.centring.as_ref()?;
        let a = centring.constant;
        let plane = self.plane(&[(i, 1.0)], &[]);
        // Between e_i, which is the lifted e_i and m_i/a of the constant's axis, and that axis.
        let scale = (1.0 + a * a) / a;
        let mut gradient = Matrix3::zeros();
        gradient[(0, 2)] = 0.5 * scale;
        gradient[(2, 0)] = 0.5 * scale;
        gradient[(2, 2)] = scale * centring.mean[i] / a;
        Some(plane.variance_of(&gradient).max(0.0).sqrt())
    }

    /// Standard error of entry (i, j) of the [raw](Self::raw) moment, sampling included; NaN on the diagonal where
    /// the reports show no variances.
    pub fn standard_error(&self, i: usize, j: usize) -> f64 {
        if i == j {
            if !self.has_variances {
                return f64::NAN;
            }
            return self.plane(&[(i, 1.0)], &[]).standard_error(ALONG);
        }
        let plane = self.plane(&[(i, 1.0)], &[(j, 1.0)]);
        plane.standard_error(BETWEEN)
    }

    /// All of them, `p × p`.
    pub fn standard_errors(&self) -> DMatrix<f64> {
        let p = self.dimension();
        let mut errors = DMatrix::zeros(p, p);
        for j in 0..p {
            for i in j..p {
                errors[(i, j)] = self.standard_error(i, j);
            }
        }
        errors.fill_upper_triangle_with_lower_triangle();
        errors
    }

    /// Statistics made of two vectors of features, given by their entries that are not zero.
    pub(super) fn plane(&self, q: &[(usize, f64)], w: &[(usize, f64)]) -> Plane<'_> {
        let mut rows: Vec<(usize, Vector3<f64>)> = Vec::with_capacity(q.len() + w.len() + 1);
        for (axis, vector) in [q, w].into_iter().enumerate() {
            for &(index, value) in vector {
                match rows.iter_mut().find(|(at, _)| *at == index) {
                    Some((_, row)) => row[axis] += value,
                    None => {
                        let mut row = Vector3::zeros();
                        row[axis] = value;
                        rows.push((index, row));
                    }
                }
            }
        }
        let moments = self.populations.iter().map(|population| {
            let mut moment = Matrix3::zeros();
            for (i, one) in &rows {
                for (j, other) in &rows {
                    moment += population.moment[(*i, *j)] * one * other.transpose();
                }
            }
            moment
        });
        let mut moments: Vec<Matrix3<f64>> = moments.collect();
        let products = rows.iter().map(|(_, row)| row * row.transpose()).sum();
        let mut lifted: Vec<Vector3<f64>> = rows.iter().map(|(_, row)| *row).collect();
        let mut constant = Vector3::zeros();
        if let Some(centring) = &self.centring {
            let a = centring.constant;
            for (index, row) in &rows {
                constant -= centring.mean[*index] / a * row;
            }
            constant[2] = 1.0;
            lifted.push(constant);
            // Along a lifted vector (v, −vᵀm/a) the row is vᵀ(x − m)/√f; across, the constant is known.
            let factor = 1.0 + a * a;
            for moment in &mut moments {
                *moment /= factor;
                moment[(2, 2)] = a * a / factor;
            }
        }
        Plane {
            of: self,
            frame: Frame::new(lifted),
            own: products,
            constant,
            moments,
        }
    }
}

impl Population {
    /// The population nearest to this moment, with this trace and this E‖y‖².
    fn new(moment: &DMatrix<f64>, trace: f64, rho: f64) -> Result<Self> {
        let moment = nearest_with_trace(moment, trace)?;
        Ok(Self { rho, moment })
    }
}

/// The errors of statistics `tr(W·C)` of the moment C with weights `W = w₁₁·qqᵀ + w₁₂·(qwᵀ + wqᵀ) + w₂₂·wwᵀ` for two
/// vectors q and w.
pub(super) struct Plane<'a> {
    of: &'a MomentEstimate,
    /// q and w, with private centring lifted to the report's space, and the constant's axis.
    frame: Frame,
    /// Products of q and w themselves.
    own: Matrix3<f64>,
    /// The constant's row of the frame.
    constant: Vector3<f64>,
    /// Second moments of the rows along the frame, for each population.
    moments: Vec<Matrix3<f64>>,
}

impl Plane<'_> {
    /// The gradient by the mean report, in the frame.
    fn gradient(&self, [qq, qw, ww]: [f64; 3]) -> Matrix3<f64> {
        let mut gradient = Matrix3::new(qq, qw, 0.0, qw, ww, 0.0, 0.0, 0.0, 0.0);
        if let Some(centring) = &self.of.centring {
            // The lifted weight without its part on the constant's own entry, which does not enter; or enters as the
            // measure of what the variances lack.
            let mut along = self.constant;
            along[2] = 0.0;
            let mut corner = -along.dot(&(gradient * along));
            if centring.measures_identity {
                corner -= (gradient * self.own).trace();
            }
            gradient[(2, 2)] = corner;
            gradient *= 1.0 + centring.constant * centring.constant;
        }
        gradient
    }

    pub(super) fn covariance(&self, first: [f64; 3], second: [f64; 3]) -> f64 {
        let (first, second) = (self.gradient(first), self.gradient(second));
        self.of_populations(&first, &second)
            .next()
            .unwrap_or(f64::NAN)
    }

    /// Standard error of a statistic: the largest, where there are several populations.
    pub(super) fn standard_error(&self, weight: [f64; 3]) -> f64 {
        self.variance_of(&self.gradient(weight)).max(0.0).sqrt()
    }

    fn variance_of(&self, gradient: &Matrix3<f64>) -> f64 {
        self.of_populations(gradient, gradient)
            .fold(f64::NEG_INFINITY, f64::max)
    }

    fn of_populations(&self, s: &Matrix3<f64>, t: &Matrix3<f64>) -> impl Iterator<Item = f64> {
        let law = &self.of.law;
        let populations = self.of.populations.iter().zip(&self.moments);
        populations.map(move |(of, moment)| law.covariance(&self.frame, moment, of.rho, s, t))
    }
}
