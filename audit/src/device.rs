//! The device under audit: anything that turns a participant's row, or a site's table, into bytes on the wire.

use std::num::NonZeroUsize;

use eigenveil_client::Study;
use eigenveil_shared::{
    Error, ErrorCode, Result,
    codec::{encode_report, encode_site_report},
    error,
    mechanism::SamplingCost,
    names,
    preprocess::{BoundedRow, Row},
    report::{Report, ReportId},
    site_study::SiteStudyParams,
    study::{Fingerprint, StudyParams},
};
use rand::{
    Rng, RngExt, TryRng,
    rngs::{ChaCha20Rng, SysRng},
};
use serde::Serialize;

use crate::Table;

/// One report as seen by somebody who observes and times a device.
#[derive(Clone, Debug, Default)]
pub struct DeviceOutput {
    /// The report on the wire, identifier and all.
    pub bytes: Vec<u8>,
    /// The work of producing it, which a clock reveals.
    pub work: SamplingCost,
}

/// A participant's rows and weight.
#[derive(Debug)]
pub struct Participant {
    /// The raw row.
    pub row: Row,
    /// Further rows of the same person: one of all is reported, drawn at random.
    pub more_rows: Vec<Row>,
    /// The row's weight, in a study with weights.
    pub weight: Option<f64>,
}

/// A device under audit, correct or not: that of a participant, or a site with its [`Table`].
pub trait Device<Of = Participant>: Sync {
    /// One report of this participant. A device with its own randomness ignores `rng`.
    ///
    /// # Errors
    /// Any error stops the audit.
    fn report(&self, of: &Of, rng: &mut ChaCha20Rng) -> Result<DeviceOutput>;
}

/// Source of the trials' randomness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Randomness {
    /// The operating system, as on a device: [`SdkDevice`], [`SiteDevice`]. No two runs have the same numbers.
    #[default]
    System,
    /// The audit's seed: [`SeededDevice`]. The same seed gives the same numbers.
    Seeded,
}

impl Randomness {
    /// A device of this study with this randomness.
    ///
    /// # Errors
    /// Those of [`SdkDevice::new`].
    pub fn device(self, params: &StudyParams) -> Result<Box<dyn Device>> {
        Ok(match self {
            Self::System => Box::new(SdkDevice::new(params)?),
            Self::Seeded => Box::new(SeededDevice::new(params)),
        })
    }
}

names! {
    pub Randomness { System = "system", Seeded = "seeded" } else |text, names| Error::invalid_request(format!(
        "there is no source of randomness {text:?}; use {}",
        names.join(" or ")
    ));
}

/// The SDK as applications call it: [`Study`] prepares the row, perturbs it with randomness of the
/// operating system and gives the report its identifier.
pub struct SdkDevice(Study);

impl SdkDevice {
    /// A device for this study. Its clock is frozen: identifiers contain the time, and row B's trials run after row
    /// A's.
    ///
    /// # Errors
    /// None in practice: the placeholder address is valid, and nothing is sent to it.
    pub fn new(params: &StudyParams) -> Result<Self> {
        let server = "http://server.invalid".parse();
        let server = server
            .map_err(|error: eigenveil_client::Error| Error::invalid_request(error.to_string()))?;
        Ok(Self(Study::new(&server, "", params.clone())))
    }
}

impl Device for SdkDevice {
    fn report(&self, participant: &Participant, _: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let measured = match &participant.more_rows[..] {
            [] => self
                .0
                .report_measured(&participant.row, participant.weight, 0),
            more => {
                let rows: Vec<Row> = [&participant.row]
                    .into_iter()
                    .chain(more)
                    .cloned()
                    .collect();
                self.0.report_one_of_measured(&rows, 0)
            }
        };
        let (prepared, work) = measured.map_err(|error| {
            let code = error.code().unwrap_or(ErrorCode::RandomnessUnavailable);
            Error::new(code, error.to_string())
        })?;
        let bytes = encode_report(prepared.report());
        Ok(DeviceOutput { bytes, work })
    }
}

/// A device with the steps of [`SdkDevice`], and the audit's generator instead of the operating system's.
pub struct SeededDevice {
    params: StudyParams,
    fingerprint: Fingerprint,
}

impl SeededDevice {
    /// A device of this study.
    pub fn new(params: &StudyParams) -> Self {
        Self {
            params: params.clone(),
            fingerprint: params.fingerprint(),
        }
    }
}

impl Device for SeededDevice {
    fn report(&self, participant: &Participant, rng: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let bounded = match participant.more_rows.len() {
            0 => prepare(&self.params, participant)?,
            // As on a device, the draw does not count among the words of the noise.
            more => match rng.random_range(0..=more) {
                0 => prepare(&self.params, participant)?,
                other => {
                    let row = &participant.more_rows[other - 1];
                    self.params.preprocessor().prepare(row)?
                }
            },
        };
        let (payload, work) = self.params.mechanism().perturb_with_measured(&bounded, rng);
        Ok(DeviceOutput {
            bytes: encode_with_random_id(self.fingerprint, payload, rng),
            work,
        })
    }
}

/// A site of this study: exact sum, noise that is drawn once, report and bytes on the wire, as its software makes them.
/// The ledger of a real one charges the rows before. Its clock is frozen, as that of [`SdkDevice`].
pub struct SiteDevice {
    params: SiteStudyParams,
    fingerprint: Fingerprint,
    randomness: Randomness,
}

impl SiteDevice {
    /// A site of this study with this randomness.
    pub fn new(params: &SiteStudyParams, randomness: Randomness) -> Self {
        Self {
            params: params.clone(),
            fingerprint: params.fingerprint(),
            randomness,
        }
    }
}

impl Device<Table> for SiteDevice {
    fn report(&self, table: &Table, rng: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let row = |number: usize| table.rows[number].clone();
        let shares = table.shares(&self.params);
        let sum = self.params.sum(&shares, NonZeroUsize::MIN, row)?;
        let mut random = [0; 16];
        let (payload, work) = match self.randomness {
            Randomness::System => {
                SysRng
                    .try_fill_bytes(&mut random)
                    .map_err(|error| error!(RandomnessUnavailable, "{error}"))?;
                sum.perturb_measured()?
            }
            Randomness::Seeded => {
                rng.fill_bytes(&mut random);
                sum.perturb_with_measured(rng)
            }
        };
        let bytes = encode_site_report(&Report {
            id: ReportId::from_parts(0, random),
            fingerprint: self.fingerprint,
            payload,
        });
        Ok(DeviceOutput { bytes, work })
    }
}

/// The first row as this study's devices prepare it: the zero row if it is unusable.
pub fn prepare(params: &StudyParams, participant: &Participant) -> Result<BoundedRow> {
    let preprocessor = params.preprocessor();
    match participant.weight {
        None => preprocessor.prepare(&participant.row),
        Some(weight) => Ok(preprocessor.prepare_weighted(&participant.row, weight)?.0),
    }
}

/// This payload encoded as a report with a random identifier.
pub fn encode_with_random_id(
    fingerprint: Fingerprint,
    payload: Vec<u8>,
    rng: &mut ChaCha20Rng,
) -> Vec<u8> {
    let mut random = [0; 16];
    rng.fill_bytes(&mut random);
    encode_report(&Report {
        id: ReportId::from_parts(0, random),
        fingerprint,
        payload,
    })
}
