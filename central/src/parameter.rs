//! The parameters of the algorithms as data.
//!
//! Each line of the table below is a parameter; an [`AlgorithmInfo`](crate::AlgorithmInfo) names those of an algorithm
//! and their defaults. The flags of `eigenveil central`, the checks of their values and `eigenveil central list` are
//! generated from them.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{
        Bound::{self, Excluded, Included, Unbounded},
        RangeBounds,
    },
};

use eigenveil_shared::{Error, Result};
use serde::{Deserialize, Deserializer, de};

/// The kind of value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Count,
    /// A finite number.
    Number,
    /// Set or not; its flag has no value.
    Switch,
}

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Name, also of the flag.
    pub name: &'static str,
    /// Placeholder for its value in help texts.
    pub symbol: &'static str,
    /// Description in one line.
    pub help: &'static str,
    /// Kind of its value.
    pub kind: Kind,
    /// Limits of its value, whatever the rows.
    pub limits: (Bound<f64>, Bound<f64>),
    /// Its default, if that is a constant; it may also depend on the number of rows and the budget.
    pub default: Option<f64>,
}

/// Value of a [`Parameter`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Value of a [`Kind::Count`].
    Count(usize),
    /// Value of a [`Kind::Number`].
    Number(f64),
    /// Value of a [`Kind::Switch`] that is set.
    Set,
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Set => f.write_str("set"),
        }
    }
}

const ANY: (Bound<f64>, Bound<f64>) = (Unbounded, Unbounded);
const FROM_ONE: (Bound<f64>, Bound<f64>) = (Included(1.0), Unbounded);
const FROM_ZERO: (Bound<f64>, Bound<f64>) = (Included(0.0), Unbounded);
const POSITIVE: (Bound<f64>, Bound<f64>) = (Excluded(0.0), Unbounded);

