//! The payload of a preparation's report.

use super::Question;
use crate::{
    error::{Result, error},
    mechanism::check_len,
};

/// Bytes of an answer: column u16, comb u8, answer u8.
pub const ANSWER_LEN: usize = 4;

/// An answer that a device of its study could have sent, and where it is counted. Made by
/// [`ReportFormat::payload`](crate::codec::ReportFormat::payload) and by nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    bytes: [u8; ANSWER_LEN],
    count: usize,
}

impl Answer {
    pub(super) fn bytes_of(column: u16, comb: u8, answer: u8) -> [u8; ANSWER_LEN] {
        let [low, high] = column.to_le_bytes();
        [low, high, comb, answer]
    }

    /// # Errors
    /// `wrong-payload-length`, `payload-out-of-range`.
    pub(crate) fn read(payload: &[u8], questions: &[Question]) -> Result<Self> {
        check_len(payload.len(), ANSWER_LEN)?;
        let mut bytes = [0; ANSWER_LEN];
        bytes.copy_from_slice(payload);
        let [low, high, comb, answer] = bytes;
        let question = questions.get(usize::from(u16::from_le_bytes([low, high])));
        let question = question.filter(|asked| comb < asked.combs() && answer < asked.answers());
        match question {
            Some(asked) => Ok(Self {
                bytes,
                count: asked.count(comb, answer),
            }),
            None => Err(error!(
                PayloadOutOfRange,
                "the report names a column, a pair of rungs or an answer that this study does not have, so no device of it sent this"
            )),
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The place of its count among those of all questions.
    pub fn count(self) -> usize {
        self.count
    }
}
