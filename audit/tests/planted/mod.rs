//! Devices with a deliberately planted leak; [`tables`] has sites.

pub(crate) mod tables;

use eigenveil_audit::{Device, DeviceOutput, Participant, encode_with_random_id, prepare};
use eigenveil_shared::{
    Result,
    mechanism::{
        Mechanism, MechanismKind, SamplingCost,
        double_cap::{DoubleCap, Seed, expand},
    },
    preprocess::{BoundedRow, Norm, Preprocessing, Row},
    study::{Fingerprint, StudyParams},
};
use rand::{Rng, rngs::ChaCha20Rng};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leak {
    /// No leak: `double-cap` implemented again.
    None,
    /// One more attempt if needed, so that their number is even if and only if the seed lies in the row's own cap.
    /// Reports alone and attempts alone have the right distributions.
    ParityOfAttempts,
    /// A short row takes one attempt and no cap.
    OneAttemptForShortRows,
    /// The coin is only drawn outside the cap.
    LazyCoin,
    /// Seeds outside the cap are accepted with probability e^(−2ε).
    TooFewOutsiders,
    /// The last bit of the seed says whether it lies in the row's own cap.
    LastBitOfTheSeed,
    /// The last bit of the identifier says whether the seed lies in the row's own cap.
    LastBitOfTheIdentifier,
    /// Gaussian noise of half the size.
    HalfTheNoise,
    /// The row is perturbed without preprocessing.
    NoPreprocessing,
    /// The lowest bit of the last number says whether the row's first value is positive.
    LowestBitOfANumber,
    /// The constant of private centring is appended without scaling the row back into the ball.
    ConstantOutsideTheBall,
    /// The constant is appended before normalising: the estimate is wrong, but privacy holds.
    ConstantBeforeNormalising,
    /// An unusable row is sent as a fixed row longer than one instead of the zero row.
    UnusableRowsMarked,
    /// A row inside the ball is sent almost unperturbed.
    ShortRowsInTheClear,
    /// A weight above 1 lengthens the bounded row.
    WeightAboveOne,
    /// The weight multiplies the noisy report instead of scaling the bounded row by its square root, so the noise level
    /// reveals it.
    WeightOfTheReport,
    /// The rows of a person are added up instead of one being drawn.
    RowsAddedUp,
}

impl Leak {
    pub(crate) const ALL: [Leak; 17] = [
        Self::None,
        Self::ParityOfAttempts,
        Self::OneAttemptForShortRows,
        Self::LazyCoin,
        Self::TooFewOutsiders,
        Self::LastBitOfTheSeed,
        Self::LastBitOfTheIdentifier,
        Self::HalfTheNoise,
        Self::NoPreprocessing,
        Self::LowestBitOfANumber,
        Self::ConstantOutsideTheBall,
        Self::ConstantBeforeNormalising,
        Self::UnusableRowsMarked,
        Self::ShortRowsInTheClear,
        Self::WeightAboveOne,
        Self::WeightOfTheReport,
        Self::RowsAddedUp,
    ];

    /// Whether it violates privacy, so that the audit must refute it.
    pub(crate) fn leaks(self) -> bool {
        !matches!(self, Self::None | Self::ConstantBeforeNormalising)
    }

    pub(crate) fn mechanism(self) -> MechanismKind {
        match self {
            Self::None
            | Self::ParityOfAttempts
            | Self::OneAttemptForShortRows
            | Self::LazyCoin
            | Self::TooFewOutsiders
            | Self::LastBitOfTheSeed
            | Self::LastBitOfTheIdentifier => MechanismKind::DoubleCap,
            _ => MechanismKind::IsotropicGaussian,
        }
    }

    pub(crate) fn device(self, params: &StudyParams) -> Box<dyn Device> {
        Box::new(Leaky {
            leak: self,
            fingerprint: params.fingerprint(),
            params: params.clone(),
        })
    }
}

struct Leaky {
    leak: Leak,
    fingerprint: Fingerprint,
    params: StudyParams,
}

