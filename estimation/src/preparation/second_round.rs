//! The second round: other people are asked about the interval that the first one has found.

use eigenveil_shared::{
    Error, Result,
    api::PreparationRequest,
    preparation::{ColumnKind, NumberRange, PreparationColumn},
};

use super::{
    fit::Mixture,
    round::{Round, Rounds},
};

/// Half the width of the interval, in spreads.
const SPREADS: f64 = 3.0;

/// The questions of the second round: of each number column those about the interval from three spreads below the
/// median to three above it, within the range; the other columns are asked about as before.
///
/// # Errors
/// `invalid-request` for a round that is the second one already, as a third one would not make the constants better,
/// and for one that nobody has answered.
pub fn second_round(first: Round<'_>) -> Result<PreparationRequest> {
    let rounds = Rounds::new(first, None)?;
    if first.people() == 0 {
        return Err(Error::invalid_request(
            "nobody has answered the first round, so that it has found no intervals to ask about; make the second round when people have",
        ));
    }
    let columns = rounds.columns().iter().enumerate();
    let columns = columns.map(|(at, column)| match Mixture::new(rounds, at) {
        Some(mixture) => within(column, &mixture),
        None => column.clone(),
    });
    Ok(PreparationRequest {
        columns: columns.collect(),
        after: Some(first.params().fingerprint().to_string()),
    })
}

fn within(column: &PreparationColumn, mixture: &Mixture) -> PreparationColumn {
    let ColumnKind::Number(NumberRange { lo, hi, .. }) = column.kind else {
        return column.clone();
    };
    let (median, spread) = mixture.spread(&mixture.fit());
    let from = (median - SPREADS * spread).max(lo);
    let to = (median + SPREADS * spread).min(hi);
    PreparationColumn {
        kind: ColumnKind::Number(NumberRange {
            lo,
            hi,
            within: Some([from, to]),
        }),
        ..column.clone()
    }
}
