//! The payload of a report: its bytes, checked.

use std::fmt;

use super::{
    double_cap::{SEED_LEN, Seed},
    randomised_response::Answer,
};
use crate::{
    error::{Error, ErrorCode, Result, error},
    packed::packed_len,
};

/// Largest dimension of a mechanism whose payload is a whole matrix: 33.6 MB per report.
pub const MAX_DENSE_DIMENSION: usize = 4_096;

pub(super) fn check_dense_dimension(dimension: usize) -> Result<()> {
    if (2..=MAX_DENSE_DIMENSION).contains(&dimension) {
        return Ok(());
    }
    Err(error!(
        InvalidDimension,
        "the dimension of a report is {dimension}; this mechanism takes 2 to {MAX_DENSE_DIMENSION} (double-cap takes more)"
    ))
}

/// The kind of the bytes of a payload about a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// Little-endian f32, the packed upper triangle; each must be finite.
    Floats,
    /// Little-endian i32, the packed upper triangle on a grid; none may exceed the bound in magnitude.
    Integers {
        /// Largest magnitude a device sends.
        bound: i32,
    },
    /// Sixteen bytes; every value is valid.
    Seed,
}

impl PayloadKind {
    /// Length in bytes of the payload of a report of this dimension.
    pub const fn len(self, dimension: usize) -> usize {
        match self {
            PayloadKind::Seed => SEED_LEN,
            PayloadKind::Floats | PayloadKind::Integers { .. } => 4 * packed_len(dimension),
        }
    }

    /// Refuses bytes whose length or values no device sends. Only
    /// [`ReportFormat::payload`](crate::codec::ReportFormat::payload), which also checks their norm, hands out the
    /// result.
    ///
    /// # Errors
    /// `wrong-payload-length`, `payload-not-finite`, `payload-out-of-range`.
    pub(crate) fn read<B: AsRef<[u8]>>(self, bytes: B, len: usize) -> Result<Payload<B>> {
        check_len(bytes.as_ref().len(), len)?;
        let (numbers, rest) = bytes.as_ref().as_chunks::<4>();
        match self {
            PayloadKind::Seed => {
                check_len(len, SEED_LEN)?;
                let mut seed = [0; SEED_LEN];
                seed.copy_from_slice(bytes.as_ref());
                Ok(Payload::Seed(seed))
            }
            PayloadKind::Floats => {
                check_len(rest.len(), 0)?;
                check_finite(numbers)?;
                Ok(Payload::Floats(Floats(bytes)))
            }
            PayloadKind::Integers { bound } => {
                check_len(rest.len(), 0)?;
                check_within(numbers, bound)?;
                Ok(Payload::Integers(Integers(bytes)))
            }
        }
    }
}

pub(crate) fn check_len(len: usize, wanted: usize) -> Result<()> {
    if len == wanted {
        return Ok(());
    }
    Err(error!(
        WrongPayloadLength,
        "the payload has {len} bytes but this study's have {wanted}; fetch the study again"
    ))
}

/// Refuses NaN and infinite entries. The loop never ends early: without a branch it is vectorised, and reports are
/// nearly always in order.
fn check_finite(numbers: &[[u8; 4]]) -> Result<()> {
    // An f32 is NaN or infinite iff its exponent bits are all ones: one more then carries into
    // the top bit. Masks and sums of whole lanes vectorise, a conjunction of booleans does not.
    let carries = numbers.iter().fold(0, |carries, n| {
        carries | ((u32::from_le_bytes(*n) & 0x7f80_0000) + 0x0080_0000)
    });
    if carries >> 31 == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::PayloadNotFinite,
        "the payload has a NaN or infinite entry; the device must not send one",
    ))
}