impl Device for Leaky {
    fn report(&self, of: &Participant, rng: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        match self.params.mechanism() {
            Mechanism::DoubleCap(cap) => self.cap_report(cap, of, rng),
            _ => self.matrix_report(of, rng),
        }
    }
}

impl Leaky {
    fn cap_report(
        &self,
        cap: &DoubleCap,
        of: &Participant,
        rng: &mut ChaCha20Rng,
    ) -> Result<DeviceOutput> {
        let bounded = prepare(&self.params, of)?;
        let mut drawn = draw(cap, self.leak, bounded.as_slice(), rng);
        if self.leak == Leak::LastBitOfTheSeed {
            // Repeats until the bit is right: a search that an optimisation might introduce.
            while (drawn.seed[15] & 1 == 1) != drawn.inside {
                drawn = draw(cap, self.leak, bounded.as_slice(), rng);
            }
        }
        if self.leak == Leak::ParityOfAttempts
            && drawn.work.attempts.is_multiple_of(2) != drawn.inside
        {
            drawn.work.attempts += 1;
            drawn.work.words += 3;
        }
        let mut bytes = encode_with_random_id(self.fingerprint, drawn.seed.to_vec(), rng);
        if self.leak == Leak::LastBitOfTheIdentifier {
            // Version and fingerprint come first.
            let last = 2 + 32 + 15;
            bytes[last] = bytes[last] & !1 | u8::from(drawn.inside);
        }
        Ok(DeviceOutput {
            bytes,
            work: drawn.work,
        })
    }

    fn matrix_report(&self, of: &Participant, rng: &mut ChaCha20Rng) -> Result<DeviceOutput> {
        let mechanism = self.params.mechanism();
        // A row of the unit ball represents a longer one: noise of 1/length² times the size, and the sum scaled back.
        let (bounded, length) = self.prepare(of)?;
        let factor = match (self.leak, of.weight) {
            (Leak::WeightOfTheReport, Some(weight)) => weight.min(1.0),
            _ => length.powi(2),
        };
        let noise_factor = match self.leak {
            Leak::HalfTheNoise => 0.5,
            Leak::ShortRowsInTheClear if is_short(&bounded) => 1e-3,
            _ => length.powi(-2),
        };
        let (payload, work) =
            with_noise_times(mechanism, noise_factor).perturb_with_measured(&bounded, rng);
        let (numbers, _) = payload.as_chunks::<4>();
        let mut payload: Vec<u8> = numbers
            .iter()
            .flat_map(|n| (f32::from_le_bytes(*n) * factor as f32).to_le_bytes())
            .collect();
        if self.leak == Leak::LowestBitOfANumber {
            let at = payload.len() - 4;
            let positive = of.row.values()[0] > 0.0;
            payload[at] = payload[at] & !1 | u8::from(positive);
        }
        Ok(DeviceOutput {
            bytes: encode_with_random_id(self.fingerprint, payload, rng),
            work,
        })
    }

