//! The pipeline from the reports of a study to the analyst's document.

use std::time::Instant;

use eigenveil_shared::{
    Error, Result,
    api::SparseSettings,
    estimate::{ComponentCount, Estimate},
    mechanism::NoiseModel,
    preprocess::Norm,
    study::StudyParams,
};

use crate::{
    assessment::feasibility,
    cancel::Cancel,
    dense::principal_components,
    input::{
        accumulate::Accumulator,
        missing::ObservedShares,
        moment::NoisyMoment,
        seed_sums::{check_memory, sums_of_seeds},
    },
    linalg::Threads,
    report::{
        document::{Reported, document},
        warning::Warning,
    },
    sparse::{
        from_seeds::{self, SeedSource},
        sparse_components,
    },
};

/// Where the reports of a study are.
pub enum Source<'a> {
    /// Added up: the sums of the buckets that have reports, with their numbers.
    Sums(Vec<(u32, Accumulator)>),
    /// Stored as seeds, which can be read repeatedly.
    Seeds(&'a dyn SeedSource),
}

/// An estimation request and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name of the study.
    pub name: &'a str,
    /// Components requested.
    pub k: ComponentCount,
    /// Row-sparse components with these settings; without, PCA.
    pub sparse: Option<&'a SparseSettings>,
    /// Whether the document has the mean report as well: then seeds are always added up.
    pub moment: bool,
    /// Bytes that adding up seeds, or reading them twice, may take.
    pub memory_bytes: u64,
    /// Dimension from which seeds are read twice for row-sparse components, where
    /// [`can_stream`](from_seeds::can_stream) says that this is possible.
    pub stream_from: usize,
}

impl Request<'_> {
    /// Whether seeds of such a study are read twice, and never added up bucket by bucket.
    pub fn streams(&self, params: &StudyParams) -> bool {
        self.sparse.is_some_and(|settings| {
            params.report_dimension() >= self.stream_from
                && !self.moment
                && from_seeds::can_stream(params, self.k, settings)
        })
    }
}

/// Estimates the principal subspace of a study: the document that an analyst gets. Works on
/// [`Threads::current`] threads.
///
/// `cancel` is checked while seeds are read, before and after plain PCA and after every iteration of the sparse solver.
///
/// # Errors
/// `estimate-failed` when cancelled, when there is no report, when a number is not finite or memory does not suffice;
/// `invalid-request` for a k or a setting out of range; those of reading the seeds.
pub fn estimate(
    source: Source<'_>,
    params: &StudyParams,
    request: &Request<'_>,
    cancel: Cancel<'_>,
) -> Result<Estimate> {
    let started = Instant::now();
    cancel.check()?;
    let (k, p) = (request.k, params.report_dimension());
    let named = (request.name, k);
    let setting = format!("ε = {}", params.budget().epsilon());
    let repeated = match &source {
        Source::Sums(_) => 0,
        Source::Seeds(seeds) => seeds.repeated(),
    };
    let mut estimate = match (source, request.sparse) {
        (Source::Seeds(seeds), Some(settings)) if request.streams(params) => {
            let needed = from_seeds::bytes_needed(p, Threads::current().count());
            let task = format!("estimating row-sparse components of dimension {p} from seeds");
            check_memory(&task, needed, request.memory_bytes)?;
            seeds.folded(cancel, &mut |_, _| {
                Err(Error::estimate_failed(
                    "seeds that are to be read twice were added up",
                ))
            })?;
            let (findings, n) =
                from_seeds::sparse_components(seeds, params, k, settings, &setting, cancel)?;
            let reported = Reported::of_rows(params, n, repeated);
            document(reported, named, findings, Vec::new())
        }
        (source, sparse) => {
            let (buckets, seeds) = match source {
                Source::Sums(buckets) => (buckets, None),
                Source::Seeds(seeds) => (
                    sums_of_seeds(seeds, p, request.memory_bytes, cancel)?,
                    Some(seeds),
                ),
            };
            let rows = feasibility::check_feasibility(&buckets, params, seeds, cancel)?;
            let buckets = buckets.into_iter().map(|(_, sums)| sums).collect();
            let moment = NoisyMoment::decode(buckets, params)?;
            let findings = match sparse {
                None => principal_components(&moment, k, &setting)?,
                Some(settings) => sparse_components(&moment, k, settings, &setting, cancel)?,
            };
            cancel.check()?;
            // JSON has no infinity; sums of enormous reports are refused elsewhere.
            let feasibility = rows.filter(|check| check.length.found.is_finite());
            let infeasible = feasibility.iter().flat_map(feasibility::warnings);
            let shares = ObservedShares::new(params.preprocessing());
            let first = infeasible
                .chain(shares.and_then(|shares| shares.warning()))
                .chain(zero_rows_warning(&moment, params))
                .collect();
            let reported = Reported::of_rows(params, moment.n(), repeated);
            let mut estimate = document(reported, named, findings, first);
            estimate.feasibility = feasibility;
            if let Some(mean) = moment.estimated_mean() {
                estimate.mean = Some(mean.values().to_vec());
                estimate.mean_standard_error = Some(mean.standard_error());
            }
            let report = request.moment.then(|| moment.mean_report());
            estimate.mean_report = report.map(|report| report.as_slice().to_vec());
            estimate
        }
    };
    estimate.seconds = started.elapsed().as_secs_f64();
    Ok(estimate)
}

