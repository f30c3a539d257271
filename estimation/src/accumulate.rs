//! Sums of reports: the only thing an estimate needs of them.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    mechanism::{
        MechanismSpec, PayloadForm,
        double_cap::{SEED_LEN, Seed, expand},
    },
    packed::{PackedSymmetric, packed_index, packed_len},
};

use crate::linalg::GramSum;

/// The sum of `count` reports as their payloads add up, as the packed upper triangle of a `p × p` matrix
/// in f64: numbers for the Gaussian mechanisms, whole numbers on a grid for the discrete one (exact, in
/// every order, below 2⁵³), `Σ ggᵀ` for `double-cap`. [`NoisyMoment::decode`](crate::moment::NoisyMoment::decode)
/// makes estimates of `xxᵀ` of them.
///
/// ```
/// use eigenveil_estimation::accumulate::Accumulator;
/// use eigenveil_shared::mechanism::PayloadForm;
/// let mut sums = Accumulator::new(2)?;
/// let payload: Vec<u8> = [1.0_f32, 0.5, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// sums.add_payload(&payload, PayloadForm::Floats)?;
/// sums.add_payload(&payload, PayloadForm::Floats)?;
/// assert_eq!(sums.sum().as_slice(), &[2.0, 1.0, -4.0]);
/// assert_eq!(sums.count(), 2);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulator {
    sum: PackedSymmetric,
    count: u64,
}

impl Accumulator {
    /// An empty sum of `p × p` matrices.
    ///
    /// # Errors
    /// `InvalidDimension` for p = 0.
    pub fn new(p: usize) -> Result<Self> {
        Self::from_parts(PackedSymmetric::zeros(p), 0)
    }

    /// A sum that was stored before: `sum` of `count` reports.
    ///
    /// # Errors
    /// `InvalidDimension` for dimension 0, `EstimateFailed` for an entry that is not finite.
    pub fn from_parts(sum: PackedSymmetric, count: u64) -> Result<Self> {
        if sum.dimension() == 0 {
            return Err(no_dimension());
        }
        if !sum.as_slice().iter().all(|entry| entry.is_finite()) {
            return Err(Error::new(
                ErrorCode::EstimateFailed,
                "a stored sum has an entry that is not a finite number",
            ));
        }
        Ok(Self { sum, count })
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.sum.dimension()
    }

    /// How many reports are in the sum.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of the decoded reports.
    pub fn sum(&self) -> &PackedSymmetric {
        &self.sum
    }

    /// Adds one payload of `p(p+1)/2` little-endian numbers, the upper triangle row by row.
    ///
    /// # Errors
    /// `WrongPayloadLength`; `PayloadNotFinite` or `PayloadOutOfRange` for a number no device sends;
    /// `InvalidMechanism` for seeds, which [`SeedSum`] adds up in blocks. The sum is then as before.
    pub fn add_payload(&mut self, payload: &[u8], form: PayloadForm) -> Result<()> {
        let expected = 4 * packed_len(self.dimension());
        let (numbers, rest) = payload.as_chunks::<4>();
        if payload.len() != expected || !rest.is_empty() {
            return Err(wrong_length(payload.len(), self.dimension(), expected));
        }
        // Everything is checked before anything is added.
        form.check(payload)?;
        match form {
            PayloadForm::Floats => {
                for (entry, number) in self.sum.as_mut_slice().iter_mut().zip(numbers) {
                    *entry += f64::from(f32::from_le_bytes(*number));
                }
            }
            PayloadForm::Integers { .. } => {
                for (entry, number) in self.sum.as_mut_slice().iter_mut().zip(numbers) {
                    *entry += f64::from(i32::from_le_bytes(*number));
                }
            }
            _ => {
                return Err(Error::new(
                    ErrorCode::InvalidMechanism,
                    "payloads of this form are not added one by one",
                ));
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Adds `count` reports whose sum is already known, as a simulation has it.
    ///
    /// # Errors
    /// `WrongDimension` when the dimensions differ, `EstimateFailed` for an entry that is not finite.
    pub fn add_sum(&mut self, sum: PackedSymmetric, count: u64) -> Result<()> {
        self.merge(&Self::from_parts(sum, count)?)
    }

    /// Turns a sum of payloads into a sum of decoded reports.
    pub(crate) fn decode(&mut self, mechanism: &MechanismSpec) {
        self.decode_rows(mechanism, self.dimension());
    }

    /// The same for sums of some rows (and their columns) of reports of dimension `reports`.
    pub(crate) fn decode_rows(&mut self, mechanism: &MechanismSpec, reports: usize) {
        let p = self.dimension();
        let diagonal = (0..p).map(|i| packed_index(p, i, i));
        match mechanism {
            MechanismSpec::DoubleCap(cap) => {
                let identity = self.count as f64 / reports as f64;
                let entries = self.sum.as_mut_slice();
                diagonal.for_each(|at| entries[at] -= identity);
                self.sum.scale(cap.scale());
            }
            MechanismSpec::DiscreteGaussian(discrete) => {
                let parameters = discrete.parameters();
                let entries = self.sum.as_mut_slice();
                let ratio = parameters.diagonal_step() / parameters.off_diagonal_step();
                diagonal.for_each(|at| entries[at] *= ratio);
                self.sum.scale(parameters.off_diagonal_step());
            }
            _ => {}
        }
    }

    /// Adds everything another accumulator has.
    ///
    /// # Errors
    /// `WrongDimension` when the dimensions differ.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if other.dimension() != self.dimension() {
            return Err(Error::new(
                ErrorCode::WrongDimension,
                format!(
                    "a sum of dimension {} cannot be added to one of dimension {}",
                    other.dimension(),
                    self.dimension()
                ),
            ));
        }
        self.sum.add(&other.sum);
        self.count += other.count;
        Ok(())
    }
}

/// `Σ ggᵀ` over the directions of `double-cap` seeds, gathered in blocks: p normals and p(p+1) flops a
/// report, the flops in single precision. What that rounds off is of either sign, and about 1e-5 of the noise that
/// the directions are made of.
///
/// ```
/// use eigenveil_estimation::accumulate::SeedSum;
/// let mut sum = SeedSum::new(3)?;
/// sum.add_payload(&[1; 16])?;
/// sum.add_payload(&[2; 16])?;
/// let sum = sum.finish()?;
/// assert_eq!(sum.count(), 2);
/// assert!((sum.sum().trace() - 2.0).abs() < 1e-6); // directions have length one
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub struct SeedSum {
    gram: GramSum<f32>,
    normals: Vec<f64>,
    count: u64,
}

impl SeedSum {
    /// An empty sum in dimension p.
    ///
    /// # Errors
    /// `InvalidDimension` for p = 0.
    pub fn new(p: usize) -> Result<Self> {
        if p == 0 {
            return Err(no_dimension());
        }
        Ok(Self {
            gram: GramSum::new(p),
            normals: vec![0.0; p],
            count: 0,
        })
    }