macro_rules! parameters {
    ($($constant:ident: $kind:ident $name:literal $symbol:literal, $limits:expr, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`. ", $help, ".")]
            pub const $constant: Parameter = Parameter {
                name: $name,
                symbol: $symbol,
                help: $help,
                kind: Kind::$kind,
                limits: $limits,
                default: None,
            };
        )*

        /// Every parameter, in the order of the command line's help.
        pub const ALL: &[Parameter] = &[$($constant),*];
    };
}

parameters! {
    ITERATIONS: Count "iterations" "T", FROM_ONE, "Iterations of iterative algorithms";
    EPOCHS: Count "epochs" "M", FROM_ONE, "Epochs of dp-vrpca";
    BATCH: Count "batch" "B", FROM_ONE, "Rows of a batch or block";
    STEP_SIZE: Number "step-size" "X", POSITIVE, "Step size, or the constant of its schedule";
    EIGENGAP: Number "eigengap" "X", POSITIVE,
        "Known eigengap λ_k − λ_{k+1} of the rows' second-moment matrix: oja's step sizes are 1/(eigengap·(o + t))";
    BLOCK_SIZE: Count "block-size" "C", FROM_ONE, "Columns of the iterate of block power methods, k to p";
    GRADIENT_CLIP: Number "gradient-clip" "X", (Excluded(0.0), Included(1.0)), "Threshold that gradients are clipped to";
    LAMBDA: Number "lambda" "X", FROM_ZERO, "Penalty λ of sparse-pca";
    SUPPORT: Count "support" "S", FROM_ONE, "Number of features that sparse-pca selects";
    STARTS: Count "starts" "R", FROM_ONE,
        "Starts of sparse-pca on s features: the relaxed one, then random ones; the best result wins";
    DEFLATION: Switch "deflation" "", ANY,
        "Find the components of dp-pca one after another, each over n/k rows, instead of all at once";
    ZETA: Number "zeta" "Z", (Excluded(0.0), Excluded(1.0)), "ζ of dp-pca, its failure probability";
    TAIL_SCALE: Number "tail-scale" "X", POSITIVE, "K of dp-pca, the scale of the gradients' tail";
    TAIL_POWER: Number "tail-power" "X", FROM_ZERO, "a of dp-pca, the power of the logarithm in that tail";
    GROUPS: Number "groups" "X", (Included(1.0), Excluded(1e6)),
        "Groups of rows in dp-pca's eigenvalue histogram, as a multiple of its threshold";
    GROUP_ROWS: Count "group-rows" "R", (Included(2.0), Excluded(1e6)), "Rows in each group of that histogram";
    HALVE_STEP_EVERY: Count "halve-step-every" "I", FROM_ONE,
        "Iterations after which ggd and its relatives halve the step size";
    GRADIENT_NOISE: Number "gradient-noise" "X", FROM_ZERO,
        "Standard deviation of the noise that nggd and nsggd add to every entry of the mean gradient";
}

impl Parameter {
    pub(crate) const fn with_default(self, default: f64) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }

    /// Checks a value: `invalid-request`, with the value and its limits, if it is outside of them.
    pub fn check(&self, value: impl Into<Value>) -> Result<()> {
        let value = value.into();
        let number = match value {
            Value::Count(count) => count as f64,
            Value::Number(number) => number,
            Value::Set => return Ok(()),
        };
        if number.is_finite() && self.limits.contains(&number) {
            return Ok(());
        }
        let lowest = match self.limits.0 {
            Included(limit) => format!("at least {limit}"),
            Excluded(limit) => format!("above {limit}"),
            Unbounded => "finite".to_owned(),
        };
        let highest = match self.limits.1 {
            Included(limit) => format!(" and at most {limit}"),
            Excluded(limit) => format!(" and below {limit}"),
            Unbounded if self.kind == Kind::Number => " and finite".to_owned(),
            Unbounded => String::new(),
        };
        Err(Error::invalid_request(format!(
            "{} is {value}; it must be {lowest}{highest}",
            self.name
        )))
    }
}

/// The parameters that are set, with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options(Vec<(Parameter, Value)>);

impl<'de> Deserialize<'de> for Options {
    /// Reads an object whose keys are the names of parameters; `_` may stand for `-`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number, or true or false")]
        enum Given {
            Switch(bool),
            Count(usize),
            Number(f64),
        }
        let mut options = Self::default();
        for (name, given) in BTreeMap::<String, Given>::deserialize(deserializer)? {
            let known = ALL.iter().find(|own| own.name == name.replace('_', "-"));
            let wrong = |why: &str| Err(<D::Error as de::Error>::custom(format!("{name} {why}")));
            let Some(parameter) = known else {
                return wrong("is no parameter of any algorithm");
            };
            let value = match (parameter.kind, given) {
                (Kind::Switch, Given::Switch(false)) => continue,
                (Kind::Switch, Given::Switch(true)) => Value::Set,
                (Kind::Count, Given::Count(count)) => Value::Count(count),
                (Kind::Number, Given::Count(count)) => Value::Number(count as f64),
                (Kind::Number, Given::Number(number)) => Value::Number(number),
                (Kind::Switch, _) => return wrong("must be true or false"),
                (Kind::Count, _) => return wrong("must be a whole number"),
                (Kind::Number, _) => return wrong("must be a number"),
            };
            options = options.with(*parameter, value);
        }
        Ok(options)
    }
}

impl Options {
    /// Sets this parameter.
    ///
    /// ```
    /// use eigenveil_central::{Options, find, parameter::{BATCH, BLOCK_SIZE}};
    /// let entry = find("noisy-power")?;
    /// assert!(entry.build(&Options::default().with(BLOCK_SIZE, 4)).is_ok());
    /// let refused = entry.build(&Options::default().with(BATCH, 100)).err().unwrap();
    /// assert!(refused.detail().starts_with("noisy-power has no parameter batch"));
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    #[must_use]
    pub fn with(mut self, parameter: Parameter, value: impl Into<Value>) -> Self {
        self.0.retain(|(set, _)| set.name != parameter.name);
        self.0.push((parameter, value.into()));
        self
    }

    /// The parameters that are set.
    pub fn iter(&self) -> impl Iterator<Item = &(Parameter, Value)> {
        self.0.iter()
    }

    fn value(&self, parameter: Parameter) -> Option<Value> {
        let set = self.0.iter().find(|(set, _)| set.name == parameter.name);
        set.map(|(_, value)| *value)
    }

    pub(crate) fn count(&self, parameter: Parameter) -> Option<usize> {
        match self.value(parameter) {
            Some(Value::Count(count)) => Some(count),
            _ => None,
        }
    }

    pub(crate) fn number(&self, parameter: Parameter) -> Option<f64> {
        match self.value(parameter) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn is_set(&self, parameter: Parameter) -> bool {
        self.value(parameter).is_some()
    }
}
