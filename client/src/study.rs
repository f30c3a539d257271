//! A study as a device takes part in it, and the one way from a row to a report.

use std::{fmt, ops::Deref, sync::Arc};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    about::StudyNotice,
    codec::{self, ReportFormat},
    enrolment::{Admission, Frame},
    mechanism::SamplingCost,
    parameters::Parameters,
    preparation::PreparationParams,
    preprocess::Row,
    report::{Report, ReportId},
    study::{Fingerprint, StudyParams},
};
use rand::{
    RngExt, SeedableRng, TryRng,
    rngs::{ChaCha20Rng, SysRng},
};

use crate::{
    error::{Error, Result},
    exchange::{Request, Response, Server},
    study_info::{StudyInfo, check_fingerprint},
};

/// Target size of a batch: large enough for few requests, small enough to repeat.
const BATCH_BYTES: usize = 1 << 20;
/// A small upload is split into up to this many requests. All reports of one commit go to one of 32 buckets, and
/// estimates get their error bars from the differences between buckets; four connections may share a commit.
const TARGET_BATCHES: u64 = 128;

/// A checked study of single rows, perhaps a preparation, which makes reports for it. Cheap to clone; safe to share
/// between threads.
///
/// Times are arguments, in milliseconds since 1970-01-01 UTC: nothing here reads a clock.
#[derive(Clone)]
pub struct Study(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    info: StudyInfo,
    reporter: Reporter,
    format: ReportFormat,
}

/// The parameters of the study, as far as they make reports.
#[derive(Clone)]
enum Reporter {
    Rows(StudyParams),
    Preparation(PreparationParams),
}

impl Study {
    /// A study with these (checked, frozen) parameters, such as ones shipped with the program: open to everybody,
    /// without a name or a last day.
    pub fn new(server: &Server, id: &str, params: StudyParams) -> Self {
        let info = StudyInfo::new(server, id, params.clone().into());
        Self::of(info, ReportFormat::new(&params), Reporter::Rows(params))
    }

    /// A preparation with these (checked, frozen) parameters, like [`new`](Self::new).
    pub fn preparation(server: &Server, id: &str, params: PreparationParams) -> Self {
        let info = StudyInfo::new(server, id, params.clone().into());
        let format = ReportFormat::of_preparation(&params);
        Self::of(info, format, Reporter::Preparation(params))
    }

    fn of(info: StudyInfo, format: ReportFormat, reporter: Reporter) -> Self {
        Self(Arc::new(Inner {
            info,
            reporter,
            format,
        }))
    }

    /// Makes a study like [`new`](Self::new), or a preparation, from canonical bytes with the pinned fingerprint: a device
    /// that ships with a fingerprint does not trust a server for the parameters.
    ///
    /// ```
    /// use eigenveil_client::Study;
    /// use eigenveil_shared::{
    ///     ErrorCode, mechanism::MechanismKind, privacy::Budget,
    ///     study::{Fingerprint, StudyDesign, StudyParams},
    /// };
    /// # let params = StudyParams::freeze(StudyDesign::new(MechanismKind::IsotropicGaussian, 3, Budget::approximate(1.0, 1e-6)?))?;
    /// # let server = "http://localhost:8080".parse()?;
    /// let bytes = params.canonical_bytes();
    /// assert!(Study::from_canonical(&server, "0123", &bytes, params.fingerprint()).is_ok());
    /// let error = Study::from_canonical(&server, "0123", &bytes, Fingerprint([0; 32])).unwrap_err();
    /// assert_eq!(error.code(), Some(ErrorCode::WrongFingerprint));
    /// # Ok::<(), eigenveil_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// `wrong-fingerprint`, and every error of [`Parameters::from_canonical`]; `invalid-request` for a study of sites.
    pub fn from_canonical(
        server: &Server,
        id: &str,
        bytes: &[u8],
        expected: Fingerprint,
    ) -> Result<Self> {
        let info = StudyInfo::new(server, id, Parameters::from_canonical(bytes)?);
        check_fingerprint(info.fingerprint(), expected)?;
        info.try_into()
    }

    /// Adds name and notice: the ledgers store them for the receipt, and nothing is perturbed after the last day. A
    /// study read from a server already has them.
    #[must_use]
    pub fn with_info(mut self, name: impl Into<String>, about: StudyNotice) -> Self {
        Arc::make_mut(&mut self.0).info.set_info(name.into(), about);
        self
    }

    /// States by which name a person called the study. Unless that is its whole identifier, it may have meant another
    /// study before: a ledger that knows the other study refuses this one.
    #[must_use]
    pub fn called(mut self, called: &str) -> Self {
        Arc::make_mut(&mut self.0).info.set_called(called);
        self
    }

