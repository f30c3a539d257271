//! Reports: the only thing a device sends.

use std::fmt;

use crate::{
    fingerprint::{Fingerprint, to_hex},
    mechanism::Payload,
};

/// Identifier of a report: 16 bytes in UUIDv7 layout, fixed once and durable before the first send.
///
/// Time-ordered identifiers keep the server's uniqueness index cheap. The time is coarsened: the low
/// 16 bits of the milliseconds are random, so that the server sees when a report was prepared to
/// about a minute (65.5 s) and no better.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReportId(pub [u8; 16]);

impl ReportId {
    /// An identifier for a report prepared at `unix_ms` milliseconds since 1970, from 16 random bytes.
    ///
    /// ```
    /// use eigenveil_shared::report::ReportId;
    /// let id = ReportId::from_parts(0x0192_1234_5678, [0xff; 16]);
    /// assert_eq!(id.to_string(), "01921234ffff7fffbfffffffffffffff");
    /// ```
    pub fn from_parts(unix_ms: u64, random: [u8; 16]) -> Self {
        let mut bytes = random;
        bytes[..4].copy_from_slice(&unix_ms.to_be_bytes()[2..6]);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        Self(bytes)
    }

    /// Whether the version and variant bits are those of UUIDv7.
    pub fn is_well_formed(self) -> bool {
        self.0[6] >> 4 == 7 && self.0[8] >> 6 == 2
    }
}

impl fmt::Display for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for ReportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReportId({self})")
    }
}

/// One participant's perturbed report.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    /// Its identifier; the same on every retry.
    pub id: ReportId,
    /// The study parameters it was made for.
    pub fingerprint: Fingerprint,
    /// The mechanism's payload.
    pub payload: Vec<u8>,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Report({}, {} payload bytes)",
            self.id,
            self.payload.len()
        )
    }
}

/// A report that fits its study: right fingerprint, well-formed identifier, checked payload. Made by [`crate::codec`]
/// only; borrows the bytes it came in.
#[derive(Clone, Copy, PartialEq)]
pub struct ValidatedReport<'a> {
    id: ReportId,
    payload: Payload<&'a [u8]>,
}

impl<'a> ValidatedReport<'a> {
    pub(crate) fn new(id: ReportId, payload: Payload<&'a [u8]>) -> Self {
        Self { id, payload }
    }

    /// Its identifier.
    pub fn id(&self) -> ReportId {
        self.id
    }

    /// Its payload.
    pub fn payload(&self) -> Payload<&'a [u8]> {
        self.payload
    }
}

impl fmt::Debug for ValidatedReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ValidatedReport({}, {} payload bytes)",
            self.id,
            self.payload.as_bytes().len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_order_by_coarse_time() {
        let earlier = ReportId::from_parts(1 << 20, [0xff; 16]);
        let later = ReportId::from_parts((1 << 20) + (1 << 16), [0; 16]);
        assert!(earlier < later);
        assert!(earlier.is_well_formed() && later.is_well_formed());
        assert!(!ReportId([0; 16]).is_well_formed());
    }
}