    /// Adds the direction of one payload.
    ///
    /// # Errors
    /// `WrongPayloadLength` unless it has 16 bytes.
    pub fn add_payload(&mut self, payload: &[u8]) -> Result<()> {
        let Ok(seed) = payload.try_into() else {
            return Err(wrong_length(payload.len(), self.normals.len(), SEED_LEN));
        };
        self.add(seed);
        Ok(())
    }

    /// Adds the direction of one seed.
    pub fn add(&mut self, seed: &Seed) {
        let squared_length = expand(seed, &mut self.normals);
        self.gram.add(&self.normals, squared_length.recip());
        self.count += 1;
    }

    /// Adds a direction of length one that is known already, as a simulation has it.
    ///
    /// # Panics
    /// If it has another length than p.
    pub fn add_direction(&mut self, direction: &[f64]) {
        self.gram.add(direction, 1.0);
        self.count += 1;
    }

    /// The sum.
    ///
    /// # Errors
    /// None in practice: directions are finite.
    pub fn finish(self) -> Result<Accumulator> {
        Accumulator::from_parts(self.gram.finish(), self.count)
    }
}

/// The sum of reports of one mechanism, whatever its payloads are made of.
pub enum ReportSum {
    /// Payloads of numbers.
    Numbers {
        /// The sum so far.
        sum: Accumulator,
        /// What the payloads hold.
        form: PayloadForm,
    },
    /// Payloads of seeds.
    Seeds(SeedSum),
}

impl ReportSum {
    /// An empty sum of reports of dimension p.
    ///
    /// # Errors
    /// `InvalidDimension` for p = 0.
    pub fn new(mechanism: &MechanismSpec, p: usize) -> Result<Self> {
        Ok(match mechanism.payload_form() {
            PayloadForm::Seed => ReportSum::Seeds(SeedSum::new(p)?),
            form => ReportSum::Numbers {
                sum: Accumulator::new(p)?,
                form,
            },
        })
    }

    /// Adds one payload.
    ///
    /// # Errors
    /// Those of [`Accumulator::add_payload`] and [`SeedSum::add_payload`].
    pub fn add_payload(&mut self, payload: &[u8]) -> Result<()> {
        match self {
            ReportSum::Numbers { sum, form } => sum.add_payload(payload, *form),
            ReportSum::Seeds(sum) => sum.add_payload(payload),
        }
    }