/// Share of zero rows from which they are mentioned.
const MIN_ZERO_ROWS: f64 = 0.01;

/// A warning of reports that hold no row, where the trace shows it: Gaussian reports of rows of length 1.
fn zero_rows_warning(moment: &NoisyMoment, params: &StudyParams) -> Option<Warning> {
    let preprocessing = params.preprocessing();
    let NoiseModel::Gaussian { diagonal_sd, .. } = params.noise_model() else {
        return None;
    };
    if preprocessing.norm != Norm::Normalize
        || preprocessing.allows_missing_cells()
        || preprocessing.weights.is_some()
    {
        return None;
    }
    // A zero row leaves only the constant of private centring.
    let lost = 1.0 / (1.0 + preprocessing.centring.map_or(0.0, |a| a * a));
    let report = moment.mean_report();
    let deviation = diagonal_sd * (report.dimension() as f64 / moment.n_eff()).sqrt() / lost;
    let share = (1.0 - report.trace()) / lost;
    let seen = share > MIN_ZERO_ROWS && share > 3.0 * deviation && share <= 1.0;
    seen.then_some(Warning::ZeroRows { share, deviation })
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        ErrorCode,
        codec::ReportFormat,
        mechanism::{MechanismKind, Payload},
        preprocess::Row,
        privacy::Budget,
        study::StudyDesign,
    };

    use rand::SeedableRng;

    use super::*;
    use crate::report::document::to_json;

    /// Every third report is of a zero row; 3,000 reports at ε = 16 show it within 5 % (one standard deviation).
    #[test]
    fn zero_rows_are_told_where_the_trace_shows_them() {
        let kind = MechanismKind::IsotropicGaussian;
        for (centring, zeros) in [(None, true), (Some(0.7), true), (None, false)] {
            let params = StudyParams::freeze(StudyDesign {
                centring,
                ..StudyDesign::new(kind, 2, kind.budget(16.0, None).unwrap())
            })
            .unwrap();
            let mut rng = rand::rngs::ChaCha20Rng::seed_from_u64(3);
            let mechanism = params.mechanism();
            let mut sum =
                crate::input::accumulate::ReportSum::new(mechanism, params.report_dimension())
                    .unwrap();
            for i in 0..3_000 {
                let first = if zeros && i % 3 == 0 { f64::NAN } else { 1.0 };
                let row = params
                    .preprocessor()
                    .prepare(&Row::new(vec![first, 0.5]))
                    .unwrap();
                let payload = mechanism.perturb_with(&row, &mut rng);
                let payload = ReportFormat::new(&params).payload(payload).unwrap();
                sum.add(&payload).unwrap();
            }
            let moment = NoisyMoment::decode(vec![sum.finish().unwrap()], &params).unwrap();
            let warning = zero_rows_warning(&moment, &params);
            assert_eq!(warning.is_some(), zeros, "{warning:?}");
            if let Some(Warning::ZeroRows { share, .. }) = warning {
                assert!((0.2..0.47).contains(&share), "{share}");
            }
        }
    }

    #[test]
    fn non_finite_numbers_are_rejected_in_every_field() {
        let params = StudyParams::freeze(StudyDesign::new(
            MechanismKind::IsotropicGaussian,
            3,
            Budget::approximate(4.0, 1e-6).unwrap(),
        ))
        .unwrap();
        let row = params
            .preprocessor()
            .prepare(&Row::new(vec![1.0, 2.0, 3.0]))
            .unwrap();
        let format = ReportFormat::new(&params);
        let mut sum = Accumulator::new(3).unwrap();
        for _ in 0..100 {
            let bytes = params.mechanism().perturb(&row).unwrap();
            let Payload::Floats(numbers) = format.payload(&bytes[..]).unwrap() else {
                panic!("{:?}", format.payload_kind());
            };
            sum.add(&numbers).unwrap();
        }
        let request = Request {
            name: "three",
            k: ComponentCount::Fixed(2),
            sparse: None,
            memory_bytes: 1 << 30,
            moment: false,
            stream_from: usize::MAX,
        };
        let source = Source::Sums(vec![(0, sum)]);
        let good = estimate(source, &params, &request, Cancel::NEVER).unwrap();
        let spoil: [fn(&mut Estimate, f64); 6] = [
            |document, x| document.components[1].loadings[2] = x,
            |document, x| document.components[0].variance_se = Some(x),
            |document, x| document.eigenvalues[0] = x,
            |document, x| document.floor.threshold = x,
            |document, x| document.influence = x,
            |document, x| document.expected_error = Some(x),
        ];
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for spoil in spoil {
                let mut bad = good.clone();
                spoil(&mut bad, number);
                let error = to_json(&bad).unwrap_err();
                assert_eq!(error.code(), ErrorCode::EstimateFailed);
            }
        }
        to_json(&good).unwrap();
    }
}
