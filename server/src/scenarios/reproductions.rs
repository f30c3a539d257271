//! Scenarios with names: those that once failed, and hand-written ones.

use eigenveil_shared::api::StudyState;
use eigenveil_store::Fault;

use super::operations::{Fate, Network, Operation};

/// Name, seed of the server's settings and the reports, operations.
pub(super) fn all() -> Vec<(&'static str, u64, Vec<Operation>)> {
    let send = |study, report, network| Operation::Upload {
        study,
        report,
        window: 0,
        fate: Fate::Stored,
        network,
    };
    let upload_to = |study, network| send(study, 3, network);
    let upload = |network| upload_to(0, network);
    let burst = |reports: &[usize], close_at, fault| Operation::Burst {
        study: 0,
        reports: reports.to_vec(),
        close_at,
        fault,
    };
    let create = |parameters_of| Operation::Create {
        parameters_of,
        draft: false,
        fault: None,
    };
    let import = |into, fault| Operation::Import {
        export: 0,
        into,
        fault,
    };
    let set_state = |study, wanted, fault| Operation::SetState {
        study,
        wanted,
        fault,
    };
    let close = |fault| set_state(0, StudyState::Closed, fault);
    vec![
        (
            "a response lost before a close is repeated afterwards",
            1,
            vec![
                upload(Network::ResponseLost),
                close(None),
                Operation::Restart,
                upload(Network::Answered),
            ],
        ),
        (
            "a commit whose acknowledgement died with the server",
            2,
            vec![
                burst(&[1, 2, 1], None, Some(Fault::DiesAfterCommit)),
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
                burst(&[4, 5, 6], None, Some(Fault::CommitFails)),
                burst(&[4, 7], Some(1), None),
            ],
        ),
        (
            "an import that died after its commit is not repeated",
            5,
            vec![
                upload(Network::Answered),
                Operation::Export { study: 0 },
                create(0),
                import(Some(2), Some(Fault::DiesAfterCommit)),
                import(Some(2), None),
                upload_to(2, Network::Answered),
            ],
        ),
        (
            "a deleted study comes back from its file and knows its reports",
            6,
            vec![
                upload(Network::ResponseLost),
                create(1),
                Operation::Export { study: 0 },
                close(None),
                Operation::Delete {
                    study: 0,
                    fault: Some(Fault::DiesAfterCommit),
                },
                import(None, Some(Fault::CommitFails)),
                import(None, None),
                upload_to(2, Network::Answered),
            ],
        ),
        (
            "what a draft, an open and a closed study count",
            7,
            vec![
                Operation::Create {
                    parameters_of: 0,
                    draft: true,
                    fault: None,
                },
                upload_to(2, Network::Answered),
                set_state(2, StudyState::Open, None),
                upload_to(2, Network::Answered),
                set_state(2, StudyState::Closed, None),
                upload_to(2, Network::Answered),
                send(2, 4, Network::Answered),
                Operation::Batch {
                    study: 2,
                    reports: vec![5, 3, 4],
                    malformed: Some(2),
                    network: Network::Answered,
                },
                set_state(2, StudyState::Open, None),
            ],
        ),
        (
            "of an export all is added once, or nothing where one report is there",
            8,
            vec![
                upload(Network::Answered),
                Operation::Export { study: 0 },
                create(0),
                import(Some(2), None),
                import(Some(2), None),
                send(0, 4, Network::Answered),
                Operation::Export { study: 0 },
                Operation::Import {
                    export: 1,
                    into: Some(2),
                    fault: None,
                },
                send(2, 4, Network::Answered),
                upload_to(2, Network::Answered),
            ],
        ),
    ]
}