    /// The request for the study with this identifier.
    pub fn request(server: &Server, id: &str) -> Request {
        Request::study_document(server, id)
    }

    /// Checks a server's response to [`request`](Self::request): the parameters come from the canonical bytes, the
    /// bytes have the stated fingerprint (and the pinned one, if there is one), and the noise suffices for the budget.
    ///
    /// Without a pinned fingerprint a device cannot know whether other devices got the same parameters: a server could
    /// give one device special constants and recognise its report by them.
    ///
    /// # Errors
    /// The server's refusal; `wrong-fingerprint`, `malformed-study` ([`Error::name`]); those of the parameters.
    pub fn read(
        server: &Server,
        id: &str,
        response: &Response<'_>,
        pinned: Option<Fingerprint>,
    ) -> Result<Self> {
        StudyInfo::read(server, id, response, pinned)?.try_into()
    }

    /// Its parameters.
    pub fn params(&self) -> &Parameters {
        self.parameters()
    }

    /// Whether participants count by weights.
    pub(crate) fn has_weights(&self) -> bool {
        match &self.0.reporter {
            Reporter::Rows(params) => params.preprocessing().weights.is_some(),
            Reporter::Preparation(_) => false,
        }
    }

    /// Prepares and perturbs one row. **Call it once per participant and study**, store the result before the first
    /// send ([`Ledger`](crate::Ledger) and [`RowLedger`](crate::RowLedger) do both), and send that result: another call
    /// draws noise again, and two reports of one row spend its budget twice.
    ///
    /// In a preparation one column is drawn before the row is looked at, and a question about it answered.
    ///
    /// A row that cannot be prepared (a NaN; too long under `require`) is perturbed as the zero row,
    /// so that taking part does not depend on the data; [`PreparedReport::local_warning`] gives the reason, to the
    /// participant only.
    ///
    /// # Errors
    /// `wrong-dimension` (the program's mistake, not the data's), `randomness-unavailable`, `study-not-open`,
    /// `study-ended`.
    pub fn report(&self, row: &Row, now: u64) -> Result<PreparedReport> {
        Ok(self.report_measured(row, None, now)?.0)
    }

    /// Makes a report like [`report`](Self::report) in a study with weights: the row has this weight, above 0 and at
    /// most 1, which is as private as the row. A larger weight counts as 1, any other as 0 with a local warning. In
    /// such a study [`report`](Self::report) uses the weight 1.
    ///
    /// # Errors
    /// As [`report`](Self::report); `invalid-preprocessing` in a study without weights.
    pub fn report_weighted(&self, row: &Row, weight: f64, now: u64) -> Result<PreparedReport> {
        Ok(self.report_measured(row, Some(weight), now)?.0)
    }

    /// Makes a report like [`report`](Self::report) of one of the rows of a person who has several, drawn uniformly
    /// with the operating system's randomness. The guarantee holds for replacing all of the person's rows and their
    /// number (`docs/derivations/persons.md`). Without rows it is the report of the zero row. The estimate is then one
    /// of persons, who all count equally.
    ///
    /// # Errors
    /// As [`report`](Self::report), for any of the rows.
    pub fn report_one_of(&self, rows: &[Row], now: u64) -> Result<PreparedReport> {
        Ok(self.report_one_of_measured(rows, now)?.0)
    }

    /// [`report_one_of`](Self::report_one_of), with the cost as in [`report_measured`](Self::report_measured).
    #[doc(hidden)]
    pub fn report_one_of_measured(
        &self,
        rows: &[Row],
        now: u64,
    ) -> Result<(PreparedReport, SamplingCost)> {
        let p = self.params().dimension();
        if let Some(other) = rows.iter().find(|row| row.values().len() != p) {
            // The error must not depend on which row is drawn.
            return self.report_measured(other, None, now);
        }
        match rows {
            [] => self.report_measured(&Row::new(vec![f64::NAN; p]), None, now),
            rows => self.report_measured(&rows[draw_below(rows.len())?], None, now),
        }
    }

