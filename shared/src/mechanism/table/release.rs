//! The noise of a table's report: constants, guarantee, and the addition to an exact sum.

use rand::Rng;
use serde::{Serialize, Serializer};

use super::{NoisyTable, TablePayload, row_grid::RowGrid};
use crate::{
    error::{Error, Result, error},
    mechanism::{
        Calibration, Decoding, Mechanism, MechanismKind, NoiseModel, check_len,
        discrete_gaussian::{
            DiscreteGaussian, DiscreteGaussianParameters, DiscreteGaussianSampler,
        },
        gaussian::RoundedGaussian,
    },
    packed::{PackedSymmetric, packed_len},
    privacy::{Budget, accountant::Guarantee},
};

/// Largest dimension of a site's report: no longer than the largest one of a row.
pub const MAX_TABLE_DIMENSION: usize = 2_896;

/// √2·2⁶², to the nearest whole number.
const ROOT_2: i128 = 6_521_908_912_666_391_106;
/// The scale of [`ROOT_2`], as a power of two.
const SCALE_BITS: u32 = 62;
/// The site clamps the noise at so many σ.
const CLAMP_SIGMAS: f64 = 16.0;
/// Largest grid step in units of 4⁻ᵃ, as a power of two: what is left of a sum within a step is then exact in f64.
const MAX_STEP_BITS: i64 = 53;

/// A mechanism over tables with the constants that a study of sites freezes.
///
/// Its report has P(P+1)/2 + 1 numbers, fewer than the triangle of dimension P + 1 that the mechanism of a row is
/// calibrated for: noise, guarantee and arithmetic are those, with the count on the diagonal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableMechanism {
    /// The mechanism of dimension P + 1; never `double-cap`.
    one_larger: Mechanism,
    /// σ on the diagonal and off it, of numbers in units of the matrix.
    standard_deviations: [f64; 2],
    dimension: usize,
    max_units: u64,
    grid: RowGrid,
}

impl TableMechanism {
    /// Derives the constants for reports of dimension P, of tables of at most `max_units` rows or persons, of whom each
    /// has at most `rows_per_unit` rows.
    ///
    /// # Errors
    /// Those of [`Mechanism::derive`], and `invalid-mechanism` for a pure mechanism.
    pub(crate) fn derive(
        kind: MechanismKind,
        dimension: usize,
        budget: Budget,
        max_units: u64,
        rows_per_unit: u16,
    ) -> Result<Self> {
        check_dimension(dimension)?;
        let larger = dimension + 1;
        let one_larger = match kind {
            MechanismKind::DoubleCap => return Err(no_mechanism_of_tables(kind)),
            MechanismKind::DiscreteGaussian => {
                let bits = coarsest_bits(dimension);
                let parameters = DiscreteGaussianParameters::derive_from(bits, larger, budget)?;
                DiscreteGaussian::new(larger, parameters).into()
            }
            MechanismKind::SymmetricGaussian | MechanismKind::IsotropicGaussian => {
                Mechanism::derive(kind, Calibration::Analytic, larger, budget)?
            }
        };
        Self::new(one_larger, dimension, max_units, rows_per_unit)
    }