/// Refuses entries beyond the bound, by one vectorised loop as in [`check_finite`]: the difference is below 2³¹ in
/// magnitude, so that its top bit is its sign.
fn check_within(numbers: &[[u8; 4]], bound: i32) -> Result<()> {
    let bound_magnitude = bound.unsigned_abs();
    let signs = numbers.iter().fold(0, |signs, n| {
        signs | bound_magnitude.wrapping_sub(i32::from_le_bytes(*n).unsigned_abs())
    });
    if signs >> 31 == 0 {
        return Ok(());
    }
    Err(error!(
        PayloadOutOfRange,
        "the payload has an entry beyond {bound} in magnitude, which no device of this study sends"
    ))
}

/// A payload that a device of its study could have sent: of the right length, of numbers in range, no longer as a vector
/// than honest ones. Made by [`ReportFormat::payload`](crate::codec::ReportFormat::payload) and by nothing else.
///
/// `B` is what holds the bytes, such as `&[u8]` or `Vec<u8>`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Payload<B> {
    /// Stands for a direction. Every seed is a report.
    Seed(Seed),
    /// The answer to a question of a preparation.
    Answer(Answer),
    /// The packed upper triangle in single precision.
    Floats(Floats<B>),
    /// The packed upper triangle in steps of a grid.
    Integers(Integers<B>),
}

impl<B: AsRef<[u8]>> Payload<B> {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Payload::Seed(seed) => seed,
            Payload::Answer(answer) => answer.as_bytes(),
            Payload::Floats(Floats(bytes)) => bytes.as_ref(),
            Payload::Integers(Integers(bytes)) => bytes.as_ref(),
        }
    }
}

impl<'a> Payload<&'a [u8]> {
    /// Backs the payload by other storage: a copy, or a slice of the buffer it arrived in.
    ///
    /// # Panics
    /// If `keep` gives other bytes back.
    pub fn map_bytes<B: AsRef<[u8]>>(self, keep: impl FnOnce(&'a [u8]) -> B) -> Payload<B> {
        let same = |bytes: &'a [u8]| {
            let backed = keep(bytes);
            let held = backed.as_ref();
            assert!(
                std::ptr::eq(held, bytes) || held == bytes,
                "a checked payload was exchanged for another one"
            );
            backed
        };
        match self {
            Payload::Seed(seed) => Payload::Seed(seed),
            Payload::Answer(answer) => Payload::Answer(answer),
            Payload::Floats(Floats(bytes)) => Payload::Floats(Floats(same(bytes))),
            Payload::Integers(Integers(bytes)) => Payload::Integers(Integers(same(bytes))),
        }
    }
}

/// The length alone: nobody needs a log of reports.
impl<B: AsRef<[u8]>> fmt::Debug for Payload<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.as_bytes().len())
    }
}

/// Checked f32, little-endian.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Floats<B>(B);

/// Checked i32, little-endian.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Integers<B>(B);

/// Checked numbers of either kind: the packed upper triangle, row by row.
pub trait PackedValues: Sealed {
    /// The numbers as they lie in the payload.
    fn bytes(&self) -> &[[u8; 4]];

    /// One of them.
    fn value(bytes: [u8; 4]) -> f64;

    /// All of them.
    fn values(&self) -> impl ExactSizeIterator<Item = f64> {
        self.bytes().iter().map(|bytes| Self::value(*bytes))
    }
}

/// Sealed: only this module can create validated numbers.
pub trait Sealed {}

impl<B> Sealed for Floats<B> {}
impl<B> Sealed for Integers<B> {}

impl<B: AsRef<[u8]>> PackedValues for Floats<B> {
    fn bytes(&self) -> &[[u8; 4]] {
        self.0.as_ref().as_chunks().0
    }

    #[inline]
    fn value(bytes: [u8; 4]) -> f64 {
        f64::from(f32::from_le_bytes(bytes))
    }
}

impl<B: AsRef<[u8]>> PackedValues for Integers<B> {
    fn bytes(&self) -> &[[u8; 4]] {
        self.0.as_ref().as_chunks().0
    }

    #[inline]
    fn value(bytes: [u8; 4]) -> f64 {
        f64::from(i32::from_le_bytes(bytes))
    }
}
