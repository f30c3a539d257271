//! Upload of a site's table: its admission, with what the server says of the site's token, its report, and the sending.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::{
    error::Result,
    http::{HttpSettings, SendSummary, StudyClient, send_site},
    site_study::SiteStudy,
    sqlite::{AdmittedTable, RefusedRow, RowLedger, SiteTable, SiteUploadRequest, TableCounts},
    upload::{RowCharges, UploadProgress},
};

/// The outcome of the upload of a site's table.
#[derive(Debug, Serialize)]
pub struct SiteUploadAnswer {
    /// The study.
    pub study: String,
    /// The site.
    pub site: String,
    /// Counts of the table, if a report was made. **Only for the site**, so that no document contains them.
    #[serde(skip)]
    pub counts: TableCounts,
    /// Counts of this upload; `refused` and `pending` count all reports of the site to the study.
    #[serde(flatten)]
    pub sent: SendSummary,
    /// Reports of the site to the study that the server has.
    pub acknowledged: u64,
    /// Reports of the site to the study that were given up before.
    pub given_up: u64,
    /// The ledger's charges.
    pub charged: RowCharges,
    /// The reports that were refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedRow>,
}

impl RowLedger {
    /// Checks the whole upload of a site's table, and stores nothing. If a token is to be stored, for a new report or
    /// for one that is still to be sent, the server is asked for whom and for how many rows it is, which spends
    /// nothing.
    ///
    /// # Errors
    /// Those of [`admit_site`](Self::admit_site) and [`AdmittedTable::check_token`]; `participant-token-unknown`;
    /// network failures.
    pub async fn admit_site_table<'a>(
        &self,
        study: &'a SiteStudy,
        table: &'a dyn SiteTable,
        request: &'a SiteUploadRequest,
        http: &HttpSettings,
    ) -> Result<AdmittedTable<'a>> {
        let admitted = self.admit_site(study, table, request)?;
        if let Some(token) = admitted.token() {
            let client = StudyClient::with_settings(study.server().as_str(), http)?;
            admitted.check_token(&client.look_up_token(study, token).await?)?;
        }
        Ok(admitted)
    }
}

/// Makes the report of an admitted table that was [summed up](AdmittedTable::sum), if there is to be one, and sends what
/// is pending. The charge of every row or person and the report are on the disk before anything is sent, and a retry
/// sends the same bytes. `progress` may break before the sending: the report then stays pending.
///
/// # Errors
/// As [`RowLedger::take_part_as_site`] and [`send_site`].
pub async fn upload_site_table(
    ledger: &mut RowLedger,
    table: AdmittedTable<'_>,
    http: &HttpSettings,
    mut progress: impl FnMut(UploadProgress) -> ControlFlow<()>,
) -> Result<SiteUploadAnswer> {
    let (study, request, cost) = (table.study, table.request, table.cost);
    let counts = table.counts();
    let charged = ledger.take_part_as_site(table)?;
    let (receipt, pending) = (ledger.receipt()?, ledger.counts(study)?.pending);
    let mut sent = SendSummary::default();
    if progress(UploadProgress::Sent(0, pending)).is_continue() {
        sent = send_site(ledger, study, http, |now| {
            let done = now.accepted + now.duplicates + now.refused;
            if let Some(reason) = &now.waiting {
                progress(UploadProgress::Waiting(reason.clone()))?;
            }
            progress(UploadProgress::Sent(done, pending))
        })
        .await?;
    }
    let reports = ledger.counts(study)?;
    (sent.refused, sent.pending) = (reports.refused, reports.pending);
    Ok(SiteUploadAnswer {
        study: study.id().to_owned(),
        site: request.site.clone(),
        counts,
        sent,
        acknowledged: reports.acknowledged,
        given_up: reports.given_up,
        charged: RowCharges {
            epsilon: cost.epsilon(),
            delta: cost.delta(),
            rows: charged,
            spent: receipt.spent,
            limits: receipt.limits,
            ledger: ledger.path().display().to_string(),
        },
        refusals: ledger.refused(study, 8)?,
    })
}
