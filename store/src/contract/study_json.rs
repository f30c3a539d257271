//! The JSON of a study, serialised once: a document with 50,000 features has megabytes, and visitors ask for it at
//! will. Only its state and its count change; they are put in between the parts that do not.

use bytes::Bytes;
use eigenveil_shared::api::StudyState;
use serde::Serialize;

/// A document or summary without its state and count.
#[derive(Debug)]
pub(crate) struct StudyJson([Bytes; 3]);

impl StudyJson {
    /// From a draft without reports, whose fields are in this order.
    pub(crate) fn new(draft: &impl Serialize) -> Self {
        let text = serde_json::to_string(draft).unwrap_or_default();
        // Within a string these quotes would be escaped.
        let (before, rest) = text.split_once(r#""state":"draft""#).unwrap_or_default();
        let (between, after) = rest
            .split_once(r#""reports_accepted":0"#)
            .unwrap_or_default();
        Self([before, between, after].map(|part| Bytes::copy_from_slice(part.as_bytes())))
    }

    /// The whole, in parts that are shared and not copied.
    pub(crate) fn with(&self, state: StudyState, reports_accepted: u64) -> [Bytes; 5] {
        let [before, between, after] = self.0.clone();
        let state = format!(r#""state":"{}""#, state.as_str());
        let count = format!(r#""reports_accepted":{reports_accepted}"#);
        [before, state.into(), between, count.into(), after]
    }
}
