//! The statistic of a report.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    mechanism::{
        AuditStatistic, Mechanism, PackedValues, Payload,
        double_cap::{DoubleCapParameters, expand},
    },
    preprocess::BoundedRow,
};

/// Log-likelihood ratio of row A against row B, assuming the mechanism is as claimed.
#[derive(Clone, Debug)]
pub enum Statistic {
    /// A weighted sum of the payload's numbers: Gaussian noise, continuous or on a grid.
    Linear(LinearStatistic),
    /// Which of the two caps the released direction lies in: `double-cap`.
    Caps(CapStatistic),
}

impl Statistic {
    /// The statistic of this mechanism for these rows.
    ///
    /// # Errors
    /// `wrong-dimension` if the rows differ in length.
    pub fn new(mechanism: &Mechanism, rows: &(BoundedRow, BoundedRow)) -> Result<Self> {
        let (a, b) = (rows.0.as_slice(), rows.1.as_slice());
        if a.len() != b.len() {
            return Err(Error::new(
                ErrorCode::WrongDimension,
                format!(
                    "the rows have {} and {} values; give two of one dimension",
                    a.len(),
                    b.len()
                ),
            ));
        }
        Ok(match mechanism.audit_statistic() {
            AuditStatistic::Caps(parameters) => Self::Caps(CapStatistic::new(parameters, a, b)),
            AuditStatistic::Linear { weights, .. } => {
                Self::Linear(LinearStatistic::new(a, b, weights))
            }
        })
    }

    /// The statistic of one payload.
    ///
    /// # Errors
    /// `wrong-payload-length` and `invalid-mechanism` for a payload of another length or kind.
    pub fn value<B: AsRef<[u8]>>(&self, payload: &Payload<B>) -> Result<f64> {
        Ok(self.read(payload)?.0)
    }

    /// The statistic of one payload, and for `double-cap` the caps it lies in: 1 for row A's, 2 for row B's,
    /// 3 for both.
    pub(crate) fn read<B: AsRef<[u8]>>(
        &self,
        payload: &Payload<B>,
    ) -> Result<(f64, Option<usize>)> {
        match (self, payload) {
            (Self::Linear(linear), Payload::Floats(numbers)) => Ok((linear.value(numbers)?, None)),
            (Self::Linear(linear), Payload::Integers(numbers)) => {
                Ok((linear.value(numbers)?, None))
            }
            (Self::Caps(caps), Payload::Seed(seed)) => {
                let depths = caps.depths(seed);
                let (a, b) = caps.inside_at(depths);
                let class = usize::from(a) + 2 * usize::from(b);
                Ok((caps.value_at(depths), Some(class)))
            }
            (Self::Linear(_), Payload::Seed(_))
            | (Self::Caps(_), Payload::Floats(_) | Payload::Integers(_)) => Err(Error::new(
                ErrorCode::InvalidMechanism,
                "the payload belongs to another mechanism than the audited one",
            )),
        }
    }
}

/// Σ weight × entry over the packed upper triangle.
#[derive(Clone, Debug)]
pub struct LinearStatistic {
    weights: Vec<f64>,
}

impl LinearStatistic {
    /// `factors` multiply a_i a_j − b_i b_j on the diagonal and off it.
    fn new(a: &[f64], b: &[f64], factors: [f64; 2]) -> Self {
        let mut weights = Vec::new();
        for i in 0..a.len() {
            for j in i..a.len() {
                weights.push((a[i] * a[j] - b[i] * b[j]) * factors[usize::from(i != j)]);
            }
        }
        Self { weights }
    }

    fn value(&self, numbers: &impl PackedValues) -> Result<f64> {
        let values = numbers.values();
        if values.len() != self.weights.len() {
            return Err(Error::new(
                ErrorCode::WrongPayloadLength,
                format!(
                    "the payload has {} numbers; it should have {}",
                    values.len(),
                    self.weights.len()
                ),
            ));
        }
        Ok(values
            .zip(&self.weights)
            .map(|(number, weight)| number * weight)
            .sum())
    }
}

/// Log-ratio of the densities of a released direction under the two rows, plus up to ε/4 for its depth in the caps, so
/// that the audit can also choose an event inside a cap.
#[derive(Clone, Debug)]
pub struct CapStatistic {
    parameters: DoubleCapParameters,
    a: Direction,
    b: Direction,
}

#[derive(Clone, Debug)]
struct Direction {
    unit: Vec<f64>,
    squared_length: f64,
}

impl Direction {
    fn new(x: &[f64]) -> Self {
        let squared: f64 = x.iter().map(|x| x * x).sum();
        let length = squared.sqrt().max(f64::MIN_POSITIVE);
        Self {
            unit: x.iter().map(|x| x / length).collect(),
            squared_length: squared.min(1.0),
        }
    }

    /// (gᵀu)² for a direction g = z/√`squared`.
    fn depth(&self, z: &[f64], squared: f64) -> f64 {
        let product: f64 = self.unit.iter().zip(z).map(|(u, z)| u * z).sum();
        product * product / squared
    }
}

impl CapStatistic {
    /// For rows of the mechanism's dimension.
    pub fn new(parameters: DoubleCapParameters, a: &[f64], b: &[f64]) -> Self {
        Self {
            parameters,
            a: Direction::new(a),
            b: Direction::new(b),
        }
    }

    /// Whether the direction of this seed lies in the caps of row A and of row B.
    pub fn inside(&self, seed: &[u8; 16]) -> (bool, bool) {
        self.inside_at(self.depths(seed))
    }

    fn inside_at(&self, (a, b): (f64, f64)) -> (bool, bool) {
        (a > self.parameters.threshold, b > self.parameters.threshold)
    }

    /// The statistic of one seed.
    pub fn value(&self, seed: &[u8; 16]) -> f64 {
        self.value_at(self.depths(seed))
    }

    fn value_at(&self, (a, b): (f64, f64)) -> f64 {
        let refinement = self.a.squared_length * a - self.b.squared_length * b;
        self.ln_density(&self.a, a) - self.ln_density(&self.b, b)
            + 0.25 * self.parameters.epsilon * refinement
    }

    fn depths(&self, seed: &[u8; 16]) -> (f64, f64) {
        let mut z = vec![0.0; self.parameters.dimension];
        let squared = expand(seed, &mut z);
        (self.a.depth(&z, squared), self.b.depth(&z, squared))
    }

    /// The density for a row of length r, relative to the uniform one: r²·{1, e^ε}/Z + 1 − r².
    fn ln_density(&self, row: &Direction, depth: f64) -> f64 {
        let inside = depth > self.parameters.threshold;
        let significant_log_ratio = if inside {
            self.parameters.epsilon.exp()
        } else {
            1.0
        } / self.parameters.normalizer();
        (row.squared_length * significant_log_ratio + 1.0 - row.squared_length).ln()
    }
}
