//! `pca`: the exact answer as a baseline beside the others.

use eigenveil_shared::Result;

use crate::{
    Baseline, Card, Fit, Generator, Request, Rows, check, leading::principal_components,
    trace::Tracer,
};

pub(crate) static CARD: Card = Card {
    name: "pca",
    source: "textbook; what every comparison refers to",
    description: "the top eigenvectors of the rows' second moment, exactly",
    guarantee: "none: it is the non-private reference",
    traced: false,
    ..Card::plain(|_| Ok(Box::new(Pca)))
};

/// `pca`: [`principal_components`] of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pca;

impl Baseline for Pca {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, _rng: &mut Generator) -> Result<Fit> {
        let n = rows.n() as u64;
        check(&CARD, rows.dimension(), n, request)?;
        let exact = principal_components(rows, request.k)?;
        let mut tracer = Tracer::new(request.truth);
        tracer.record(1, 1.0, &exact.vectors, |_| Some(exact.values.sum()))?;
        Ok(Fit {
            subspace: exact.vectors,
            n,
            privacy: None,
            trace: tracer.finish(),
            facts: Vec::new(),
        })
    }
}
