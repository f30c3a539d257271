//! One row in, one perturbed report out.

use std::{fmt, sync::Arc};

#[cfg(feature = "http")]
use eigenveil_shared::api::StudyState;
use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    about::{self, About},
    clock::{Clock, SystemClock},
    mechanism::SamplingCost,
    preprocess::{BoundedRow, Row},
    report::{Report, ReportId},
    study::{Fingerprint, StudyParams},
};
use rand::{
    RngExt, SeedableRng, TryRng,
    rngs::{ChaCha20Rng, SysRng},
};

use crate::error::Result;

/// Makes reports for one study. Cheap to clone; safe to share between threads.
#[derive(Clone)]
pub struct Reporter {
    params: Arc<StudyParams>,
    fingerprint: Fingerprint,
    clock: Arc<dyn Clock>,
    /// The error to return if the study was not open when it was fetched.
    not_open: Option<SharedError>,
    /// The study's name and what it tells participants; empty if only parameters were given.
    study_info: Arc<(Option<String>, About)>,
}

impl Reporter {
    /// A reporter of the study with these (checked, frozen) parameters.
    pub fn new(params: StudyParams) -> Self {
        let fingerprint = params.fingerprint();
        Self {
            params: Arc::new(params),
            fingerprint,
            clock: Arc::new(SystemClock),
            not_open: None,
            study_info: Arc::default(),
        }
    }

    /// The same reporter; unless `state` is open it perturbs nothing.
    #[cfg(feature = "http")]
    pub(crate) fn with_state(mut self, state: StudyState, id: &str) -> Self {
        self.not_open = (state != StudyState::Open).then(|| {
            SharedError::new(
                ErrorCode::StudyNotOpen,
                format!(
                    "study {id} is {} and takes no reports; nothing was perturbed or charged: fetch the study again when whoever runs it has opened it, or take part in another one",
                    state.as_str()
                ),
            )
        });
        self
    }

    /// The same reporter of a study with this name that says this of itself: the ledgers keep it for the receipt,
    /// and nothing is perturbed after its last day. A study that was fetched has it already.
    #[must_use]
    pub fn with_study_info(mut self, name: impl Into<String>, about: About) -> Self {
        self.study_info = Arc::new((Some(name.into()), about));
        self
    }

    /// The study's name, where it is known.
    pub fn study_name(&self) -> Option<&str> {
        self.study_info.0.as_deref()
    }

    /// What the study says of itself; nothing where parameters came alone.
    pub fn about(&self) -> &About {
        &self.study_info.1
    }

    /// Fails unless the study was open when fetched and its last day has not passed by this device's clock. Call it
    /// before writing anything; [`report`](Self::report) and the ledgers do. Bare parameters ([`new`](Self::new),
    /// [`from_canonical`](Self::from_canonical)) have neither state nor last day, and pass.
    ///
    /// # Errors
    /// `study-not-open`, `study-ended`.
    pub fn check_open(&self) -> Result<()> {
        if let (Some(day), true) = (
            self.about().last_day,
            self.about().is_over(self.clock.unix_ms()),
        ) {
            let name = self.study_name().unwrap_or_default();
            return Err(about::study_ended_error(
                &format!("{name:?}"),
                day,
                "nothing was perturbed or charged: check this device's clock if that is wrong, or ask whoever runs the study for another one",
            )
            .into());
        }
        match &self.not_open {
            None => Ok(()),
            Some(error) => Err(error.clone().into()),
        }
    }