    /// The mechanism with constants as they arrive on the wire, to be checked with [`check`](Self::check).
    pub(crate) fn new(
        one_larger: Mechanism,
        dimension: usize,
        max_units: u64,
        rows_per_unit: u16,
    ) -> Result<Self> {
        let NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        } = one_larger.noise_model()
        else {
            return Err(no_mechanism_of_tables(one_larger.kind()));
        };
        Ok(Self {
            one_larger,
            standard_deviations: [diagonal_sd, off_diagonal_sd],
            dimension,
            max_units,
            grid: RowGrid::new(dimension, max_units, rows_per_unit),
        })
    }

    /// Checks, at the site too, that the constants give what the study claims.
    ///
    /// # Errors
    /// Those of [`Mechanism::check`]; `invalid-mechanism` for the published noise and for too coarse a grid;
    /// `invalid-budget` for noise so large that sums cannot be split.
    pub(crate) fn check(&self, budget: Budget) -> Result<()> {
        check_dimension(self.dimension)?;
        self.one_larger.check(self.dimension + 1, budget)?;
        if let Mechanism::DiscreteGaussian(discrete) = self.one_larger {
            let (bits, coarsest) = (
                discrete.parameters().grid_bits(),
                coarsest_bits(self.dimension),
            );
            if bits < coarsest {
                return Err(error!(
                    InvalidMechanism,
                    "the study's grid has {bits} bits but tables of dimension {} need {coarsest}; do not take part",
                    self.dimension
                ));
            }
            return Ok(());
        }
        if self.one_larger.calibration() != Some(Calibration::Analytic) {
            return Err(error!(
                InvalidMechanism,
                "there is no calibration {} for tables; it is analytic",
                Calibration::AsPublished
            ));
        }
        if !(0..=MAX_STEP_BITS).contains(&self.step_bits()) {
            return Err(error!(
                InvalidBudget,
                "({}, {}) needs noise of standard deviation {:e}, which tables of up to {} rows cannot have; choose another epsilon or delta, or discrete-gaussian",
                budget.epsilon(),
                budget.delta(),
                self.standard_deviations[0],
                self.max_units
            ));
        }
        Ok(())
    }

    /// The mechanism's name.
    pub fn kind(&self) -> MechanismKind {
        self.one_larger.kind()
    }

    /// How the noise was chosen, where there is a choice.
    pub fn calibration(&self) -> Option<Calibration> {
        self.one_larger.calibration()
    }

    /// The frozen constants in the order of `docs/protocol.md`.
    pub(crate) fn constants(&self) -> Vec<f64> {
        self.one_larger.constants()
    }

    /// Dimension P of a report.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    pub(super) fn grid(&self) -> RowGrid {
        self.grid
    }

    /// Bytes of a payload.
    pub fn payload_len(&self) -> usize {
        8 * (packed_len(self.dimension) + 1)
    }

    /// The guarantee of one report that actually holds, for neighbouring tables.
    ///
    /// # Errors
    /// `invalid-mechanism` for constants that were never checked.
    pub fn guarantee(&self) -> Result<Guarantee> {
        self.one_larger.guarantee()
    }

    /// The smallest ε that really holds at this δ, rounded up; `None` when none does.
    pub fn true_epsilon(&self, delta: f64) -> Option<f64> {
        self.one_larger.true_epsilon(delta)
    }

    /// The smallest δ that really holds at this ε, rounded up.
    pub fn true_delta(&self, epsilon: f64) -> f64 {
        self.one_larger.true_delta(epsilon)
    }

    /// The ε that holds at this δ for inputs whose squared distance is `times` that of neighbours: 2 for a person at two
    /// sites, 4 for two rows of a table. What floating point adds is in it. `None` when none does.
    pub fn epsilon_of(&self, times: u32, delta: f64) -> Option<f64> {
        let larger = self.dimension + 1;
        let slack = f64::from(times) * self.arithmetic_slack();
        let delta = delta / (1.0 + slack);
        let epsilon = match self.one_larger {
            Mechanism::DiscreteGaussian(discrete) => {
                discrete.parameters().epsilon_of(larger, times, delta)
            }
            _ => self.guarantee().ok()?.times(times).ok()?.epsilon(delta),
        };
        Some((epsilon? + slack).next_up())
    }

    /// Probability that one report changes the odds between the worst two neighbouring tables by more than e^`epsilon`.
    pub fn privacy_loss_tail(&self, epsilon: f64) -> f64 {
        self.one_larger.privacy_loss_tail(epsilon)
    }

    /// Upper bound on what floating point adds to ε of one report ([`Mechanism::arithmetic_slack`]).
    pub fn arithmetic_slack(&self) -> f64 {
        self.one_larger.arithmetic_slack(self.dimension + 1)
    }

    /// The ε that holds at this δ, with what floating point adds to both; `None` when none does.
    pub fn epsilon_with_rounding(&self, delta: f64) -> Option<f64> {
        self.one_larger
            .epsilon_with_rounding(self.dimension + 1, delta)
    }

    /// The assumptions of the proof, and the addition of floating point to ε, in a sentence or two.
    pub fn assumption(&self) -> String {
        self.one_larger.assumption(self.dimension + 1)
    }

    /// The noise of one decoded moment, whatever the number of rows in it.
    pub fn noise_model(&self) -> NoiseModel {
        let scale = self.grid.decoding();
        let [diagonal_sd, off_diagonal_sd] = self.standard_deviations.map(|sd| sd * scale);
        NoiseModel::Gaussian {
            off_diagonal_sd,
            diagonal_sd,
        }
    }

    /// Standard deviation of the noise of a decoded count.
    pub fn count_sd(&self) -> f64 {
        self.standard_deviations[0]
    }

    /// Refuses bytes whose length or numbers no site sends.
    ///
    /// # Errors
    /// `wrong-payload-length`, `payload-out-of-range`.
    pub(crate) fn read<B: AsRef<[u8]>>(&self, bytes: B) -> Result<TablePayload<B>> {
        check_len(bytes.as_ref().len(), self.payload_len())?;
        let payload = TablePayload::new_unchecked(bytes);
        let bound = self.payload_bound();
        if payload.numbers().all(|n| (-bound..=bound).contains(&n)) {
            return Ok(payload);
        }
        Err(error!(
            PayloadOutOfRange,
            "the payload has an entry beyond {bound} in magnitude, which no site of this study sends"
        ))
    }

    /// Decodes a payload of its study, noise included.
    pub fn decode<B: AsRef<[u8]>>(&self, payload: &TablePayload<B>) -> NoisyTable {
        let steps = self.steps();
        let mut moment = PackedSymmetric::zeros(self.dimension);
        let mut rows = 0.0;
        let entries = moment.as_mut_slice().iter_mut().chain([&mut rows]);
        for ((entry, number), diagonal) in entries.zip(payload.numbers()).zip(self.on_diagonal()) {
            *entry = number as f64 * steps[usize::from(!diagonal)];
        }
        moment.scale(self.grid.decoding());
        NoisyTable { moment, rows }
    }

    /// The payload of an exact sum, in units of 4⁻ᵃ.
    pub(super) fn release<R: Rng + ?Sized>(
        &self,
        products: &[i64],
        count: i64,
        rng: &mut R,
    ) -> Vec<u8> {
        let (addition, bound) = (self.addition(), self.payload_bound());
        let mut payload = Vec::with_capacity(self.payload_len());
        let sums = products.iter().chain([&count]);
        for (sum, diagonal) in sums.zip(self.on_diagonal()) {
            // No honest number reaches the bound, but a server refuses what is beyond it.
            let number = addition.noisy(*sum, diagonal, rng).clamp(-bound, bound);
            payload.extend_from_slice(&number.to_le_bytes());
        }
        payload
    }

    /// Whether each number of a report has the step and the noise of the diagonal: the triangle row by row, and the
    /// count.
    pub(super) fn on_diagonal(&self) -> impl Iterator<Item = bool> + use<> {
        let p = self.dimension;
        (0..p)
            .flat_map(move |i| (i..p).map(move |j| i == j))
            .chain([true])
    }

    /// The value of one step on the diagonal and off it.
    pub(super) fn steps(&self) -> [f64; 2] {
        match self.one_larger.decoding() {
            Decoding::Grid {
                diagonal_step,
                off_diagonal_step,
            } => [diagonal_step, off_diagonal_step],
            Decoding::Entries | Decoding::Direction(_) => [self.rounded().grid(); 2],
        }
    }

    /// The continuous noise.
    fn rounded(&self) -> RoundedGaussian {
        let [diagonal_sd, off_diagonal_sd] = self.standard_deviations;
        RoundedGaussian::new(diagonal_sd, off_diagonal_sd)
    }

    /// log₂ of the grid of the continuous noise, in units of 4⁻ᵃ.
    pub(super) fn step_bits(&self) -> i64 {
        // Of a power of two.
        let exponent = (self.rounded().grid().to_bits() >> 52) as i64 - 1023;
        exponent + 2 * i64::from(self.grid.bits())
    }

    /// The largest magnitude of a number: all rows in one direction, and the noise beyond which a site clamps.
    pub(super) fn payload_bound(&self) -> i64 {
        let reach = self.max_units as f64 + CLAMP_SIGMAS * self.standard_deviations[0];
        (reach / self.steps()[0]).ceil() as i64 + 1
    }

    fn addition(&self) -> Addition {
        match self.one_larger {
            Mechanism::DiscreteGaussian(discrete) => Addition::Discrete {
                sampler: discrete.sampler(),
                dropped_bits: SCALE_BITS + 2 * self.grid.bits()
                    - u32::from(discrete.parameters().grid_bits()),
            },
            _ => Addition::Rounded {
                noise: self.rounded(),
                // Checked to be from 0 to 53.
                step_bits: u32::try_from(self.step_bits()).unwrap_or(0),
                unit: 1.0 / self.grid.unit() as f64,
            },
        }
    }
}