    /// The row to perturb, as a row of the unit ball and its actual length.
    fn prepare(&self, of: &Participant) -> Result<(BoundedRow, f64)> {
        let values = of.row.values();
        let constant = self.params.preprocessing().centring;
        let raw: Vec<f64> = match (self.leak, constant) {
            (Leak::NoPreprocessing, None) if values.iter().all(|v| v.is_finite()) => {
                values.to_vec()
            }
            (Leak::UnusableRowsMarked, None) if values.iter().any(|v| v.is_nan()) => {
                vec![1.0; values.len()]
            }
            (Leak::ConstantOutsideTheBall, Some(a)) => {
                let a_factor = a.hypot(1.0);
                let bounded = prepare(&self.params, of)?;
                bounded.as_slice().iter().map(|y| y * a_factor).collect()
            }
            (Leak::WeightAboveOne | Leak::WeightOfTheReport, None) if of.weight.is_some() => {
                let bounded = self.params.preprocessor().prepare(&of.row)?;
                let root = match (self.leak, of.weight) {
                    (Leak::WeightAboveOne, Some(weight)) => weight.sqrt(),
                    _ => 1.0,
                };
                bounded.as_slice().iter().map(|y| y * root).collect()
            }
            (Leak::RowsAddedUp, None) if !of.more_rows.is_empty() => {
                let rows = [&of.row].into_iter().chain(&of.more_rows);
                let mut sum = vec![0.0; values.len()];
                for row in rows {
                    let bounded = self.params.preprocessor().prepare(row)?;
                    for (sum, y) in sum.iter_mut().zip(bounded.as_slice()) {
                        *sum += y;
                    }
                }
                sum
            }
            (Leak::ConstantBeforeNormalising, Some(a)) if values.iter().all(|v| v.is_finite()) => {
                values.iter().copied().chain([a]).collect()
            }
            _ => return Ok((prepare(&self.params, of)?, 1.0)),
        };
        let length = raw.iter().map(|v| v * v).sum::<f64>().sqrt();
        let unit = Preprocessing::new(raw.len(), Norm::Normalize);
        let bounded = unit.preprocessor()?.prepare(&Row::new(raw))?;
        let length = match self.leak {
            Leak::ConstantBeforeNormalising => 1.0,
            // Keeps noise and numbers within the range of the wire format.
            _ => length.clamp(1e-3, 4.0),
        };
        Ok((bounded, length))
    }
}

/// Whether the row is neither zero nor of the maximum length.
fn is_short(row: &BoundedRow) -> bool {
    let squared: f64 = row.as_slice().iter().map(|x| x * x).sum();
    0.0 < squared && squared < 0.99
}

pub(crate) fn with_noise_times(mechanism: &Mechanism, factor: f64) -> Mechanism {
    let mut json = serde_json::to_value(mechanism).unwrap();
    match json["sigma"].as_f64() {
        Some(sigma) => json["sigma"] = (factor * sigma).into(),
        None => {
            let steps = json["sigma_grid"].as_u64().unwrap() as f64;
            json["sigma_grid"] = ((factor * steps).round() as u64).into();
        }
    }
    serde_json::from_value(json).unwrap()
}

struct Drawn {
    seed: Seed,
    work: SamplingCost,
    /// Whether the seed lies in the cap of the chosen direction.
    inside: bool,
}

/// `double-cap`'s rejection sampling implemented again, with this leak.
fn draw(cap: &DoubleCap, leak: Leak, x: &[f64], rng: &mut ChaCha20Rng) -> Drawn {
    let uniform = |rng: &mut ChaCha20Rng| (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let fresh_seed = |rng: &mut ChaCha20Rng| {
        let mut seed = [0; 16];
        rng.fill_bytes(&mut seed);
        seed
    };
    let outsiders = match leak {
        Leak::TooFewOutsiders => (-2.0 * cap.parameters().epsilon).exp(),
        _ => (-cap.parameters().epsilon).exp(),
    };
    let squared: f64 = x.iter().map(|x| x * x).sum();
    let keep = uniform(rng) < squared;
    let mut u = vec![0.0; x.len()];
    let length = expand(&fresh_seed(rng), &mut u).sqrt();
    for (u, x) in u.iter_mut().zip(x) {
        *u = if keep {
            x / squared.sqrt()
        } else {
            *u / length
        };
    }
    let mut z = vec![0.0; x.len()];
    let mut work = SamplingCost {
        attempts: 0,
        words: 3,
    };
    loop {
        work.attempts += 1;
        let seed = fresh_seed(rng);
        let early = (leak != Leak::LazyCoin).then(|| uniform(rng));
        work.words += 2 + u64::from(early.is_some());
        let squared_length = expand(&seed, &mut z);
        let product: f64 = z.iter().zip(&u).map(|(z, u)| z * u).sum();
        let inside = product * product > cap.parameters().threshold * squared_length;
        let short = leak == Leak::OneAttemptForShortRows && !keep;
        if short
            || inside
            || early.unwrap_or_else(|| {
                work.words += 1;
                uniform(rng)
            }) < outsiders
        {
            return Drawn { seed, work, inside };
        }
    }
}
