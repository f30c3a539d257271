//! The invariants, checked on the disk.

use std::collections::HashSet;

use eigenveil_estimation::{Cancel, accumulate::Accumulator, moment::NoisyMoment, sums_of_seeds};
#[cfg(feature = "postgres")]
use eigenveil_store::testing::fleet;
use eigenveil_store::{BucketSums, StudyId, database_path};

use super::{
    identifiable,
    model::{P, ParameterSet, StudyModel},
    world::World,
};

fn total(buckets: &[(u32, Accumulator)]) -> Accumulator {
    let mut total = Accumulator::new(P).unwrap();
    for (_, sum) in buckets {
        total.merge(sum).unwrap();
    }
    total
}

impl World {
    pub(super) fn on_disk(&self, at: usize, stored: &BucketSums) -> Vec<u32> {
        let study = &self.studies[at];
        let parameters = &self.parameter_sets[study.parameters];
        if parameters.holds_seeds() {
            return self.seeds_on_disk(study, parameters);
        }
        let sum = total(&stored.buckets);
        let mut counted = identifiable::in_sums(sum.sum().as_slice()).unwrap();
        let others = counted.split_off(parameters.devices.len());
        assert!(
            others.iter().all(|&times| times == 0),
            "the sums hold a report that nobody has"
        );
        counted
    }

    pub(super) fn stored(&self, at: usize) -> BucketSums {
        let store = self.store();
        let id = StudyId::parse(&self.studies[at].id).unwrap();
        let study = store.study(id).unwrap();
        let stored = store.bucket_sums(&study, Cancel::NEVER).unwrap();
        if study.has_seeds() {
            // Folds are a cache.
            let seeds = store.seeds(&study, Cancel::NEVER).unwrap();
            let unfolded = sums_of_seeds(&seeds, P, u64::MAX, Cancel::NEVER).unwrap();
            let (folded, unfolded) = (total(&stored.buckets), total(&unfolded));
            let entries = folded.sum().as_slice().iter();
            let mut pairs = entries.zip(unfolded.sum().as_slice());
            assert!(
                folded.count() == unfolded.count() && pairs.all(|(a, b)| (a - b).abs() < 1e-4),
                "study {at} has other sums with folds"
            );
        }
        stored
    }

    fn seeds_on_disk(&self, study: &StudyModel, parameters: &ParameterSet) -> Vec<u32> {
        let embedded = "SELECT seeds FROM seeds JOIN studies USING (study_pk) WHERE id = ?";
        let fleet = "SELECT body FROM chunks JOIN studies USING (study) WHERE id = $1";
        let marks = parameters.devices.iter();
        let marks = marks.map(|device| device.mark.as_slice());
        identifiable::in_runs(marks, &self.blobs(embedded, fleet, study)).unwrap()
    }

    /// A column of blobs of one study, read with a separate connection.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "of the fleet")
    )]
    fn blobs(&self, embedded: &str, fleet: &str, study: &StudyModel) -> Vec<Vec<u8>> {
        let id = StudyId::parse(&study.id).unwrap();
        #[cfg(feature = "postgres")]
        if self.database.is_some() {
            return fleet::blobs(self.store(), fleet, id);
        }
        let connection = rusqlite::Connection::open_with_flags(
            database_path(&self.config.data_dir),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
        )
        .unwrap();
        let mut statement = connection.prepare(embedded).unwrap();
        let rows = statement.query_map([id.0], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub(super) async fn audit(&mut self) {
        for at in 0..self.studies.len() {
            let sums = self.stored(at);
            let counted = self.on_disk(at, &sums);
            let document = self.document(&self.studies[at].id).await;
            let study = &self.studies[at];
            let parameters = &self.parameter_sets[study.parameters];
            assert!(
                document.state == study.state,
                "study {at} is {:?} and was {:?}",
                document.state,
                study.state
            );
            for (number, (report_status, &times)) in study.reports.iter().zip(&counted).enumerate()
            {
                let report = || format!("report {number} of study {at} ({report_status:?}) is");
                assert!(times <= 1, "{} counted {times} times", report());
                assert!(
                    times == 1 || !report_status.acknowledged,
                    "{} acknowledged and lost",
                    report()
                );
                assert!(times == 1 || !report_status.counted, "{} gone", report());
                assert!(
                    times == 0 || report_status.may_count,
                    "{} counted and should not be",
                    report()
                );
            }
            let n = counted.iter().map(|&times| u64::from(times)).sum::<u64>();
            assert!(
                document.reports_accepted == n,
                "study {at} holds {n} reports and says {}",
                document.reports_accepted
            );
            // In one statement, because identifiers of closed studies are moved meanwhile.
            let embedded = "SELECT report_ids.id FROM report_ids JOIN studies USING (study_pk) WHERE studies.id = ?1
                         UNION ALL SELECT ids FROM recent_ids JOIN studies USING (study_pk) WHERE studies.id = ?1";
            let fleet =
                "SELECT i.id FROM identifiers i JOIN studies s USING (study) WHERE s.id = $1";
            let rows = self.blobs(embedded, fleet, study);
            let ids: Vec<Vec<u8>> = rows
                .iter()
                .flat_map(|row| row.chunks(16).map(<[u8]>::to_vec))
                .collect();
            let stored: HashSet<Vec<u8>> = ids.iter().cloned().collect();
            assert!(
                stored.len() == ids.len(),
                "study {at} holds an identifier twice"
            );
            let expected: HashSet<Vec<u8>> = parameters
                .devices
                .iter()
                .zip(&counted)
                .filter(|(_, times)| **times == 1)
                .filter_map(|(device, _)| Some(device.report?.0.to_vec()))
                .collect();
            assert!(
                stored == expected,
                "study {at} holds {} identifiers of {n} reports",
                stored.len()
            );
            let squares = self.spectrum(at, n, sums);
            let study = &mut self.studies[at];
            study.spectra.insert(n, squares);
            for (report_status, times) in study.reports.iter_mut().zip(counted) {
                report_status.counted = times == 1;
            }
        }
    }

    /// ‖S̃‖²_F of the current sums, which is the sum of the squared eigenvalues; also checks n.
    fn spectrum(&self, at: usize, n: u64, stored: BucketSums) -> f64 {
        assert!(
            stored.n == n,
            "the snapshot is of {} reports, not {n}",
            stored.n
        );
        if n == 0 {
            return 0.0;
        }
        let params = self.parameter_sets[self.studies[at].parameters]
            .study
            .params()
            .rows()
            .unwrap();
        let buckets = stored.buckets.into_iter().map(|(_, sums)| sums).collect();
        let moment = NoisyMoment::decode(buckets, params).unwrap();
        moment.dense().iter().map(|x| x * x).sum()
    }
}
