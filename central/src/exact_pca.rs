//! `pca`: exact PCA as a baseline.

use eigenveil_shared::Result;

use crate::{
    AlgorithmInfo, Baseline, Fit, Generator, Request, Rows, check, leading::principal_components,
    trace::Tracer,
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "pca",
    source: "textbook; what every comparison refers to",
    description: "the top eigenvectors of the rows' second moment, exactly",
    guarantee: "none: it is the non-private reference",
    has_trace: false,
    ..AlgorithmInfo::nonprivate(|_| Ok(Box::new(Pca)))
};

/// `pca`: [`principal_components`] of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pca;

impl Baseline for Pca {
    fn info(&self) -> &'static AlgorithmInfo {
        &INFO
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, _rng: &mut Generator) -> Result<Fit> {
        let n = rows.n() as u64;
        check(&INFO, rows.dimension(), n, request)?;
        let exact = principal_components(rows, request.k)?;
        let mut tracer = Tracer::new(request);
        tracer.record(1, 1.0, &exact.vectors, |_| Some(exact.values.sum()))?;
        Ok(Fit {
            subspace: exact.vectors,
            n,
            privacy: None,
            trace: tracer.finish(),
            diagnostics: Vec::new(),
        })
    }
}
