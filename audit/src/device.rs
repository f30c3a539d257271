//! What is audited: whatever turns a participant's row into bytes that leave.

use std::str::FromStr;

use eigenveil_client::Participant;
use eigenveil_shared::{
    Error, ErrorCode, Result,
    codec::encode_report,
    mechanism::Work,
    preprocess::{BoundedRow, Row},
    report::{Report, ReportId},
    study::{Fingerprint, StudyParams},
};
use rand::{Rng, rngs::ChaCha20Rng};
use serde::Serialize;

/// All that somebody who watches and times a device sees of one report.
#[derive(Clone, Debug, Default)]
pub struct DeviceOutput {
    /// The report on the wire, identifier and all.
    pub bytes: Vec<u8>,
    /// What a clock sees of its making.
    pub work: Work,
}

/// A device under audit, right or wrong.
pub trait Device: Sync {
    /// One report of this row, as it came from its owner. A device with randomness of its own leaves `rng`
    /// alone.
    ///
    /// # Errors
    /// Whatever stops the audit.
    fn report(&self, row: &Row, rng: &mut ChaCha20Rng) -> Result<DeviceOutput>;
}

/// Where the randomness of the trials comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Randomness {
    /// The operating system: the device's own path, [`SdkDevice`]. No two runs give the same numbers.
    #[default]
    System,
    /// The audit's seed: [`SeededDevice`]. The same seed gives the same numbers.
    Seeded,
}

impl Randomness {
    /// The name as written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Seeded => "seeded",
        }
    }

    /// The device of this study that draws from here.
    pub fn device(self, params: &StudyParams) -> Box<dyn Device> {
        match self {
            Self::System => Box::new(SdkDevice::new(params)),
            Self::Seeded => Box::new(SeededDevice::new(params)),
        }
    }
}

impl FromStr for Randomness {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::System, Self::Seeded]
            .into_iter()
            .find(|randomness| randomness.as_str() == text)
            .ok_or_else(|| {
                Error::invalid_request(format!(
                    "there is no randomness {text:?}; use system or seeded"
                ))
            })
    }
}

/// The SDK as applications call it: [`Participant`] prepares the row, perturbs it with randomness of the
/// operating system and gives the report its identifier.
pub struct SdkDevice(Participant);

impl SdkDevice {
    /// A participant of this study. Its clock stands still: the time of preparation is in the identifier, and
    /// the trials under row B come after those under row A.
    pub fn new(params: &StudyParams) -> Self {
        Self(Participant::new(params.clone()).with_clock(|| 0))
    }
}

impl Device for SdkDevice {
    fn report(&self, row: &Row, _: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let (prepared, work) = self.0.report_counted(row).map_err(|error| {
            let code = error.code().unwrap_or(ErrorCode::RandomnessUnavailable);
            Error::new(code, error.to_string())
        })?;
        let bytes = encode_report(prepared.report());
        Ok(DeviceOutput { bytes, work })
    }
}

/// The same steps with the audit's generator where [`SdkDevice`] asks the operating system.
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
    fn report(&self, row: &Row, rng: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let bounded = prepare(&self.params, row)?;
        let (payload, work) = self.params.mechanism().perturb_counted(&bounded, rng);
        Ok(DeviceOutput {
            bytes: wire(self.fingerprint, payload, rng),
            work,
        })
    }
}

/// The row as this study's devices perturb it: the zero row where it cannot be used.
///
/// # Errors
/// `wrong-dimension`.
pub fn prepare(params: &StudyParams, row: &Row) -> Result<BoundedRow> {
    params.preprocessor().prepare(row)
}

/// This payload on the wire, with a random identifier.
pub fn wire(fingerprint: Fingerprint, payload: Vec<u8>, rng: &mut ChaCha20Rng) -> Vec<u8> {
    let mut random = [0; 16];
    rng.fill_bytes(&mut random);
    encode_report(&Report {
        id: ReportId::from_parts(0, random),
        fingerprint,
        payload,
    })
}