    /// The report of a row, with its weight if there is one, and the cost of sampling its noise, **for the audit**:
    /// [`report`](Self::report) and [`report_weighted`](Self::report_weighted) return only the first. The cost must
    /// never leave a device.
    ///
    /// # Errors
    /// Those of these two methods.
    #[doc(hidden)]
    pub fn report_measured(
        &self,
        row: &Row,
        weight: Option<f64>,
        now: u64,
    ) -> Result<(PreparedReport, SamplingCost)> {
        self.check_open(now)?;
        let (payload, cost, local_warning) = match &self.0.reporter {
            Reporter::Rows(params) => {
                let preprocessor = params.preprocessor();
                let (bounded, local_warning) = match weight {
                    None => preprocessor.prepare_with_warning(row)?,
                    Some(weight) => preprocessor.prepare_weighted(row, weight)?,
                };
                let (payload, cost) = params.mechanism().perturb_measured(&bounded)?;
                (payload, cost, local_warning)
            }
            Reporter::Preparation(params) => {
                // Whoever is told that a cell cannot be used would learn which column was drawn: nobody is.
                let (payload, cost) = match weight {
                    None => params.mechanism().perturb_measured(row)?,
                    Some(_) => return Err(no_weights()),
                };
                (payload, cost, None)
            }
        };
        let prepared = PreparedReport {
            report: Report {
                id: ReportId::from_parts(now, random_bytes()?),
                fingerprint: self.fingerprint(),
                payload,
            },
            local_warning,
        };
        Ok((prepared, cost))
    }

    /// The request that uploads these reports, each with its admission: at most
    /// [`max_batch`](StudyInfo::max_batch).
    ///
    /// # Errors
    /// `wrong-fingerprint` for a report of other parameters; `token-required`; too many reports, or none.
    pub fn upload_batch(&self, reports: &[(&Report, &Admission)]) -> Result<Request> {
        for (report, _) in reports {
            check_fingerprint(report.fingerprint, self.fingerprint())?;
        }
        if reports.is_empty() || reports.len() > self.max_batch() {
            return Err(Error::usage(format!(
                "a batch of {} reports cannot be sent; this study takes 1 to {}",
                reports.len(),
                self.max_batch()
            )));
        }
        let frame = Frame::new(self.enrolment(), true);
        let payloads = reports
            .iter()
            .map(|(report, _)| (report.id, &report.payload[..]));
        let bytes = codec::encode_batch(&self.0.format, payloads)?;
        let admissions: Vec<&Admission> = reports.iter().map(|(_, admission)| *admission).collect();
        Ok(Request::upload(
            self.server(),
            self.id(),
            frame.media_type(),
            frame.write(&admissions, bytes)?,
            reports.iter().map(|(report, _)| report.id).collect(),
            true,
        ))
    }

    /// Default number of reports per request in an upload of `total` reports: about a megabyte, or one 128th of a small
    /// upload, so that the server has groups of reports to compare.
    pub fn usual_batch(&self, total: u64) -> usize {
        let by_size = BATCH_BYTES / (16 + self.payload_len());
        let by_number = usize::try_from(total.div_ceil(TARGET_BATCHES)).unwrap_or(usize::MAX);
        by_size.min(by_number).clamp(1, self.max_batch())
    }
}

impl TryFrom<StudyInfo> for Study {
    type Error = Error;

    /// # Errors
    /// `invalid-request` for a study of sites.
    fn try_from(info: StudyInfo) -> Result<Self> {
        if let Ok(params) = info.parameters().preparation() {
            let params = params.clone();
            let format = ReportFormat::of_preparation(&params);
            return Ok(Self::of(info, format, Reporter::Preparation(params)));
        }
        let params = info.parameters().rows()?.clone();
        Ok(Self::of(
            info,
            ReportFormat::new(&params),
            Reporter::Rows(params),
        ))
    }
}

impl Deref for Study {
    type Target = StudyInfo;

    fn deref(&self) -> &StudyInfo {
        &self.0.info
    }
}

/// 16 bytes from the operating system.
pub(crate) fn random_bytes() -> Result<[u8; 16]> {
    let mut random = [0_u8; 16];
    SysRng.try_fill_bytes(&mut random).map_err(no_randomness)?;
    Ok(random)
}

/// A uniform number below `count`, from the operating system's randomness.
fn draw_below(count: usize) -> Result<usize> {
    let mut rng = ChaCha20Rng::try_from_rng(&mut SysRng).map_err(no_randomness)?;
    Ok(rng.random_range(0..count))
}

fn no_weights() -> Error {
    SharedError::new(
        ErrorCode::InvalidPreprocessing,
        "all participants of a preparation count equally; leave the weight out",
    )
    .into()
}

fn no_randomness(error: impl fmt::Display) -> SharedError {
    SharedError::new(
        ErrorCode::RandomnessUnavailable,
        format!("the operating system's random generator failed ({error}); nothing was released"),
    )
}

