//! The payload of a site's report, and what it says.

use std::fmt;

use crate::packed::PackedSymmetric;

/// A payload that a site of its study could have sent: of the right length, of numbers in range. Made by
/// [`SiteReportFormat::payload`](crate::codec::SiteReportFormat::payload) and by nothing else.
///
/// `B` is what holds the bytes, such as `&[u8]` or `Vec<u8>`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TablePayload<B>(B);

impl<B: AsRef<[u8]>> TablePayload<B> {
    /// A payload whose length and numbers were checked.
    pub(super) fn new_unchecked(bytes: B) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// The numbers: the packed upper triangle row by row, and the count.
    pub(super) fn numbers(&self) -> impl ExactSizeIterator<Item = i64> {
        let (numbers, _) = self.as_bytes().as_chunks();
        numbers.iter().map(|bytes| i64::from_le_bytes(*bytes))
    }
}

/// The length alone: nobody needs a log of reports.
impl<B: AsRef<[u8]>> fmt::Debug for TablePayload<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TablePayload({} bytes)", self.as_bytes().len())
    }
}

/// A site's table as far as its report shows it, noise included.
#[derive(Clone, Debug, PartialEq)]
pub struct NoisyTable {
    /// Σxxᵀ over the usable rows, each divided by the number of its person's rows where persons are counted.
    pub moment: PackedSymmetric,
    /// Their number; where persons are counted, the sum of the shares of each that could be used.
    pub rows: f64,
}