    /// A reporter of the study whose canonical bytes these are, if they are the ones that were
    /// pinned: a device that ships with a fingerprint trusts no server about the parameters.
    ///
    /// ```
    /// use eigenveil_client::Reporter;
    /// use eigenveil_shared::{
    ///     ErrorCode, mechanism::MechanismKind, privacy::Budget,
    ///     study::{Fingerprint, StudyDesign, StudyParams},
    /// };
    /// # let params = StudyParams::freeze(StudyDesign::new(MechanismKind::IsotropicGaussian, 3, Budget::approximate(1.0, 1e-6)?))?;
    /// let bytes = params.canonical_bytes();
    /// assert!(Reporter::from_canonical(&bytes, params.fingerprint()).is_ok());
    /// let error = Reporter::from_canonical(&bytes, Fingerprint([0; 32])).unwrap_err();
    /// assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    /// # Ok::<(), eigenveil_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// `wrong-fingerprint`, and every error of [`StudyParams::from_canonical`].
    pub fn from_canonical(bytes: &[u8], expected: Fingerprint) -> Result<Self> {
        let reporter = Self::new(StudyParams::from_canonical(bytes)?);
        check_fingerprint(reporter.fingerprint, expected)?;
        Ok(reporter)
    }

    /// The same reporter with another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The study's parameters.
    pub fn params(&self) -> &StudyParams {
        &self.params
    }

    /// The fingerprint of the study's parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Days since 1970-01-01 UTC.
    pub(crate) fn day(&self) -> u64 {
        about::UtcDate::from_unix_ms(self.clock.unix_ms()).0
    }

    /// Prepares and perturbs one row. **Call it once per participant and study**, keep the result
    /// in an [`Outbox`](crate::Outbox) before the first send, and send that: another call is another
    /// draw of noise, and two reports of one row spend its budget twice.
    ///
    /// A row that cannot be prepared (a NaN; too long under `require`) is perturbed as the zero row,
    /// so that taking part does not depend on the data; [`PreparedReport::local_warning`] says why, here
    /// only.
    ///
    /// # Errors
    /// `wrong-dimension` (the program's mistake, not the data's), `randomness-unavailable`, and `study-not-open` or
    /// `study-ended` for the reporter of a study that takes no reports.
    pub fn report(&self, row: &Row) -> Result<PreparedReport> {
        Ok(self.report_measured(row)?.0)
    }

    /// As [`report`](Self::report) in a study with weights: the row counts `weight`, above 0 and at most 1, which is
    /// protected with the row. A larger weight counts as 1; anything else as 0, and the local warning says so. In such a
    /// study [`report`](Self::report) counts 1.
    ///
    /// # Errors
    /// As [`report`](Self::report); `invalid-preprocessing` in a study without weights.
    pub fn report_weighted(&self, row: &Row, weight: f64) -> Result<PreparedReport> {
        self.check_open()?;
        let (bounded, local_warning) = self.params.preprocessor().prepare_weighted(row, weight)?;
        Ok(self.perturb(&bounded, local_warning)?.0)
    }

    /// Reports one of the rows of a person who has several, drawn uniformly from the operating system's randomness: as
    /// [`report`](Self::report), and the guarantee holds for replacing all of the person's rows and their number. Without
    /// any row it is the report of the zero row. The estimate is then one of persons, each of whom counts the same.
    ///
    /// # Errors
    /// As [`report`](Self::report), for any of the rows.
    pub fn report_one_of(&self, rows: &[Row]) -> Result<PreparedReport> {
        let p = self.params.dimension();
        if let Some(other) = rows.iter().find(|row| row.values().len() != p) {
            // The error does not depend on which row is drawn.
            return self.report(other);
        }
        match rows {
            [] => self.report(&Row::new(vec![f64::NAN; p])),
            rows => self.report(&rows[draw_below(rows.len())?]),
        }
    }

    /// The report and the cost of sampling its noise, **for the audit**: [`report`](Self::report) returns only the
    /// first. The cost must never leave a device.
    ///
    /// # Errors
    /// As [`report`](Self::report).
    #[doc(hidden)]
    pub fn report_measured(&self, row: &Row) -> Result<(PreparedReport, SamplingCost)> {
        self.check_open()?;
        let (bounded, local_warning) = self.params.preprocessor().prepare_with_warning(row)?;
        self.perturb(&bounded, local_warning)
    }

