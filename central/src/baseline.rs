//! An algorithm: what it is, and a run of it.

use eigenveil_shared::{Error, Result, error};

use crate::{
    fit::{Fit, Request},
    input::{
        generator::Generator,
        rows::Rows,
        stream::{CheckedRows, RowStream, shuffled},
    },
    parameter::{BATCH, EIGENGAP, ITERATIONS, Options, Parameter, STEP_SIZE},
    privacy::{CentralCalibration, Neighbours, Privacy},
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
    pub(crate) run: Run,
}

/// A run with parameters that have been checked against their limits, of a request that has passed [`check`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// Over a table.
    Table(fn(&Options, &Rows, &Request<'_>, &mut Generator) -> Result<Fit>),
    /// In one pass over rows in random order, with `O(pk)` memory. A trace's objective comes from their table, if there
    /// is one.
    OnePass(
        fn(
            &Options,
            CheckedRows<'_, '_>,
            Option<&Rows>,
            &Request<'_>,
            &mut Generator,
        ) -> Result<Fit>,
    ),
}

impl AlgorithmInfo {
    pub(crate) const fn nonprivate(run: Run) -> Self {
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
            run,
        }
    }

    pub(crate) const fn private(run: Run) -> Self {
        Self {
            neighbours: &Neighbours::OF_ROWS,
            calibrations: &CentralCalibration::ALL,
            ..Self::nonprivate(run)
        }
    }

    /// The algorithm with these parameters, the others at their defaults.
    ///
    /// # Errors
    /// `invalid-request` for a parameter that it does not have, a value outside its limits, and two parameters of which
    /// one follows from the other.
    pub fn build(&'static self, options: &Options) -> Result<Baseline> {
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
        let both = |one, other| options.is_set(one) && options.is_set(other);
        if both(STEP_SIZE, EIGENGAP) {
            return Err(Error::invalid_request(
                "step-size and eigengap are both set; an eigengap sets the step's constant to 1/eigengap: leave one out",
            ));
        }
        if matches!(self.run, Run::OnePass(_)) && both(ITERATIONS, BATCH) {
            return Err(Error::invalid_request(
                "iterations and batch are both set; each follows from n and the other: leave one out",
            ));
        }
        Ok(Baseline {
            info: self,
            options: options.clone(),
        })
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

/// A trusted-curator algorithm with its parameters, made by [`AlgorithmInfo::build`].
#[derive(Clone, Debug)]
pub struct Baseline {
    info: &'static AlgorithmInfo,
    options: Options,
}

impl Baseline {
    /// Its static description.
    pub fn info(&self) -> &'static AlgorithmInfo {
        self.info
    }

    /// The top-`k` subspace of the rows. With [`Privacy::None`] this is the algorithm's non-private counterpart.
    ///
    /// # Errors
    /// `invalid-request` for k outside `1..=p`, for neighbours or a calibration that it does not support, and for
    /// parameters that do not fit the rows; `invalid-budget` if the budget cannot be met.
    pub fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
        let (p, n) = (rows.dimension(), rows.n() as u64);
        check(self.info, p, n, request)?;
        match self.info.run {
            Run::Table(run) => run(&self.options, rows, request, rng),
            Run::OnePass(run) => {
                let mut stream = shuffled(rows, rng);
                let feed = CheckedRows::new(&mut stream, p, n);
                run(&self.options, feed, Some(rows), request, rng)
            }
        }
    }

    /// Whether it reads each row once and uses `O(pk)` memory, so that [`Baseline::fit_stream`] takes it.
    pub fn is_streaming(&self) -> bool {
        matches!(self.info.run, Run::OnePass(_))
    }

    /// Fits like [`Baseline::fit`], over a stream of `n` rows (public) of dimension `dimension`.
    ///
    /// # Errors
    /// As [`Baseline::fit`]; the first error of the rows; `wrong-dimension`; `invalid-request` when the
    /// stream ends before `n` rows, and for an algorithm that needs a table.
    pub fn fit_stream(
        &self,
        rows: &mut RowStream<'_>,
        dimension: usize,
        n: u64,
        request: &Request<'_>,
        rng: &mut Generator,
    ) -> Result<Fit> {
        let Run::OnePass(run) = self.info.run else {
            return Err(Error::invalid_request(format!(
                "{} reads its rows more than once; give it a table",
                self.info.name
            )));
        };
        check(self.info, dimension, n, request)?;
        let feed = CheckedRows::new(rows, dimension, n);
        run(&self.options, feed, None, request, rng)
    }
}

/// Rejects requests that this algorithm cannot fulfil: k outside `1..=p`, no rows, and neighbours, a calibration or δ =
/// 0 that it does not support.
pub(crate) fn check(
    info: &AlgorithmInfo,
    dimension: usize,
    n: u64,
    request: &Request<'_>,
) -> Result<()> {
    let refuse = |detail: String| Err(Error::invalid_request(detail));
    let k = request.k;
    if n == 0 {
        return Err(crate::input::rows::no_rows_error());
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
            "{name} has no private form; run it without a budget (leave epsilon out), or use another algorithm"
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
        return Err(error!(
            InvalidBudget,
            "delta is 0, which {name} cannot give; set delta, such as 1e-6"
        ));
    }
    Ok(())
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" or ")
}
