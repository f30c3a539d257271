//! Any bytes as the JSON bodies people send: refused or understood, and what is understood survives a round trip.
#![no_main]

use eigenveil_shared::{
    api::{CreateStudyRequest, EstimateRequest, StudyDocument},
    estimate::Estimate,
};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

fn round_trip<T: Serialize + DeserializeOwned>(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<T>(data) {
        let first = serde_json::to_string(&value).expect("what was read can be written");
        let again: T = serde_json::from_str(&first).expect("and read again");
        assert_eq!(serde_json::to_string(&again).expect("as before"), first);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which % 4 {
        0 => round_trip::<CreateStudyRequest>(data),
        1 => round_trip::<EstimateRequest>(data),
        2 => round_trip::<StudyDocument>(data),
        _ => round_trip::<Estimate>(data),
    }
});