    fn perturb(
        &self,
        row: &BoundedRow,
        local_warning: Option<SharedError>,
    ) -> Result<(PreparedReport, SamplingCost)> {
        let (payload, work) = self.params.mechanism().perturb_measured(row)?;
        let mut random = [0_u8; 16];
        SysRng.try_fill_bytes(&mut random).map_err(no_randomness)?;
        let prepared = PreparedReport {
            report: Report {
                id: ReportId::from_parts(self.clock.unix_ms(), random),
                fingerprint: self.fingerprint,
                payload,
            },
            local_warning,
        };
        Ok((prepared, work))
    }
}

/// A uniform number below `count`, from the operating system's randomness.
fn draw_below(count: usize) -> Result<usize> {
    let mut rng = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(no_randomness)?;
    Ok(rng.random_range(0..count))
}

fn no_randomness(error: impl fmt::Display) -> SharedError {
    SharedError::new(
        ErrorCode::RandomnessUnavailable,
        format!("the operating system's random generator failed ({error}); nothing was released"),
    )
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reporter(study parameters {})", self.fingerprint)
    }
}

/// Refuses parameters that are not the expected ones.
pub(crate) fn check_fingerprint(found: Fingerprint, expected: Fingerprint) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(SharedError::new(
        ErrorCode::WrongFingerprint,
        format!(
            "the study's parameters have fingerprint {found} but {expected} was expected; do not take part"
        ),
    )
    .into())
}

/// A report that was perturbed and has its identifier: final. Made by [`Reporter::report`] only.
///
/// `Debug` shows the identifier and a length, no numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedReport {
    report: Report,
    local_warning: Option<SharedError>,
}

impl PreparedReport {
    /// The report: what may leave the device.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The report, by value.
    pub fn into_report(self) -> Report {
        self.report
    }

    /// Why the row was sent as the zero row, if it was. **For the participant only**: it depends on
    /// the row and must not be sent, nor shown to whoever runs the study.
    pub fn local_warning(&self) -> Option<&SharedError> {
        self.local_warning.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        codec::{self, ReportFormat},
        mechanism::MechanismKind,
        packed,
        preprocess::Norm,
        privacy::Budget,
        study::StudyDesign,
    };

    use super::*;

    fn params(norm: Norm) -> StudyParams {
        // Large enough for the noise to be far below one: σ ≈ 0.4.
        let budget = Budget::approximate(16.0, 1e-3).unwrap();
        StudyParams::freeze(StudyDesign {
            norm,
            ..StudyDesign::new(MechanismKind::IsotropicGaussian, 8, budget)
        })
        .unwrap()
    }

    #[test]
    fn a_report_fits_its_study_and_is_fresh_each_time() {
        let params = params(Norm::Normalize);
        let format = ReportFormat::new(&params);
        let reporter = Reporter::new(params).with_clock(|| 0x0192_1234_5678);
        let row = Row::new(vec![1.0; 8]);
        let first = reporter.report(&row).unwrap().into_report();
        let second = reporter.report(&row).unwrap().into_report();
        for report in [&first, &second] {
            let bytes = codec::encode_report(report);
            let valid = codec::decode_report(&bytes, &format).unwrap();
            assert_eq!(valid.id(), report.id);
            assert!(report.id.to_string().starts_with("01921234"));
        }
        assert_ne!(first.id, second.id);
        assert_ne!(first.payload, second.payload);
    }

    /// Mean of the decoded first entry over many reports of a row: tells e₁e₁ᵀ from the zero matrix.
    fn mean_first_entry(reporter: &Reporter, row: &Row) -> f64 {
        let reports = 2_000;
        let sum: f64 = (0..reports)
            .map(|_| {
                let payload = reporter.report(row).unwrap().into_report().payload;
                f64::from(f32::from_le_bytes(payload[..4].try_into().unwrap()))
            })
            .sum();
        sum / f64::from(reports)
    }

