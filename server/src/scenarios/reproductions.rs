//! Scenarios that once failed, or that somebody thought of, by name.

use super::operations::{Network, Operation, Wanted};
use crate::faults::Fault;

/// Name, seed of the server's settings and the reports, operations.
pub(super) fn all() -> Vec<(&'static str, u64, Vec<Operation>)> {
    let upload = |network| Operation::Upload {
        study: 0,
        report: 3,
        network,
    };
    let close = |fault| Operation::SetState {
        study: 0,
        wanted: Wanted::Closed,
        fault,
    };
    vec![
        (
            "an answer lost before a close is told afterwards",
            1,
            vec![
                upload(Network::AnswerLost),
                close(None),
                Operation::Restart,
                upload(Network::Answered),
            ],
        ),
        (
            "a commit whose acknowledgement died with the server",
            2,
            vec![
                Operation::Burst {
                    study: 0,
                    reports: vec![1, 2, 1],
                    close_at: None,
                    fault: Some(Fault::DiesAfterCommit),
                },
                Operation::Batch {
                    study: 0,
                    reports: vec![2, 1, 3],
                    malformed: None,
                    network: Network::Answered,
                },
            ],
        ),
        (
            "a close that died after its commit",
            3,
            vec![
                close(Some(Fault::DiesAfterCommit)),
                upload(Network::Answered),
            ],
        ),
        (
            "a failed commit leaves the cached sums alone",
            4,
            vec![
                upload(Network::Answered),
                Operation::Burst {
                    study: 0,
                    reports: vec![4, 5, 6],
                    close_at: None,
                    fault: Some(Fault::CommitFails),
                },
                Operation::Burst {
                    study: 0,
                    reports: vec![4, 7],
                    close_at: Some(1),
                    fault: None,
                },
            ],
        ),
        (
            "an import that died after its commit is not repeated",
            5,
            vec![
                upload(Network::Answered),
                Operation::Export { study: 0 },
                Operation::Create {
                    like: 0,
                    draft: false,
                    fault: None,
                },
                Operation::Import {
                    export: 0,
                    into: Some(2),
                    fault: Some(Fault::DiesAfterCommit),
                },
                Operation::Import {
                    export: 0,
                    into: Some(2),
                    fault: None,
                },
                Operation::Upload {
                    study: 2,
                    report: 3,
                    network: Network::Answered,
                },
            ],
        ),
        (
            "a deleted study comes back from its file and knows its reports",
            6,
            vec![
                upload(Network::AnswerLost),
                Operation::Create {
                    like: 1,
                    draft: false,
                    fault: None,
                },
                Operation::Export { study: 0 },
                close(None),
                Operation::Delete {
                    study: 0,
                    fault: Some(Fault::DiesAfterCommit),
                },
                Operation::Import {
                    export: 0,
                    into: None,
                    fault: Some(Fault::CommitFails),
                },
                Operation::Import {
                    export: 0,
                    into: None,
                    fault: None,
                },
                Operation::Upload {
                    study: 2,
                    report: 3,
                    network: Network::Answered,
                },
            ],
        ),
    ]
}
