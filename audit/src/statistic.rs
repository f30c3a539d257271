//! The statistic of a report.

use eigenveil_shared::{
    Result, error,
    mechanism::{
        AuditStatistic, Mechanism, PackedValues, Payload,
        double_cap::{DoubleCapParameters, expand},
        table::{TableMechanism, TablePayload},
    },
    preprocess::BoundedRow,
    site_study::SiteStudyParams,
};

use crate::Table;

/// Log-likelihood ratio of row A against row B, assuming the mechanism is as claimed.
#[derive(Clone, Debug)]
pub enum Statistic {
    /// The sum of weight × number over the packed upper triangle: Gaussian noise, continuous or on a grid.
    Linear(Vec<f64>),
    /// Which of the two caps the released direction lies in: `double-cap`.
    Caps(CapStatistic),
}

impl Statistic {
    /// The statistic of this mechanism for these rows.
    pub fn new(mechanism: &Mechanism, rows: &(BoundedRow, BoundedRow)) -> Result<Self> {
        let (a, b) = (rows.0.as_slice(), rows.1.as_slice());
        if a.len() != b.len() {
            return Err(error!(
                WrongDimension,
                "the rows have {} and {} values; give two of one dimension",
                a.len(),
                b.len()
            ));
        }
        Ok(match mechanism.audit_statistic() {
            AuditStatistic::Caps(parameters) => Self::Caps(CapStatistic::new(parameters, a, b)),
            AuditStatistic::Linear { weights, .. } => Self::Linear(linear_weights(a, b, weights)),
        })
    }

    /// The statistic of one payload.
    ///
    /// # Errors
    /// `wrong-payload-length` and `invalid-mechanism` for a payload of another length or kind.
    pub fn value<B: AsRef<[u8]>>(&self, payload: &Payload<B>) -> Result<f64> {
        Ok(self.value_and_class(payload)?.0)
    }

    /// The statistic of one payload, and for `double-cap` the caps it lies in: 1 for row A's, 2 for row B's,
    /// 3 for both.
    pub(crate) fn value_and_class<B: AsRef<[u8]>>(
        &self,
        payload: &Payload<B>,
    ) -> Result<(f64, Option<usize>)> {
        match (self, payload) {
            (Self::Linear(weights), Payload::Floats(numbers)) => {
                Ok((weighted_sum(weights, numbers)?, None))
            }
            (Self::Linear(weights), Payload::Integers(numbers)) => {
                Ok((weighted_sum(weights, numbers)?, None))
            }
            (Self::Caps(caps), Payload::Seed(seed)) => {
                let (value, class) = caps.value_and_class(seed);
                Ok((value, Some(class)))
            }
            (Self::Linear(_), Payload::Seed(_) | Payload::Answer(_))
            | (Self::Caps(_), Payload::Floats(_) | Payload::Integers(_) | Payload::Answer(_)) => {
                Err(error!(
                    InvalidMechanism,
                    "the payload belongs to another mechanism than the audited one"
                ))
            }
        }
    }
}

/// The weights a_i a_j − b_i b_j, times `factors[0]` on the diagonal and `factors[1]` off it.
fn linear_weights(a: &[f64], b: &[f64], factors: [f64; 2]) -> Vec<f64> {
    let mut weights = Vec::new();
    for i in 0..a.len() {
        for j in i..a.len() {
            weights.push((a[i] * a[j] - b[i] * b[j]) * factors[usize::from(i != j)]);
        }
    }
    weights
}

fn weighted_sum(weights: &[f64], numbers: &impl PackedValues) -> Result<f64> {
    let values = numbers.values();
    if values.len() != weights.len() {
        return Err(error!(
            WrongPayloadLength,
            "the payload has {} numbers; it should have {}",
            values.len(),
            weights.len()
        ));
    }
    Ok(values
        .zip(weights)
        .map(|(number, weight)| number * weight)
        .sum())
}

/// Log-likelihood ratio of table A against table B for Gaussian noise: the sum of weight × number over the decoded
/// triangle, and over the count.
#[derive(Clone, Debug)]
pub struct TableStatistic {
    mechanism: TableMechanism,
    triangle: Vec<f64>,
    count: f64,
}

impl TableStatistic {
    /// The statistic of this study's mechanism for these tables.
    ///
    /// # Errors
    /// `wrong-dimension` for a row of another dimension.
    pub fn new(params: &SiteStudyParams, a: &Table, b: &Table) -> Result<Self> {
        let (moment_a, count_a) = a.exact(params)?;
        let (moment_b, count_b) = b.exact(params)?;
        let mechanism = *params.mechanism();
        let deviations = [
            mechanism.count_sd(),
            mechanism.noise_model().off_diagonal_sd(),
        ];
        let [diagonal, off_diagonal] = deviations.map(|sd| sd.powi(-2));
        let p = mechanism.dimension();
        let mut triangle = Vec::new();
        for i in 0..p {
            for j in i..p {
                let weight = if i == j { diagonal } else { off_diagonal };
                triangle.push((moment_a.get(i, j) - moment_b.get(i, j)) * weight);
            }
        }
        Ok(Self {
            mechanism,
            triangle,
            count: (count_a - count_b) * diagonal,
        })
    }

    /// The statistic of one payload.
    pub fn value<B: AsRef<[u8]>>(&self, payload: &TablePayload<B>) -> f64 {
        let table = self.mechanism.decode(payload);
        let entries = table.moment.as_slice().iter().zip(&self.triangle);
        let triangle: f64 = entries.map(|(entry, weight)| entry * weight).sum();
        triangle + table.rows * self.count
    }
}

/// Log-ratio of the densities of a released direction under the two rows, plus a term of at most ε/4 that grows with
/// the depth in the caps, so that an event inside a cap can be chosen.
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
    /// A statistic for two rows of the mechanism's dimension.
    fn new(parameters: DoubleCapParameters, a: &[f64], b: &[f64]) -> Self {
        Self {
            parameters,
            a: Direction::new(a),
            b: Direction::new(b),
        }
    }

    /// The statistic of one seed, and the caps that its direction lies in, as [`Statistic::value_and_class`] numbers them.
    fn value_and_class(&self, seed: &[u8; 16]) -> (f64, usize) {
        let mut z = vec![0.0; self.parameters.dimension];
        let squared = expand(seed, &mut z);
        let (a, b) = (self.a.depth(&z, squared), self.b.depth(&z, squared));
        let refinement = self.a.squared_length * a - self.b.squared_length * b;
        let value = self.ln_density(&self.a, a) - self.ln_density(&self.b, b)
            + 0.25 * self.parameters.epsilon * refinement;
        let inside = |depth: f64| usize::from(depth > self.parameters.threshold);
        (value, inside(a) + 2 * inside(b))
    }

    /// Log-density for a row of length r, relative to the uniform one: r²·{1, e^ε}/Z + 1 − r².
    fn ln_density(&self, row: &Direction, depth: f64) -> f64 {
        let inside = depth > self.parameters.threshold;
        let cap_density = if inside {
            self.parameters.epsilon.exp()
        } else {
            1.0
        } / self.parameters.normalizer();
        (row.squared_length * cap_density + 1.0 - row.squared_length).ln()
    }
}
