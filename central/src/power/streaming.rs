//! The streaming power method: one pass, O(pk) memory.

use std::ops::ControlFlow;

use eigenveil_estimation::models::uniform_frame;
use eigenveil_shared::{Error, Result};

use super::{
    block_settings::{block_size, default_iterations},
    noisy_power,
};
use crate::{
    AlgorithmInfo, Fit, Generator, GradientSum, Options, Request, Rows,
    baseline::Run,
    input::stream::{CheckedRows, steps_and_batch},
    parameter::{BATCH, BLOCK_SIZE, ITERATIONS},
    parts::trace::Tracer,
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "streaming-power",
    source: "Hardt & Price 2014, Figure 2 (SPM)",
    description: "one power step per block of a stream of rows; one pass, O(pk) memory",
    guarantee: "none of its own: use private-power or private-oja for privacy",
    parameters: &[ITERATIONS, BATCH, BLOCK_SIZE],
    ..AlgorithmInfo::nonprivate(Run::OnePass(fit))
};

/// L steps, each with the sum `A_ℓ = Σxxᵀ` over its own block of `⌊n/L⌋` rows. It holds two `d × m` matrices and a
/// block of 128 rows, never A; rows after the last complete block are not used.
fn fit(
    options: &Options,
    mut feed: CheckedRows<'_, '_>,
    _: Option<&Rows>,
    request: &Request<'_>,
    rng: &mut Generator,
) -> Result<Fit> {
    let (dimension, n) = (feed.dimension(), feed.n());
    let columns = block_size(options, request.k, dimension)?;
    let (steps, block) = steps_and_batch(n, options, default_iterations(dimension))?;
    // A block with fewer rows than columns has no image of full rank.
    if block < columns {
        return Err(Error::invalid_request(format!(
            "a block has {block} of the n = {n} rows; a block size of {columns} needs at least {columns}: use fewer iterations, a smaller block-size or more rows"
        )));
    }
    let mut tracer = Tracer::new(request);
    let run = noisy_power(
        uniform_frame(rng, dimension, columns)?,
        steps,
        |_, x| {
            let mut sum = GradientSum::new(x.clone(), None, block);
            for _ in 0..block {
                sum.add(feed.next_row()?.as_slice());
            }
            Ok(sum.finish().1)
        },
        |run| {
            let passes = run.steps as f64 * block as f64 / n as f64;
            tracer.record(run.steps, passes, &run.basis, |_| None)?;
            Ok(ControlFlow::Continue(()))
        },
    )?;
    Ok(Fit {
        trace: tracer.finish(),
        diagnostics: vec![
            ("steps", steps as f64),
            ("block", block as f64),
            ("block_size", columns as f64),
        ],
        ..Fit::plain(run.leading(request.k)?.0, n)
    })
}
