//! The operator's operations: states, studies, exports, estimates.

use eigenveil_shared::api::{
    EstimateJob, EstimateState, ImportOutcome, ImportResponse, REPORT_MEDIA_TYPE,
    STUDY_EXPORT_MEDIA_TYPE, StudyDocument, StudyState,
};
use eigenveil_store::Fault;
use serde_json::json;

use super::{
    model::{Exported, RequestedEstimate, StudyModel},
    world::{World, report_request, send},
};

impl World {
    pub(super) async fn set_state(&mut self, at: usize, target: StudyState, fault: Option<Fault>) {
        let before = self.studies[at].state;
        let (verb, allowed) = match target {
            StudyState::Open => ("open", before != StudyState::Closed),
            _ => ("close", before != StudyState::Draft),
        };
        let path = format!("/v1/studies/{}/{verb}", self.studies[at].id);
        self.faults.set_next(fault);
        let (status, _) = self.operator("POST", &path, None).await;
        self.restart_if_killed(fault.filter(|_| allowed));
        let after = self.document(&self.studies[at].id).await.state;
        let as_expected = match (status, fault) {
            (200, None) => allowed && after == target,
            (409, _) => !allowed && after == before,
            (503 | 507, Some(Fault::CommitFails | Fault::DiesBeforeCommit)) => after == before,
            (503, Some(Fault::DiesAfterCommit)) => after == target,
            _ => false,
        };
        self.studies[at].state = after;
        assert!(
            as_expected,
            "changing a study from {before:?} to {target:?} gets status {status}, and the study is {after:?}"
        );
    }

    pub(super) async fn create(&mut self, parameters: usize, draft: bool, fault: Option<Fault>) {
        let mut design = self.parameter_sets[parameters].design.clone();
        design["draft"] = json!(draft);
        self.faults.set_next(fault);
        let (status, body) = self.operator("POST", "/v1/studies", Some(&design)).await;
        self.restart_if_killed(fault);
        let listed = self.operator("GET", "/v1/studies", None).await;
        let listed: eigenveil_shared::api::StudyList = serde_json::from_slice(&listed.1).unwrap();
        let new: Vec<_> = listed
            .studies
            .iter()
            .filter(|study| self.studies.iter().all(|known| known.id != study.id))
            .collect();
        let as_expected = match (status, fault) {
            (201, None) => {
                let created: StudyDocument = serde_json::from_slice(&body).unwrap();
                new.len() == 1 && new[0].id == created.id
            }
            (503 | 507, Some(Fault::CommitFails | Fault::DiesBeforeCommit)) => new.is_empty(),
            (503, Some(Fault::DiesAfterCommit)) => new.len() == 1,
            _ => false,
        };
        assert!(
            as_expected,
            "creating a study gets {status} and {} exist",
            new.len()
        );
        for document in new {
            self.studies
                .push(StudyModel::new(&document.id, document.state, parameters));
        }
    }

    pub(super) async fn export(&mut self, at: usize) {
        let study = &self.studies[at];
        let path = format!("/v1/studies/{}/export", study.id);
        let (status, bytes) = self.operator("GET", &path, None).await;
        assert!(status == 200, "an export gets {status}");
        let counted = study.reports.iter().enumerate();
        let export = Exported {
            study: study.id.clone(),
            parameters: study.parameters,
            reports: counted
                .filter(|(_, report)| report.counted)
                .map(|(number, _)| number)
                .collect(),
            bytes,
        };
        // A study that has not changed gives the same file.
        if !self.exports.iter().any(|other| other.bytes == export.bytes) {
            self.exports.push(export);
        }
    }

    pub(super) async fn import(
        &mut self,
        number: usize,
        into: Option<usize>,
        fault: Option<Fault>,
    ) {
        let export = self.exports[number].clone();
        let path = match into {
            Some(at) => format!("/v1/studies/{}/import", self.studies[at].id),
            None => "/v1/imports".to_owned(),
        };
        let target = into.or_else(|| {
            self.studies
                .iter()
                .position(|study| study.id == export.study)
        });
        let study = target.map(|at| &self.studies[at]);
        let expected = match study {
            None => 201,
            Some(study) if study.parameters != export.parameters => 422,
            Some(study) if study.imported.contains(&number) => 200,
            Some(study) if export.reports.iter().any(|&r| study.reports[r].counted) => 409,
            Some(_) => 200,
        };
        let again = study.is_some_and(|study| study.imported.contains(&number));
        let bytes = export.bytes.clone();
        let request = self.operator_request("POST", &path, STUDY_EXPORT_MEDIA_TYPE, bytes);
        self.faults.set_next(fault);
        let (status, body) = send(self.routes(), request).await;
        // Requests with other statuses are rejected before a commit, so the fault does not occur.
        let committed = expected < 300;
        self.restart_if_killed(fault.filter(|_| committed));
        let added = match (status, fault) {
            (200 | 201, None) => {
                let receipt: ImportResponse = serde_json::from_slice(&body).unwrap();
                let outcome = match (status, again) {
                    (201, _) => ImportOutcome::Created,
                    (_, true) => ImportOutcome::AlreadyImported,
                    (_, false) => ImportOutcome::Merged,
                };
                let reports = if again {
                    0
                } else {
                    export.reports.len() as u64
                };
                assert!(
                    (receipt.outcome, receipt.reports) == (outcome, reports),
                    "an import gets {receipt:?}"
                );
                status == expected
            }
            (503 | 507, Some(fault)) if committed => fault == Fault::DiesAfterCommit,
            (409 | 422, _) if status == expected => false,
            _ => panic!("an import gets {status} and not {expected}"),
        };
        assert!(
            fault.is_some() || status == expected,
            "an import gets {status} and not {expected}"
        );
        if !added {
            return;
        }
        let at = match target {
            Some(at) => at,
            None => {
                let document = self.document(&export.study).await;
                self.studies.push(StudyModel::new(
                    &document.id,
                    document.state,
                    export.parameters,
                ));
                self.studies.len() - 1
            }
        };
        let study = &mut self.studies[at];
        study.imported.insert(number);
        for &report in &export.reports {
            // The reports count from now on, whatever the study's state.
            study.reports[report].may_count = true;
            study.reports[report].counted = true;
        }
    }