/// The frozen constants.
impl Serialize for TableMechanism {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.one_larger.serialize(serializer)
    }
}

/// How noise is added to a sum in units of 4⁻ᵃ.
enum Addition {
    /// Continuous noise, on a grid of 2^`step_bits` units.
    Rounded {
        noise: RoundedGaussian,
        step_bits: u32,
        /// 4⁻ᵃ.
        unit: f64,
    },
    /// Exact noise on a grid of 2^(`dropped_bits` − 62) units.
    Discrete {
        sampler: DiscreteGaussianSampler,
        dropped_bits: u32,
    },
}

impl Addition {
    /// A released number. The noise meets only what is left of the sum within a step, so that f64 costs the same
    /// whatever the sum is.
    fn noisy<R: Rng + ?Sized>(&self, sum: i64, diagonal: bool, rng: &mut R) -> i64 {
        match self {
            Addition::Rounded {
                noise,
                step_bits,
                unit,
            } => {
                let (whole, rest) = split(sum, *step_bits);
                // Exact: below 2⁵³, times a power of two.
                whole + noise.steps(rest as f64 * unit, diagonal, rng)
            }
            Addition::Discrete {
                sampler,
                dropped_bits,
            } => on_grid(sum, diagonal, *dropped_bits).saturating_add(sampler.sample(rng)),
        }
    }
}

