//! `sparse-pca`: row-sparse components by tighten after relax.

use eigenveil_estimation::Cancel;
use eigenveil_estimation::fantope::{AdmmSettings, largest_useful_lambda, solve, tighten};
use eigenveil_shared::Result;

use crate::{
    Baseline, Card, Fit, Generator, Request, Rows, check,
    parameter::{LAMBDA, SUPPORT},
    trace::Tracer,
};

/// λ as a share of the largest useful one, where it is not set.
const DEFAULT_SHARE: f64 = 0.1;

/// Iterations of the pursuit after the relaxation.
const PURSUIT: usize = 1_000;

pub(crate) static CARD: Card = Card {
    name: "sparse-pca",
    source: "Wang, Lu & Liu 2014 (tighten after relax); Vu et al. 2013",
    description: "row-sparse components: Fantope relaxation, then sparse orthogonal iteration on a fixed number of rows",
    guarantee: "none: it is the non-private sparse reference",
    parameters: &[LAMBDA, SUPPORT],
    ..Card::plain(|options| {
        Ok(Box::new(SparsePca {
            lambda: options.number(LAMBDA),
            support: options.count(SUPPORT),
        }))
    })
};

/// `sparse-pca`: the relaxation ([`solve`]) of the rows' second moment, tightened ([`tighten`]) to exactly s rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SparsePca {
    /// λ, in units of the second moment's entries; `None`: a tenth of its largest off-diagonal entry.
    pub lambda: Option<f64>,
    /// s, from k to p; `None`: as many as the relaxation keeps.
    pub support: Option<usize>,
}

impl Baseline for SparsePca {
    fn card(&self) -> &'static Card {
        &CARD
    }

    /// # Errors
    /// Besides those of the trait `invalid-request` for a λ that is negative or not finite and an s outside `k..=p`.
    fn fit(&self, rows: &Rows, request: &Request<'_>, _rng: &mut Generator) -> Result<Fit> {
        let (n, p, k) = (rows.n() as u64, rows.dimension(), request.k);
        check(&CARD, p, n, request)?;
        let moment = rows.sum_of_outer_products() / n as f64;
        let lambda = self
            .lambda
            .unwrap_or_else(|| DEFAULT_SHARE * largest_useful_lambda(&moment));
        LAMBDA.check(lambda)?;
        let settings = AdmmSettings::default();
        let relaxed = solve(&moment, k, lambda, &settings, Cancel::NEVER)?;
        let support = self.support.unwrap_or(relaxed.support.len());
        let tight = tighten(&moment, &relaxed, support, PURSUIT)?;
        let mut tracer = Tracer::new(request.truth);
        tracer.record(1, 1.0, &tight.vectors, |_| Some(tight.captured))?;
        Ok(Fit {
            subspace: tight.vectors,
            n,
            privacy: None,
            trace: tracer.finish(),
            facts: vec![
                ("lambda", lambda),
                ("support", tight.support.len() as f64),
                ("relaxed_support", relaxed.support.len() as f64),
                ("relaxed_gap", relaxed.relative_gap),
            ],
        })
    }
}