    /// The sum of the payloads.
    ///
    /// # Errors
    /// Those of [`SeedSum::finish`].
    pub fn finish(self) -> Result<Accumulator> {
        match self {
            ReportSum::Numbers { sum, .. } => Ok(sum),
            ReportSum::Seeds(sum) => sum.finish(),
        }
    }
}

fn no_dimension() -> Error {
    Error::new(
        ErrorCode::InvalidDimension,
        "a sum needs a dimension p ≥ 1; it is 0",
    )
}

fn wrong_length(length: usize, p: usize, expected: usize) -> Error {
    Error::new(
        ErrorCode::WrongPayloadLength,
        format!("the payload has {length} bytes; p = {p} needs {expected}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn payload(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn refused_payloads_leave_the_sum_alone() {
        let mut sums = Accumulator::new(2).unwrap();
        sums.add_payload(&payload(&[1.0, 2.0, 3.0]), PayloadForm::Floats)
            .unwrap();
        let before = sums.clone();
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in 0..3 {
                let mut numbers = [0.5; 3];
                numbers[place] = bad;
                let error = sums
                    .add_payload(&payload(&numbers), PayloadForm::Floats)
                    .unwrap_err();
                assert_eq!(error.code(), ErrorCode::PayloadNotFinite);
            }
        }
        for length in [0, 4, 11, 13, 16] {
            let error = sums
                .add_payload(&vec![0; length], PayloadForm::Floats)
                .unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongPayloadLength);
        }
        assert_eq!(sums, before);
        sums.add_payload(&payload(&[f32::MAX, f32::MIN, -0.0]), PayloadForm::Floats)
            .unwrap();
        assert_eq!(sums.count(), 2);
    }

    #[test]
    fn integers_are_held_to_their_bound() {
        let form = PayloadForm::Integers { bound: 100 };
        let bytes = |numbers: [i32; 3]| -> Vec<u8> {
            numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
        };
        let mut sums = Accumulator::new(2).unwrap();
        sums.add_payload(&bytes([100, -100, 7]), form).unwrap();
        for numbers in [[101, 0, 0], [0, -101, 0], [0, 0, i32::MIN]] {
            let error = sums.add_payload(&bytes(numbers), form).unwrap_err();
            assert_eq!(error.code(), ErrorCode::PayloadOutOfRange);
        }
        assert_eq!(sums.sum().as_slice(), &[100.0, -100.0, 7.0]);
        assert_eq!(sums.count(), 1);
        assert!(sums.add_payload(&[0; 12], PayloadForm::Seed).is_err());
    }

    #[test]
    fn seeds_add_up_to_the_outer_products_of_their_directions() {
        let (p, reports) = (7, 600);
        let mut blocked = SeedSum::new(p).unwrap();
        let mut plain = PackedSymmetric::zeros(p);
        let mut z = vec![0.0; p];
        for i in 0..reports {
            let seed = [(i % 251) as u8; SEED_LEN];
            blocked.add_payload(&seed).unwrap();
            let squared = expand(&seed, &mut z);
            plain.add_outer(&z, 1.0 / squared);
        }
        let sums = blocked.finish().unwrap();
        assert_eq!(sums.count(), reports);
        for (a, b) in sums.sum().as_slice().iter().zip(plain.as_slice()) {
            // 1e-4 of the standard deviation √n/p.
            assert!((a - b).abs() < 3e-4, "{a} {b}");
        }
        let mut sum = SeedSum::new(2).unwrap();
        for length in [0, 15, 17] {
            let error = sum.add_payload(&vec![0; length]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongPayloadLength);
        }
        assert!(SeedSum::new(0).is_err());
    }

    #[test]
    fn dimensions_are_checked() {
        assert!(Accumulator::new(0).is_err());
        let mut sums = Accumulator::new(2).unwrap();
        let error = sums.merge(&Accumulator::new(3).unwrap()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongDimension);
        let poisoned = PackedSymmetric::from_entries(1, vec![f64::NAN]).unwrap();
        assert!(Accumulator::from_parts(poisoned, 1).is_err());
    }

    proptest! {
        /// However reports are spread over accumulators, the total is theirs (dyadic numbers: exact).
        #[test]
        fn merging_is_adding(reports in prop::collection::vec(prop::collection::vec(-512_i16..512, 6), 1..20),
                             split in 0_usize..20) {
            let split = split.min(reports.len());
            let mut whole = Accumulator::new(3).unwrap();
            let mut parts = [Accumulator::new(3).unwrap(), Accumulator::new(3).unwrap()];
            for (i, report) in reports.iter().enumerate() {
                let numbers: Vec<f32> = report.iter().map(|&x| f32::from(x) / 8.0).collect();
                whole.add_payload(&payload(&numbers), PayloadForm::Floats).unwrap();
                parts[usize::from(i >= split)].add_payload(&payload(&numbers), PayloadForm::Floats).unwrap();
            }
            let [mut left, right] = parts;
            left.merge(&right).unwrap();
            prop_assert_eq!(left, whole);
        }
    }
}