    #[test]
    fn an_unusable_row_is_sent_as_the_zero_row_with_a_local_notice() {
        assert_eq!(
            packed::packed_len(8) * 4,
            params(Norm::Normalize).payload_len()
        );
        let reporter = Reporter::new(params(Norm::Require { radius: 1.0 }));
        let unit = |first: f64| {
            let mut values = vec![0.0; 8];
            values[0] = first;
            Row::new(values)
        };
        // σ < 0.6, so the mean of 2,000 has a standard error below 0.014.
        let noise = reporter.params().mechanism().gaussian_noise();
        assert!(noise.unwrap().sigma() < 0.6);
        assert!((mean_first_entry(&reporter, &unit(1.0)) - 1.0).abs() < 0.1);
        for (unusable, code) in [
            (f64::NAN, ErrorCode::RowNotFinite),
            (f64::INFINITY, ErrorCode::RowNotFinite),
            (2.0, ErrorCode::RowOutsideBall),
        ] {
            let row = unit(unusable);
            let local_warning = reporter.report(&row).unwrap().local_warning().cloned();
            assert_eq!(local_warning.unwrap().code(), code);
            assert!(mean_first_entry(&reporter, &row).abs() < 0.1);
        }
        assert!(
            reporter
                .report(&unit(0.5))
                .unwrap()
                .local_warning()
                .is_none()
        );
    }

    /// Whatever the values and the constants: a report of the same length, and nothing of the notice in it.
    #[test]
    fn every_row_of_the_right_dimension_gives_a_report() {
        let norms = [
            Norm::Normalize,
            Norm::Clip {
                radius: 2.0_f64.powi(-100),
            },
            Norm::Require {
                radius: 2.0_f64.powi(100),
            },
        ];
        for norm in norms {
            let reporter = Reporter::new(params(norm));
            for value in [0.0, 5e-324, 1e-310, 1.0, 1e300, f64::MAX, f64::NAN] {
                for row in [
                    vec![value; 8],
                    vec![value, 1.0, 0.0, -value, 1.0, 1.0, 1.0, 1.0],
                ] {
                    let report = reporter.report(&Row::new(row)).unwrap().into_report();
                    assert_eq!(report.payload.len(), reporter.params().payload_len());
                }
            }
        }
    }

    /// 6,000 draws of three; each count is within five standard deviations of 2,000 (false alarm 2e-6).
    #[test]
    fn one_of_a_persons_rows_is_drawn_uniformly() {
        let mut counts = [0_u32; 3];
        for _ in 0..6_000 {
            counts[draw_below(3).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| count.abs_diff(2_000) < 183),
            "{counts:?}"
        );
        let reporter = Reporter::new(params(Norm::Normalize));
        let row = |p| Row::new(vec![1.0; p]);
        assert!(
            reporter
                .report_one_of(&[row(8), row(8)])
                .unwrap()
                .local_warning()
                .is_none()
        );
        assert!(
            reporter
                .report_one_of(&[])
                .unwrap()
                .local_warning()
                .is_some()
        );
        // Whichever would be drawn.
        for _ in 0..20 {
            let error = reporter
                .report_one_of(&[row(8), row(7), row(8)])
                .unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        }
    }

    #[test]
    fn a_row_of_another_dimension_is_an_error() {
        let error = Reporter::new(params(Norm::Normalize))
            .report(&Row::new(vec![1.0; 7]))
            .unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        assert!(!error.is_retryable());
    }

    #[test]
    fn debug_and_errors_never_show_a_value() {
        let reporter = Reporter::new(params(Norm::Require { radius: 1.0 }));
        let sentinel = 987_654.25;
        let mut shown = String::new();
        for values in [vec![sentinel; 8], vec![sentinel; 5]] {
            let row = Row::new(values);
            shown += &format!("{row:?}");
            match reporter.report(&row) {
                Ok(prepared) => {
                    shown += &format!("{prepared:?} {:?}", prepared.report());
                    shown += &prepared.local_warning().unwrap().to_string();
                }
                Err(error) => shown += &format!("{error} {error:?}"),
            }
        }
        shown += &format!("{reporter:?}");
        assert!(
            shown.contains("values") && shown.contains("Report("),
            "{shown}"
        );
        assert!(
            !shown.contains("987654") && !shown.contains("654.25"),
            "{shown}"
        );
    }
}