impl fmt::Debug for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A perturbed report with its identifier: final. Made only by [`Study::report`] and its variants.
///
/// `Debug` shows the identifier and a length, no numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedReport {
    report: Report,
    local_warning: Option<SharedError>,
}

impl PreparedReport {
    /// The report, which may leave the device.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The report, by value.
    pub fn into_report(self) -> Report {
        self.report
    }

    /// The reason why the row is sent as the zero row, if it is. **For the participant only**: it depends on the row
    /// and must neither be sent nor shown to the operator of the study.
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

    const NOW: u64 = 0x0192_1234_5678;

    fn study_of(params: StudyParams) -> Study {
        Study::new(&"http://localhost".parse().unwrap(), "0123", params)
    }

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
        let study = study_of(params);
        let row = Row::new(vec![1.0; 8]);
        let first = study.report(&row, NOW).unwrap().into_report();
        let second = study.report(&row, NOW).unwrap().into_report();
        for report in [&first, &second] {
            let bytes = codec::encode_report(report);
            let valid = codec::decode_report(&bytes, &format).unwrap();
            assert_eq!(valid.id(), report.id);
            assert!(report.id.to_string().starts_with("01921234"));
        }
        assert_ne!(first.id, second.id);
        assert_ne!(first.payload, second.payload);
    }

    /// Mean of the decoded first entry over many reports of a row, which distinguishes e₁e₁ᵀ from the zero matrix.
    fn mean_first_entry(study: &Study, row: &Row) -> f64 {
        let reports = 2_000;
        let sum: f64 = (0..reports)
            .map(|_| {
                let payload = study.report(row, NOW).unwrap().into_report().payload;
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
        let study = study_of(params(Norm::Require { radius: 1.0 }));
        let unit = |first: f64| {
            let mut values = vec![0.0; 8];
            values[0] = first;
            Row::new(values)
        };
        // σ < 0.6, so the mean of 2,000 has a standard error below 0.014.
        let noise = study.params().rows().unwrap().mechanism().gaussian_noise();
        assert!(noise.unwrap().sigma() < 0.6);
        assert!((mean_first_entry(&study, &unit(1.0)) - 1.0).abs() < 0.1);
        for (unusable, code) in [
            (f64::NAN, ErrorCode::RowNotFinite),
            (f64::INFINITY, ErrorCode::RowNotFinite),
            (2.0, ErrorCode::RowOutsideBall),
        ] {
            let row = unit(unusable);
            let local_warning = study.report(&row, NOW).unwrap().local_warning().cloned();
            assert_eq!(local_warning.unwrap().code(), code);
            assert!(mean_first_entry(&study, &row).abs() < 0.1);
        }
        assert!(
            study
                .report(&unit(0.5), NOW)
                .unwrap()
                .local_warning()
                .is_none()
        );
    }

    /// 6,000 draws of three; each count is within six standard deviations of 2,000 (false alarm 5e-9).
    #[test]
    fn one_of_a_persons_rows_is_drawn_uniformly() {
        let mut counts = [0_u32; 3];
        for _ in 0..6_000 {
            counts[draw_below(3).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| count.abs_diff(2_000) < 220),
            "{counts:?}"
        );
        let study = study_of(params(Norm::Normalize));
        let row = |p| Row::new(vec![1.0; p]);
        assert!(
            study
                .report_one_of(&[row(8), row(8)], NOW)
                .unwrap()
                .local_warning()
                .is_none()
        );
        assert!(
            study
                .report_one_of(&[], NOW)
                .unwrap()
                .local_warning()
                .is_some()
        );
        // The error is the same whichever row would be drawn.
        for _ in 0..20 {
            let error = study
                .report_one_of(&[row(8), row(7), row(8)], NOW)
                .unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        }
    }

    #[test]
    fn debug_and_errors_never_show_a_value() {
        let study = study_of(params(Norm::Require { radius: 1.0 }));
        let sentinel = 987_654.25;
        let mut messages = String::new();
        for values in [vec![sentinel; 8], vec![sentinel; 5]] {
            let row = Row::new(values);
            messages += &format!("{row:?}");
            match study.report(&row, NOW) {
                Ok(prepared) => {
                    messages += &format!("{prepared:?} {:?}", prepared.report());
                    messages += &prepared.local_warning().unwrap().to_string();
                }
                Err(error) => messages += &format!("{error} {error:?}"),
            }
        }
        messages += &format!("{study:?}");
        assert!(
            messages.contains("values") && messages.contains("Report("),
            "{messages}"
        );
        assert!(
            !messages.contains("987654") && !messages.contains("654.25"),
            "{messages}"
        );
    }
}
