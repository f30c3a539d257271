//! Sums of decoded reports: the only thing an estimate needs of them.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    packed::{PackedSymmetric, packed_len},
};

/// The sum of `count` decoded reports, as the packed upper triangle of a `p × p` matrix in f64.
///
/// ```
/// use eigenveil_estimation::accumulate::Accumulator;
/// let mut sums = Accumulator::new(2)?;
/// let payload: Vec<u8> = [1.0_f32, 0.5, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// sums.add_payload(&payload)?;
/// sums.add_payload(&payload)?;
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
            return Err(Error::new(
                ErrorCode::InvalidDimension,
                "a sum needs a dimension p ≥ 1; it is 0",
            ));
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

    /// Adds one Gaussian report: `p(p+1)/2` little-endian f32, the upper triangle row by row.
    ///
    /// # Errors
    /// `WrongPayloadLength`, or `PayloadNotFinite` for NaN or an infinity; the sum is then as before.
    pub fn add_payload(&mut self, payload: &[u8]) -> Result<()> {
        let expected = 4 * packed_len(self.dimension());
        let (numbers, rest) = payload.as_chunks::<4>();
        if payload.len() != expected || !rest.is_empty() {
            return Err(Error::new(
                ErrorCode::WrongPayloadLength,
                format!(
                    "the payload has {} bytes; p = {} needs {expected}",
                    payload.len(),
                    self.dimension()
                ),
            ));
        }
        // Checked before anything is added. The largest magnitude as an integer finds every
        // non-finite number and vectorises, which an early exit would not.
        let largest = numbers
            .iter()
            .map(|number| u32::from_le_bytes(*number) & 0x7FFF_FFFF)
            .fold(0, u32::max);
        if largest >= f32::INFINITY.to_bits() {
            return Err(Error::new(
                ErrorCode::PayloadNotFinite,
                "the payload has a value that is not a finite number",
            ));
        }
        for (entry, number) in self.sum.as_mut_slice().iter_mut().zip(numbers) {
            *entry += f64::from(f32::from_le_bytes(*number));
        }
        self.count += 1;
        Ok(())
    }

    /// Adds `count` reports whose decoded sum is already known, as a simulation has it.
    ///
    /// # Errors
    /// `WrongDimension` when the dimensions differ, `EstimateFailed` for an entry that is not finite.
    pub fn add_sum(&mut self, sum: PackedSymmetric, count: u64) -> Result<()> {
        self.merge(&Self::from_parts(sum, count)?)
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
        sums.add_payload(&payload(&[1.0, 2.0, 3.0])).unwrap();
        let before = sums.clone();
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in 0..3 {
                let mut numbers = [0.5; 3];
                numbers[place] = bad;
                let error = sums.add_payload(&payload(&numbers)).unwrap_err();
                assert_eq!(error.code(), ErrorCode::PayloadNotFinite);
            }
        }
        for length in [0, 4, 11, 13, 16] {
            let error = sums.add_payload(&vec![0; length]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WrongPayloadLength);
        }
        assert_eq!(sums, before);
        sums.add_payload(&payload(&[f32::MAX, f32::MIN, -0.0]))
            .unwrap();
        assert_eq!(sums.count(), 2);
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
                whole.add_payload(&payload(&numbers)).unwrap();
                parts[usize::from(i >= split)].add_payload(&payload(&numbers)).unwrap();
            }
            let [mut left, right] = parts;
            left.merge(&right).unwrap();
            prop_assert_eq!(left, whole);
        }
    }
}