/// `sum` = whole·2^`step_bits` + rest, with |rest| at most half a step.
pub(super) fn split(sum: i64, step_bits: u32) -> (i64, i64) {
    let half = (1_i64 << step_bits) >> 1;
    let whole = (sum + half) >> step_bits;
    (whole, sum - (whole << step_bits))
}

/// A sum, off the diagonal times √2, over 2^(`dropped_bits` − 62), to the nearest whole number.
pub(super) fn on_grid(sum: i64, diagonal: bool, dropped_bits: u32) -> i64 {
    let scale = if diagonal {
        1_i128 << SCALE_BITS
    } else {
        ROOT_2
    };
    let product = i128::from(sum) * scale;
    // A sum is at most 2⁶², and at least 68 bits are dropped.
    ((product + (1_i128 << (dropped_bits - 1))) >> dropped_bits) as i64
}

/// Coarsest grid of tables: b = ⌈log₂ 500P⌉, which keeps the price of rounding near a thousandth of σ.
fn coarsest_bits(dimension: usize) -> u8 {
    // At most 21: the dimension was checked.
    (500 * dimension as u64).next_power_of_two().ilog2() as u8
}

fn check_dimension(dimension: usize) -> Result<()> {
    if (2..=MAX_TABLE_DIMENSION).contains(&dimension) {
        return Ok(());
    }
    Err(error!(
        InvalidDimension,
        "the dimension of a site's report is {dimension}; it must be 2 to {MAX_TABLE_DIMENSION}, of which private centring takes one"
    ))
}

fn no_mechanism_of_tables(kind: MechanismKind) -> Error {
    error!(
        InvalidMechanism,
        "there is no {kind} over tables; use {}",
        MechanismKind::DiscreteGaussian
    )
}
