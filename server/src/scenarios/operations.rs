//! The operations, and how a seed generates a list of them.

use eigenveil_shared::api::StudyState;
use eigenveil_store::Fault;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng, seq::IndexedRandom};

/// Number of devices for each parameter set, with one report each.
pub(super) const REPORTS: usize = 24;

/// The network's treatment of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Answered,
    ResponseLost,
    RequestLost,
    CutShort,
    /// Nothing arrives, and a page that asks to log in comes back.
    Portal,
}

/// The fate of a device's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stored,
    Lost,
    /// Stored, but the writer is not told.
    Unheard,
}

/// One operation. Indices of studies are taken modulo their number.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    /// A device takes part in one of its windows and sends its pending report; if none is pending, the network repeats
    /// the last one.
    Upload {
        study: usize,
        report: usize,
        window: usize,
        fate: Fate,
        network: Network,
    },
    /// A relay sends several reports in one request, perhaps one of them malformed.
    Batch {
        study: usize,
        reports: Vec<usize>,
        malformed: Option<usize>,
        network: Network,
    },
    /// Several devices send at once: one commit, unless the study is closed in between (before the report at this
    /// position) or limits split it.
    Burst {
        study: usize,
        reports: Vec<usize>,
        close_at: Option<usize>,
        fault: Option<Fault>,
    },
    SetState {
        study: usize,
        wanted: StudyState,
        fault: Option<Fault>,
    },
    /// The operator creates another study with the parameters of this one.
    Create {
        parameters_of: usize,
        draft: bool,
        fault: Option<Fault>,
    },
    Estimate {
        study: usize,
    },
    /// The operator checks all requested estimates, and may cancel the last one.
    CheckEstimates {
        study: usize,
        cancel: bool,
    },
    Export {
        study: usize,
    },
    /// The operator imports an export, into this study or the exported one.
    Import {
        export: usize,
        into: Option<usize>,
        fault: Option<Fault>,
    },
    Delete {
        study: usize,
        fault: Option<Fault>,
    },
    Clock {
        now_ms: u64,
    },
    Restart,
    Crash,
}

impl Operation {
    pub(super) fn forget_fault(&mut self) {
        if let Self::Burst { fault, .. }
        | Self::SetState { fault, .. }
        | Self::Create { fault, .. }
        | Self::Import { fault, .. }
        | Self::Delete { fault, .. } = self
        {
            *fault = None;
        }
    }
}

pub(super) fn generate(seed: u64) -> Vec<Operation> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let length = rng.random_range(12..40);
    (0..length).map(|_| draw(&mut rng)).collect()
}

fn draw(rng: &mut ChaCha8Rng) -> Operation {
    let study = rng.random_range(0..4);
    match rng.random_range(0..100) {
        0..30 => Operation::Upload {
            study,
            report: rng.random_range(0..REPORTS),
            window: rng.random_range(0..2),
            fate: fate(rng),
            network: network(rng),
        },
        30..42 => {
            let reports = reports(rng);
            let malformed = rng
                .random_bool(0.3)
                .then(|| rng.random_range(0..reports.len()));
            Operation::Batch {
                study,
                reports,
                malformed,
                network: network(rng),
            }
        }
        42..60 => {
            let reports = reports(rng);
            let close_at = rng
                .random_bool(0.1)
                .then(|| rng.random_range(0..=reports.len()));
            Operation::Burst {
                study,
                reports,
                close_at,
                fault: fault(rng),
            }
        }
        60..65 => Operation::SetState {
            study,
            wanted: if rng.random_bool(0.6) {
                StudyState::Open
            } else {
                StudyState::Closed
            },
            fault: fault(rng),
        },
        65..69 => Operation::Create {
            parameters_of: study,
            draft: rng.random_bool(0.5),
            fault: fault(rng),
        },
        69..74 => Operation::Estimate { study },
        74..79 => Operation::CheckEstimates {
            study,
            cancel: rng.random_bool(0.2),
        },
        79..83 => Operation::Export { study },
        83..88 => Operation::Import {
            export: rng.random_range(0..4),
            into: rng.random_bool(0.5).then(|| rng.random_range(0..4)),
            fault: fault(rng),
        },
        88..90 => Operation::Delete {
            study,
            fault: fault(rng),
        },
        90..92 => Operation::Clock {
            now_ms: *[
                0,
                1,
                1_700_000_000_000,
                1_600_000_000_000,
                i64::MAX as u64,
                u64::MAX,
            ]
            .choose(rng)
            .unwrap(),
        },
        92..96 => Operation::Restart,
        _ => Operation::Crash,
    }
}

fn network(rng: &mut ChaCha8Rng) -> Network {
    match rng.random_range(0..12) {
        0..6 => Network::Answered,
        6..8 => Network::ResponseLost,
        8 => Network::RequestLost,
        9 => Network::CutShort,
        _ => Network::Portal,
    }
}

fn fate(rng: &mut ChaCha8Rng) -> Fate {
    match rng.random_range(0..4) {
        0 => Fate::Lost,
        1 => Fate::Unheard,
        _ => Fate::Stored,
    }
}

fn fault(rng: &mut ChaCha8Rng) -> Option<Fault> {
    match rng.random_range(0..10) {
        0 => Some(Fault::CommitFails),
        1 => Some(Fault::DiesBeforeCommit),
        2 => Some(Fault::DiesAfterCommit),
        _ => None,
    }
}

/// One to eight reports, sometimes the same one twice.
fn reports(rng: &mut ChaCha8Rng) -> Vec<usize> {
    let count = rng.random_range(1..=8);
    (0..count).map(|_| rng.random_range(0..REPORTS)).collect()
}
