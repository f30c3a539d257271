//! The streaming power method: one pass, O(pk) memory.

use std::ops::ControlFlow;

use eigenveil_estimation::models::uniform_frame;
use eigenveil_shared::{Error, Result};

use super::{BlockSettings, noisy_power};
use crate::{
    AlgorithmInfo, Baseline, Fit, Generator, GradientSum, Request, RowStream, Rows,
    StreamingBaseline, check,
    parameter::{BATCH, BLOCK_SIZE, ITERATIONS},
    stream::{Feed, conflicting_steps_error, shuffled, whole_steps},
    trace::Tracer,
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "streaming-power",
    source: "Hardt & Price 2014, Figure 2 (SPM)",
    description: "one power step per block of a stream of rows; one pass, O(pk) memory",
    guarantee: "none of its own: use private-power or private-oja for privacy",
    parameters: &[ITERATIONS, BATCH, BLOCK_SIZE],
    ..AlgorithmInfo::nonprivate(|options| {
        Ok(Box::new(StreamingPower {
            settings: BlockSettings::from_options(options),
            block: options.count(BATCH),
        }))
    })
};

/// `streaming-power`: L steps, each with the sum `A_ℓ = Σxxᵀ` over its own block of `⌊n/L⌋` rows. It holds two `d × m`
/// matrices and a block of 128 rows, never A; rows after the last complete block are not used.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamingPower {
    /// Steps L and columns m.
    pub settings: BlockSettings,
    /// Rows in a block, instead of `⌊n/L⌋`; then L = `⌊n/block⌋`.
    pub block: Option<usize>,
}

impl Baseline for StreamingPower {
    fn info(&self) -> &'static AlgorithmInfo {
        &INFO
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
        let n = rows.n() as u64;
        let mut stream = shuffled(rows, rng);
        self.fit_stream(&mut stream, rows.dimension(), n, request, rng)
    }

    fn streaming(&self) -> Option<&dyn StreamingBaseline> {
        Some(self)
    }
}

impl StreamingBaseline for StreamingPower {
    fn fit_stream(
        &self,
        rows: &mut RowStream<'_>,
        dimension: usize,
        n: u64,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        check(&INFO, dimension, n, request)?;
        let columns = self.settings.block_size(request.k, dimension)?;
        let (steps, block) = blocks(self, dimension, columns, n)?;
        let mut feed = Feed::new(rows, dimension, n);
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
            subspace: run.leading(request.k)?.0,
            n,
            privacy: None,
            trace: tracer.finish(),
            diagnostics: vec![
                ("steps", steps as f64),
                ("block", block as f64),
                ("block_size", columns as f64),
            ],
        })
    }
}

/// Steps and rows per block. A block with fewer rows than columns has no image of full rank.
fn blocks(
    method: &StreamingPower,
    dimension: usize,
    columns: usize,
    n: u64,
) -> Result<(usize, usize)> {
    let (steps, block) = match (method.block, method.settings.iterations) {
        (Some(_), Some(_)) => return Err(conflicting_steps_error()),
        (Some(block), None) => (whole_steps(n, block)?, block),
        (None, _) => {
            let steps = method.settings.iterations(dimension);
            (steps, n.checked_div(steps as u64).unwrap_or(0) as usize)
        }
    };
    if block < columns {
        return Err(Error::invalid_request(format!(
            "a block has {block} of the n = {n} rows; a block size of {columns} needs at least {columns}: use fewer iterations, a smaller --block-size or more rows"
        )));
    }
    Ok((steps, block))
}