    pub(super) async fn delete(&mut self, at: usize, fault: Option<Fault>) {
        if self.studies.len() < 3 {
            return;
        }
        let path = format!("/v1/studies/{}", self.studies[at].id);
        let open = self.studies[at].state == StudyState::Open;
        self.faults.set_next(fault);
        let (status, _) = self.operator("DELETE", &path, None).await;
        self.restart_if_killed(fault.filter(|_| !open));
        let exists = self.operator("GET", &path, None).await.0 == 200;
        let as_expected = match (status, fault) {
            (204, None) => !open && !exists,
            (409, _) => open && exists,
            (503 | 507, Some(Fault::CommitFails | Fault::DiesBeforeCommit)) => exists,
            (503, Some(Fault::DiesAfterCommit)) => !exists,
            _ => false,
        };
        assert!(
            as_expected,
            "deleting a study gets {status}; it exists: {exists}"
        );
        if !exists {
            let study = self.studies.remove(at);
            let body = self.parameter_sets[study.parameters].single(0);
            let request = report_request(&study.id, REPORT_MEDIA_TYPE, body);
            let (status, _) = send(self.routes(), request).await;
            assert!(status == 404, "a report of a deleted study gets {status}");
        }
    }

    pub(super) async fn estimate(&mut self, at: usize) {
        let path = format!("/v1/studies/{}/estimates", self.studies[at].id);
        let (status, body) = self.operator("POST", &path, Some(&json!({}))).await;
        assert!(status == 202, "asking for an estimate gets {status}");
        let document: EstimateJob = serde_json::from_slice(&body).unwrap();
        let study = &mut self.studies[at];
        study.requested.push(RequestedEstimate {
            number: document.number,
            at_least: study.count(),
            cancelled: false,
        });
    }

    /// Checks the estimates of a study: each finished one was computed from a snapshot.
    pub(super) async fn check_estimates(&mut self, at: usize, cancel: bool, wait: bool) {
        let path = format!("/v1/studies/{}/estimates", self.studies[at].id);
        if cancel && let Some(last) = self.studies[at].requested.len().checked_sub(1) {
            let number = self.studies[at].requested[last].number;
            let (status, _) = self
                .operator("DELETE", &format!("{path}/{number}"), None)
                .await;
            assert!(
                matches!(status, 200 | 409),
                "cancelling an estimate gets {status}"
            );
            self.studies[at].requested[last].cancelled |= status == 200;
        }
        for requested in self.studies[at].requested.clone() {
            let number = requested.number;
            let document = loop {
                let (status, body) = self
                    .operator("GET", &format!("{path}/{number}"), None)
                    .await;
                assert!(status == 200, "estimate {number} gets {status}");
                let document: EstimateJob = serde_json::from_slice(&body).unwrap();
                if !wait || document.state != EstimateState::Running {
                    break document;
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            };
            let study = &self.studies[at];
            match (document.state, &document.estimate) {
                (EstimateState::Running, None) => {}
                (EstimateState::Cancelled, None) => {
                    assert!(requested.cancelled, "nobody cancelled estimate {number}");
                }
                // An empty study has no estimate. On a loaded machine it may run through three of the server's deaths, or
                // four if one comes while that is written.
                (EstimateState::Failed, None) => assert!(
                    requested.at_least == 0
                        || document.problem.as_ref().is_some_and(|problem| {
                            let deaths = problem.detail.strip_prefix("the server stopped ");
                            deaths.is_some_and(|deaths| {
                                deaths.starts_with(['3', '4']) && deaths[1..].starts_with(" times")
                            })
                        }),
                    "estimate {number} failed: {:?}",
                    document.problem
                ),
                (EstimateState::Done, Some(estimate)) => {
                    let n = estimate.n;
                    assert!(
                        !requested.cancelled && (requested.at_least..=study.count()).contains(&n),
                        "estimate {number} is of {n} reports: {requested:?}, now {}",
                        study.count()
                    );
                    let squares: f64 = estimate.eigenvalues.iter().map(|x| x * x).sum();
                    // Between the commits of a burst no spectrum was recorded.
                    if let Some(&expected) = study.spectra.get(&n) {
                        // Seeds of a closed study are added up in another order, in single precision.
                        let rounding = match self.parameter_sets[study.parameters].holds_seeds() {
                            true => 1e-5,
                            false => 1e-9,
                        };
                        assert!(
                            (squares - expected).abs() <= rounding * expected.max(1.0),
                            "estimate {number} of {n} reports is not of their sums: {squares} against {expected}"
                        );
                    }
                }
                (state, _) => {
                    panic!("estimate {number} is {state:?} without its result");
                }
            }
        }
    }
}
