//! `pca`: exact PCA as a baseline.

use eigenveil_shared::Result;

use crate::{
    AlgorithmInfo, Fit, Generator, Options, Request, Rows,
    baseline::Run,
    parts::{leading::principal_components, trace::Tracer},
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "pca",
    source: "textbook; what every comparison refers to",
    description: "the top eigenvectors of the rows' second moment, exactly",
    guarantee: "none: it is the non-private reference",
    has_trace: false,
    ..AlgorithmInfo::nonprivate(Run::Table(fit))
};

fn fit(_: &Options, rows: &Rows, request: &Request<'_>, _: &mut Generator) -> Result<Fit> {
    let exact = principal_components(rows, request.k)?;
    let mut tracer = Tracer::new(request);
    tracer.record(1, 1.0, &exact.vectors, |_| Some(exact.values.sum()))?;
    Ok(Fit {
        trace: tracer.finish(),
        ..Fit::plain(exact.vectors, rows.n() as u64)
    })
}
