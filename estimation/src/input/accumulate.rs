//! Sums of reports, which are all that an estimate needs.

use eigenveil_shared::{
    Error, Result, error,
    mechanism::{
        Decoding, Mechanism, PackedValues, Payload, PayloadKind,
        double_cap::{Seed, expand},
    },
    packed::{PackedSymmetric, packed_index, packed_len},
};

use crate::linalg::GramSum;

/// The sum of the payloads of `count` reports as the packed upper triangle of a `p × p` matrix in
/// f64: real numbers for the Gaussian mechanisms, whole numbers on a grid for the discrete one (exact in any order
/// below 2⁵³), `Σ ggᵀ` for `double-cap`. [`NoisyMoment::decode`](crate::moment::NoisyMoment::decode)
/// decodes it into an estimate of `xxᵀ`.
///
/// ```
/// use eigenveil_estimation::accumulate::Accumulator;
/// use eigenveil_shared::{codec::ReportFormat, mechanism::Payload};
/// # use eigenveil_shared::{
/// #     mechanism::MechanismKind, study::{StudyDesign, StudyParams},
/// # };
/// # let kind = MechanismKind::IsotropicGaussian;
/// # let params = StudyParams::freeze(StudyDesign::new(kind, 2, kind.budget(1.0, None)?))?;
/// let bytes: Vec<u8> = [1.0_f32, 0.5, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let mut sums = Accumulator::new(2)?;
/// if let Payload::Floats(numbers) = ReportFormat::new(&params).payload(&bytes)? {
///     sums.add(&numbers)?;
///     sums.add(&numbers)?;
/// }
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
    pub fn new(p: usize) -> Result<Self> {
        Self::from_parts(PackedSymmetric::zeros(p), 0)
    }

    /// Restores a stored sum: `sum` of `count` reports.
    ///
    /// # Errors
    /// `invalid-dimension` for dimension 0, `estimate-failed` for an entry that is not finite.
    pub fn from_parts(sum: PackedSymmetric, count: u64) -> Result<Self> {
        if sum.dimension() == 0 {
            return Err(no_dimension());
        }
        if !sum.as_slice().iter().all(|entry| entry.is_finite()) {
            return Err(Error::estimate_failed(
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

    /// The sum: of payloads, or of decoded reports once it was decoded.
    pub fn sum(&self) -> &PackedSymmetric {
        &self.sum
    }

    /// Adds the `p(p+1)/2` numbers of one payload, the upper triangle row by row.
    ///
    /// # Errors
    /// `wrong-payload-length` for a payload of another dimension. The sum is then unchanged.
    pub fn add<N: PackedValues>(&mut self, numbers: &N) -> Result<()> {
        let (bytes, expected) = (numbers.bytes(), packed_len(self.dimension()));
        if bytes.len() != expected {
            return Err(error!(
                WrongPayloadLength,
                "the payload has {} numbers; p = {} needs {expected}",
                bytes.len(),
                self.dimension()
            ));
        }
        for (entry, number) in self.sum.as_mut_slice().iter_mut().zip(bytes) {
            *entry += N::value(*number);
        }
        self.count += 1;
        Ok(())
    }

    /// Counts one answer of a preparation, at this place of the packed entries.
    ///
    /// # Errors
    /// `payload-out-of-range` for a place beyond the last. The sum is then unchanged.
    pub fn count_at(&mut self, place: usize) -> Result<()> {
        match self.sum.as_mut_slice().get_mut(place) {
            // Exact below 2⁵³.
            Some(entry) => *entry += 1.0,
            None => {
                return Err(error!(
                    PayloadOutOfRange,
                    "an answer is counted at place {place}, but the sum has {}",
                    self.sum.as_slice().len()
                ));
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Turns a sum of payloads into a sum of decoded reports.
    pub(crate) fn decode(&mut self, mechanism: &Mechanism) {
        self.decode_rows(mechanism, self.dimension());
    }

    /// Decodes sums of some rows (and their columns) of reports of dimension `reports`.
    pub(crate) fn decode_rows(&mut self, mechanism: &Mechanism, reports: usize) {
        let p = self.dimension();
        let diagonal = (0..p).map(|i| packed_index(p, i, i));
        match mechanism.decoding() {
            Decoding::Direction(parameters) => {
                let identity = self.count as f64 / reports as f64;
                let entries = self.sum.as_mut_slice();
                diagonal.for_each(|at| entries[at] -= identity);
                self.sum.scale(parameters.scale);
            }
            Decoding::Grid {
                diagonal_step,
                off_diagonal_step,
            } => {
                let entries = self.sum.as_mut_slice();
                let ratio = diagonal_step / off_diagonal_step;
                diagonal.for_each(|at| entries[at] *= ratio);
                self.sum.scale(off_diagonal_step);
            }
            Decoding::Entries => {}
        }
    }

    /// Adds the sum and the count of another accumulator.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if other.dimension() != self.dimension() {
            return Err(error!(
                WrongDimension,
                "a sum of dimension {} cannot be added to one of dimension {}",
                other.dimension(),
                self.dimension()
            ));
        }
        self.sum.add(&other.sum);
        self.count += other.count;
        Ok(())
    }

    /// Takes away the sum and the count of another accumulator, whose reports are in this one.
    ///
    /// # Errors
    /// `wrong-dimension`; `estimate-failed` if the other one has more reports. The sum is then unchanged.
    pub fn subtract(&mut self, mut other: Self) -> Result<()> {
        let Some(count) = self.count.checked_sub(other.count) else {
            return Err(Error::estimate_failed(format!(
                "{} reports cannot be taken out of a sum of {}",
                other.count, self.count
            )));
        };
        other.sum.scale(-1.0);
        self.merge(&other)?;
        self.count = count;
        Ok(())
    }
}

/// `Σ ggᵀ` over the directions of `double-cap` seeds, gathered in blocks: p normals and p(p+1) flops per report, the
/// flops in single precision. Its rounding errors have either sign and are about 1e-5 of the directions' own noise.
pub struct SeedSum {
    gram: GramSum<f32>,
    normals: Vec<f64>,
    count: u64,
}

impl SeedSum {
    /// An empty sum in dimension p.
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

    /// Adds the direction of one seed.
    pub fn add(&mut self, seed: &Seed) {
        let squared_length = expand(seed, &mut self.normals);
        self.gram.add(&self.normals, squared_length.recip());
        self.count += 1;
    }

    /// Adds a direction of length one that needs no expansion from a seed, as in a simulation.
    pub fn add_direction(&mut self, direction: &[f64]) {
        self.gram.add(direction, 1.0);
        self.count += 1;
    }

    /// The sum.
    pub fn finish(self) -> Result<Accumulator> {
        Accumulator::from_parts(self.gram.finish(), self.count)
    }
}

/// The sum of reports of one mechanism, whatever its payloads are made of.
pub enum ReportSum {
    /// Payloads of floats.
    Floats(Accumulator),
    /// Payloads of integers.
    Integers(Accumulator),
    /// Payloads of seeds.
    Seeds(SeedSum),
}

impl ReportSum {
    /// An empty sum of reports of dimension p.
    pub fn new(mechanism: &Mechanism, p: usize) -> Result<Self> {
        Ok(match mechanism.payload_kind() {
            PayloadKind::Seed => ReportSum::Seeds(SeedSum::new(p)?),
            PayloadKind::Floats => ReportSum::Floats(Accumulator::new(p)?),
            PayloadKind::Integers { .. } => ReportSum::Integers(Accumulator::new(p)?),
        })
    }

    /// Adds one payload.
    ///
    /// # Errors
    /// `wrong-payload-length` and `invalid-mechanism` for a payload of another length or form.
    pub fn add<B: AsRef<[u8]>>(&mut self, payload: &Payload<B>) -> Result<()> {
        match (self, payload) {
            (ReportSum::Floats(sum), Payload::Floats(numbers)) => sum.add(numbers),
            (ReportSum::Integers(sum), Payload::Integers(numbers)) => sum.add(numbers),
            (ReportSum::Seeds(sum), Payload::Seed(seed)) => {
                sum.add(seed);
                Ok(())
            }
            _ => Err(error!(
                InvalidMechanism,
                "the payload belongs to a different mechanism than the sum"
            )),
        }
    }

    /// The sum of the payloads.
    pub fn finish(self) -> Result<Accumulator> {
        match self {
            ReportSum::Floats(sum) | ReportSum::Integers(sum) => Ok(sum),
            ReportSum::Seeds(sum) => sum.finish(),
        }
    }
}

fn no_dimension() -> Error {
    error!(InvalidDimension, "a sum needs a dimension p ≥ 1; it is 0")
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{ErrorCode, codec::ReportFormat, study::Fingerprint};
    use proptest::prelude::*;

    use super::*;

    fn format(p: usize, payload_kind: PayloadKind) -> ReportFormat {
        ReportFormat::without_params(Fingerprint([0; 32]), payload_kind, payload_kind.len(p))
    }

    fn floats(numbers: &[f32]) -> Result<Payload<Vec<u8>>> {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let p = (0..).find(|&p| packed_len(p) == numbers.len()).unwrap();
        format(p, PayloadKind::Floats).payload(bytes)
    }

    #[test]
    fn payloads_of_other_studies_are_rejected() {
        let mut sums = ReportSum::Floats(Accumulator::new(2).unwrap());
        sums.add(&floats(&[1.0, 2.0, 3.0]).unwrap()).unwrap();
        sums.add(&floats(&[f32::MAX, f32::MIN, -0.0]).unwrap())
            .unwrap();
        let other = sums.add(&floats(&[1.0; 6]).unwrap()).unwrap_err();
        assert_eq!(other.code(), ErrorCode::WrongPayloadLength);
        let integers = format(2, PayloadKind::Integers { bound: i32::MAX });
        let other = sums.add(&integers.payload([7; 12]).unwrap()).unwrap_err();
        assert_eq!(other.code(), ErrorCode::InvalidMechanism);
        let seed = format(2, PayloadKind::Seed).payload([7; 16]).unwrap();
        let other = sums.add(&seed).unwrap_err();
        assert_eq!(other.code(), ErrorCode::InvalidMechanism);
        let mut seeds = ReportSum::Seeds(SeedSum::new(2).unwrap());
        let other = seeds.add(&floats(&[1.0, 2.0, 3.0]).unwrap()).unwrap_err();
        assert_eq!(other.code(), ErrorCode::InvalidMechanism);
        let sums = sums.finish().unwrap();
        assert_eq!(sums.count(), 2);
        let [a, b] = [1.0 + f64::from(f32::MAX), 2.0 + f64::from(f32::MIN)];
        assert_eq!(sums.sum().as_slice(), &[a, b, 3.0]);
    }

    #[test]
    fn integers_add_up_up_to_their_bound() {
        let format = format(2, PayloadKind::Integers { bound: 100 });
        let bytes: Vec<u8> = [100_i32, -100, 7]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        let mut sums = ReportSum::Integers(Accumulator::new(2).unwrap());
        sums.add(&format.payload(bytes).unwrap()).unwrap();
        let sums = sums.finish().unwrap();
        assert_eq!(sums.sum().as_slice(), &[100.0, -100.0, 7.0]);
        assert_eq!(sums.count(), 1);
    }

    #[test]
    fn seeds_add_up_to_the_outer_products_of_their_directions() {
        let (p, reports) = (7, 600);
        let mut blocked = SeedSum::new(p).unwrap();
        let mut plain = PackedSymmetric::zeros(p);
        let mut z = vec![0.0; p];
        for i in 0..reports {
            let seed = [(i % 251) as u8; 16];
            blocked.add(&seed);
            let squared = expand(&seed, &mut z);
            plain.add_outer(&z, 1.0 / squared);
        }
        let sums = blocked.finish().unwrap();
        assert_eq!(sums.count(), reports);
        for (a, b) in sums.sum().as_slice().iter().zip(plain.as_slice()) {
            // 1e-4 of the standard deviation √n/p.
            assert!((a - b).abs() < 3e-4, "{a} {b}");
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
            let empty = || ReportSum::Floats(Accumulator::new(3).unwrap());
            let mut whole = empty();
            let mut parts = [empty(), empty()];
            for (i, report) in reports.iter().enumerate() {
                let report: Vec<f32> = report.iter().map(|&x| f32::from(x) / 8.0).collect();
                let payload = floats(&report).unwrap();
                whole.add(&payload).unwrap();
                parts[usize::from(i >= split)].add(&payload).unwrap();
            }
            let [mut left, right] = parts.map(|part| part.finish().unwrap());
            left.merge(&right).unwrap();
            prop_assert_eq!(left, whole.finish().unwrap());
        }
    }
}
