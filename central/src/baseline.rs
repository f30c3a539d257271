//! The trait that every algorithm implements.

use eigenveil_shared::{Error, ErrorCode, Result, preprocess::FeatureRow};

use crate::{
    fit::{Fit, Request},
    generator::Generator,
    parameter::{Options, Parameter},
    privacy::{CentralCalibration, Neighbours, Privacy},
    rows::Rows,
};

/// Static description of an algorithm; the command line is generated from it.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmInfo {
    /// Name on the command line, in kebab case.
    pub name: &'static str,
    /// Paper, and algorithm or equation in it.
    pub source: &'static str,
    /// One line: what it does.
    pub description: &'static str,
    /// One line: the guarantee under `accounted`, and how much of the paper's claim holds under `as-published`.
    pub guarantee: &'static str,
    /// Neighbouring relations it can protect; empty if it has no private form.
    pub neighbours: &'static [Neighbours],
    /// Supported calibrations; empty if it has no private form.
    pub calibrations: &'static [CentralCalibration],
    /// Which δ it supports.
    pub delta: DeltaSupport,
    /// Whether it may allocate `p × p` matrices; the others hold the rows, or a few of them, and `p × k` numbers.
    pub quadratic_memory: bool,
    /// Whether it iterates and so can fill [`Fit::trace`].
    pub has_trace: bool,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    pub(crate) constructor: Constructor,
}

/// Creates an algorithm with these parameters, which have been checked against their limits.
type Constructor = fn(&Options) -> Result<Box<dyn Baseline>>;

impl AlgorithmInfo {
    pub(crate) const fn nonprivate(constructor: Constructor) -> Self {
        Self {
            name: "",
            source: "",
            description: "",
            guarantee: "",
            neighbours: &[],
            calibrations: &[],
            delta: DeltaSupport::Positive,
            quadratic_memory: false,
            has_trace: true,
            parameters: &[],
            constructor,
        }
    }

    pub(crate) const fn private(constructor: Constructor) -> Self {
        Self {
            neighbours: &Neighbours::ALL,
            calibrations: &CentralCalibration::ALL,
            ..Self::nonprivate(constructor)
        }
    }

    /// The algorithm with these parameters, the others at their defaults.
    pub fn build(&self, options: &Options) -> Result<Box<dyn Baseline>> {
        for (parameter, value) in options.iter() {
            let names: Vec<&str> = self.parameters.iter().map(|own| own.name).collect();
            if !names.contains(&parameter.name) {
                let has = match names[..] {
                    [] => "none".to_owned(),
                    _ => names.join(", "),
                };
                let (algorithm, name) = (self.name, parameter.name);
                return Err(Error::invalid_request(format!(
                    "{algorithm} has no parameter {name}; leave it out (it has {has})"
                )));
            }
            parameter.check(*value)?;
        }
        (self.constructor)(options)
    }
}

/// Which δ an algorithm supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaSupport {
    /// δ > 0 only: its noise has no pure form.
    Positive,
    /// Any δ: with δ = 0 it uses other noise.
    Any,
    /// δ = 0 only: its guarantee is pure.
    Zero,
}

impl DeltaSupport {
    /// δ of a budget that names none.
    pub fn default_delta(self) -> f64 {
        match self {
            Self::Zero => 0.0,
            Self::Any | Self::Positive => 1e-6,
        }
    }
}

/// A trusted-curator algorithm with its parameters.
pub trait Baseline {
    /// Its static description.
    fn info(&self) -> &'static AlgorithmInfo;

    /// The top-`k` subspace of the rows. With [`Privacy::None`] this is the algorithm's non-private counterpart.
    ///
    /// # Errors
    /// `invalid-request` for a request that [`check`] rejects and for parameters that do not fit the rows;
    /// `invalid-budget` if the budget cannot be met.
    fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit>;

    /// The same algorithm over a stream, if it needs only one pass.
    fn streaming(&self) -> Option<&dyn StreamingBaseline> {
        None
    }
}

/// A stream of prepared rows.
pub type RowStream<'a> = dyn Iterator<Item = Result<FeatureRow>> + 'a;

/// A baseline that reads each row once and uses `O(pk)` memory.
pub trait StreamingBaseline: Baseline {
    /// As [`Baseline::fit`] over a stream of `n` rows (public) of dimension `dimension`.
    ///
    /// # Errors
    /// As [`Baseline::fit`]; the first error of the rows; `wrong-dimension`; `invalid-request` when the
    /// stream ends before `n` rows.
    fn fit_stream(
        &self,
        rows: &mut RowStream<'_>,
        dimension: usize,
        n: u64,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Fit>;
}

/// Rejects requests that this algorithm cannot fulfil: k outside `1..=p`, no rows, and neighbours, a calibration or δ =
/// 0 that it does not support. Every [`Baseline::fit`] begins with it.
pub fn check(info: &AlgorithmInfo, dimension: usize, n: u64, request: &Request<'_>) -> Result<()> {
    let refuse = |detail: String| Err(Error::invalid_request(detail));
    let k = request.k;
    if n == 0 {
        return Err(crate::rows::no_rows_error());
    }
    if k == 0 || k > dimension {
        return refuse(format!(
            "k is {k}; it must be between 1 and p = {dimension}, the length of a row"
        ));
    }
    if let Some(truth) = request.truth
        && truth.shape() != (dimension, k)
    {
        return refuse(format!(
            "the true subspace is {:?}; the trace needs {dimension} × {k}",
            truth.shape()
        ));
    }
    let Privacy::Private(target) = request.privacy else {
        return Ok(());
    };
    let name = info.name;
    if info.calibrations.is_empty() {
        return refuse(format!(
            "{name} has no private form; run it without a budget (--epsilon inf), or use another algorithm"
        ));
    }
    if !info.calibrations.contains(&target.calibration) {
        return refuse(format!(
            "{name} has no {} noise, only {}",
            target.calibration,
            names(info.calibrations.iter().map(|kind| kind.as_str()))
        ));
    }
    if !info.neighbours.contains(&target.neighbours) {
        return refuse(format!(
            "{name} does not protect {} neighbours, only {}",
            target.neighbours,
            names(info.neighbours.iter().map(|kind| kind.as_str()))
        ));
    }
    if target.budget.is_pure() && info.delta == DeltaSupport::Positive {
        return Err(Error::new(
            ErrorCode::InvalidBudget,
            format!("delta is 0, which {name} cannot give; set delta, such as 1e-6"),
        ));
    }
    Ok(())
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" or ")
}
