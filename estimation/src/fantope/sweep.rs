//! Everything elementwise of one ADMM iteration, in one pass over the lower triangles.

use nalgebra::DMatrix;

use super::admm::RELAXATION;

/// Sums over the whole symmetric matrices.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    /// ‖X − Y‖².
    pub(super) primal: f64,
    /// ‖Y − Y_prev‖².
    pub(super) moved: f64,
    /// ‖X‖².
    pub(super) x: f64,
    /// ‖Y‖².
    pub(super) y: f64,
    /// ‖U‖².
    pub(super) u: f64,
    /// ⟨S, X⟩.
    pub(super) linear: f64,
    /// Σ_{i≠j} |Xᵢⱼ|.
    pub(super) penalty: f64,
}

/// Independent partial sums, so that the pass vectorises.
const LANES: usize = 4;

/// Y and U of the next iteration, the matrix to project then, and the sums the stop rule needs.
pub(super) fn sweep(
    x: &DMatrix<f64>,
    s: &DMatrix<f64>,
    y: &mut DMatrix<f64>,
    u: &mut DMatrix<f64>,
    target: &mut DMatrix<f64>,
    step: f64,
    rho: f64,
) -> Sums {
    let p = x.nrows();
    let inverse = 1.0 / rho;
    let mut lanes = [Sums::default(); LANES];
    let mut diagonal = Sums::default();
    let (x, s) = (x.as_slice(), s.as_slice());
    let (y, u, target) = (y.as_mut_slice(), u.as_mut_slice(), target.as_mut_slice());
    for j in 0..p {
        let d = j * p + j;
        let relaxed = RELAXATION * x[d] + (1.0 - RELAXATION) * y[d];
        diagonal.primal += (x[d] - relaxed).powi(2);
        diagonal.moved += (relaxed - y[d]).powi(2);
        diagonal.x += x[d] * x[d];
        diagonal.y += relaxed * relaxed;
        diagonal.linear += s[d] * x[d];
        y[d] = relaxed;
        u[d] = 0.0;
        target[d] = relaxed + s[d] * inverse;
        let below = d + 1..(j + 1) * p;
        let (x, s) = (&x[below.clone()], &s[below.clone()]);
        let y = &mut y[below.clone()];
        let u = &mut u[below.clone()];
        let target = &mut target[below];
        let (x4, x_rest) = x.as_chunks::<LANES>();
        let (s4, s_rest) = s.as_chunks::<LANES>();
        let (y4, y_rest) = y.as_chunks_mut::<LANES>();
        let (u4, u_rest) = u.as_chunks_mut::<LANES>();
        let (t4, t_rest) = target.as_chunks_mut::<LANES>();
        for ((((x, s), y), u), t) in x4.iter().zip(s4).zip(y4).zip(u4).zip(t4) {
            for l in 0..LANES {
                entry(
                    x[l],
                    s[l],
                    &mut y[l],
                    &mut u[l],
                    &mut t[l],
                    step,
                    inverse,
                    &mut lanes[l],
                );
            }
        }
        let rest = x_rest
            .iter()
            .zip(s_rest)
            .zip(y_rest)
            .zip(u_rest)
            .zip(t_rest);
        for ((((x, s), y), u), t) in rest {
            entry(*x, *s, y, u, t, step, inverse, &mut lanes[0]);
        }
    }
    let total = |of: fn(&Sums) -> f64| 2.0 * lanes.iter().map(of).sum::<f64>() + of(&diagonal);
    Sums {
        primal: total(|sums| sums.primal),
        moved: total(|sums| sums.moved),
        x: total(|sums| sums.x),
        y: total(|sums| sums.y),
        u: total(|sums| sums.u),
        linear: total(|sums| sums.linear),
        penalty: total(|sums| sums.penalty),
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "one entry of each of the matrices"
)]
#[inline(always)]
fn entry(
    x: f64,
    s: f64,
    y: &mut f64,
    u: &mut f64,
    target: &mut f64,
    step: f64,
    inverse: f64,
    sums: &mut Sums,
) {
    let w = RELAXATION * x + (1.0 - RELAXATION) * *y + *u;
    // Not `clamp`, whose check of the bounds stands in the way of vector code.
    let clipped = w.min(step).max(-step);
    let next = w - clipped;
    sums.primal += (x - next) * (x - next);
    sums.moved += (next - *y) * (next - *y);
    sums.x += x * x;
    sums.y += next * next;
    sums.u += clipped * clipped;
    sums.linear += s * x;
    sums.penalty += x.abs();
    *y = next;
    *u = clipped;
    *target = next - clipped + s * inverse;
}
