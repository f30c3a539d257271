//! All elementwise work of one ADMM iteration, in one pass over the lower triangles.
//!
//! The state is `W = Y + U`, from which both are recovered: `U = clip(W, ±λ/ρ)` off the diagonal and 0 on it,
//! `Y = W − U`. X is never formed as a matrix: the pass computes a panel of its columns when it gets there.

use nalgebra::DMatrix;

use super::spectrum::Factor;
use crate::linalg::outer_columns_lower;

/// Sums over the whole symmetric matrices.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    /// ‖X − Y‖².
    pub(super) primal: f64,
    /// ‖Y − Y_prev‖².
    pub(super) dual_change: f64,
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

/// Over-relaxation α.
const RELAXATION: f64 = 1.6;
/// Columns of X made at a time: their lower part stays in the cache up to p of a few hundred.
pub(super) const PANEL: usize = 64;

/// Computes W and the matrix to project for the next iteration, and returns the sums for the stopping rule. `bound` is
/// the bound on the entries of U; `panel` is overwritten.
pub(super) fn elementwise_pass(
    x: &Factor,
    s: &DMatrix<f64>,
    w: &mut DMatrix<f64>,
    target: &mut DMatrix<f64>,
    panel: &mut DMatrix<f64>,
    bound: f64,
    rho: f64,
) -> Sums {
    let p = s.nrows();
    let inverse = 1.0 / rho;
    let mut lanes = [Sums::default(); LANES];
    let mut diagonal = Sums::default();
    let mut scaled = x.vectors.clone();
    for (mut column, &weight) in scaled.column_iter_mut().zip(&x.weights) {
        column *= weight;
    }
    let s = s.as_slice();
    let (w, target) = (w.as_mut_slice(), target.as_mut_slice());
    for j in 0..p {
        let within = j % PANEL;
        if within == 0 {
            outer_columns_lower(&scaled, &x.vectors, j, PANEL.min(p - j), panel);
        }
        // The panel's first row is the row of its first column.
        let x = &panel.as_slice()[within * p + within..within * p + p - (j - within)];
        let below = j * p + j..(j + 1) * p;
        let (s, w) = (&s[below.clone()], &mut w[below.clone()]);
        let target = &mut target[below];
        let relaxed = RELAXATION * x[0] + (1.0 - RELAXATION) * w[0];
        diagonal.primal += (x[0] - relaxed).powi(2);
        diagonal.dual_change += (relaxed - w[0]).powi(2);
        diagonal.x += x[0] * x[0];
        diagonal.y += relaxed * relaxed;
        diagonal.linear += s[0] * x[0];
        w[0] = relaxed;
        target[0] = relaxed + s[0] * inverse;
        let (x4, x_rest) = x[1..].as_chunks::<LANES>();
        let (s4, s_rest) = s[1..].as_chunks::<LANES>();
        let (w4, w_rest) = w[1..].as_chunks_mut::<LANES>();
        let (t4, t_rest) = target[1..].as_chunks_mut::<LANES>();
        for (((x, s), w), t) in x4.iter().zip(s4).zip(w4).zip(t4) {
            for l in 0..LANES {
                let entry = (x[l], s[l], &mut w[l], &mut t[l]);
                update(entry, bound, inverse, &mut lanes[l]);
            }
        }
        for (((x, s), w), t) in x_rest.iter().zip(s_rest).zip(w_rest).zip(t_rest) {
            update((*x, *s, w, t), bound, inverse, &mut lanes[0]);
        }
    }
    let total = |of: fn(&Sums) -> f64| 2.0 * lanes.iter().map(of).sum::<f64>() + of(&diagonal);
    Sums {
        primal: total(|sums| sums.primal),
        dual_change: total(|sums| sums.dual_change),
        x: total(|sums| sums.x),
        y: total(|sums| sums.y),
        u: total(|sums| sums.u),
        linear: total(|sums| sums.linear),
        penalty: total(|sums| sums.penalty),
    }
}

/// Updates one off-diagonal entry of W and the target, from those of X and S.
#[inline(always)]
fn update(
    (x, s, w, target): (f64, f64, &mut f64, &mut f64),
    bound: f64,
    inverse: f64,
    sums: &mut Sums,
) {
    let u = clip(*w, bound);
    let y = *w - u;
    let updated = RELAXATION * x + (1.0 - RELAXATION) * y + u;
    let clipped = clip(updated, bound);
    let next = updated - clipped;
    sums.primal += (x - next) * (x - next);
    sums.dual_change += (next - y) * (next - y);
    sums.x += x * x;
    sums.y += next * next;
    sums.u += clipped * clipped;
    sums.linear += s * x;
    sums.penalty += x.abs();
    *w = updated;
    *target = next - clipped + s * inverse;
}

/// Clips to [−bound, bound]; without `clamp`, whose check of the bounds prevents vectorisation.
#[inline(always)]
fn clip(w: f64, bound: f64) -> f64 {
    w.min(bound).max(-bound)
}

/// Writes `Y − U + S/ρ` for a given W into `target`.
pub(super) fn retarget(
    w: &DMatrix<f64>,
    s: &DMatrix<f64>,
    bound: f64,
    rho: f64,
    target: &mut DMatrix<f64>,
) {
    let inverse = 1.0 / rho;
    combine(w, s, target, |w, s| w - 2.0 * clip(w, bound) + s * inverse);
    for i in 0..w.nrows() {
        target[(i, i)] = w[(i, i)] + s[(i, i)] * inverse;
    }
}

/// Writes `S − ρU` for a given W into `out`; its k largest eigenvalues bound the optimum.
pub(super) fn dual_matrix(
    w: &DMatrix<f64>,
    s: &DMatrix<f64>,
    bound: f64,
    rho: f64,
    out: &mut DMatrix<f64>,
) {
    combine(w, s, out, |w, s| s - rho * clip(w, bound));
    for i in 0..w.nrows() {
        out[(i, i)] = s[(i, i)];
    }
}

/// Multiplies U by `factor` and leaves Y unchanged.
pub(super) fn rescale_dual(w: &mut DMatrix<f64>, bound: f64, factor: f64) {
    let p = w.nrows();
    for j in 0..p {
        for entry in &mut w.as_mut_slice()[j * p + j + 1..(j + 1) * p] {
            *entry += (factor - 1.0) * clip(*entry, bound);
        }
    }
}

fn combine(
    w: &DMatrix<f64>,
    s: &DMatrix<f64>,
    out: &mut DMatrix<f64>,
    of: impl Fn(f64, f64) -> f64,
) {
    let p = w.nrows();
    for j in 0..p {
        let below = j * p + j..(j + 1) * p;
        let entries = w.as_slice()[below.clone()]
            .iter()
            .zip(&s.as_slice()[below.clone()]);
        for (out, (w, s)) in out.as_mut_slice()[below].iter_mut().zip(entries) {
            *out = of(*w, *s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::outer_scaled;

    fn pattern(rows: usize, columns: usize, shift: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| {
            ((i * 7 + j * 3 + shift) % 11) as f64 / 5.0 - 1.0
        })
    }

    /// One pass agrees with the formulas on whole matrices, also for more than one panel.
    #[test]
    fn one_pass_equals_the_formulas() {
        let (bound, rho) = (0.3, 2.5);
        for p in [1, 5, PANEL, 2 * PANEL + 7] {
            let symmetric = |shift| {
                let full = pattern(p, p, shift);
                &full + full.transpose()
            };
            let (s, w) = (symmetric(1), symmetric(4));
            let x = Factor {
                vectors: pattern(p, 3, 2),
                weights: vec![1.0, 0.5, 0.25],
            };
            let dense = outer_scaled(&x.vectors, &x.weights);
            let split = |w: &DMatrix<f64>| {
                let mut u = w.map(|w| w.clamp(-bound, bound));
                u.fill_diagonal(0.0);
                (w - &u, u)
            };
            let (y, u) = split(&w);
            let expected = &dense * RELAXATION + &y * (1.0 - RELAXATION) + u;
            let (next, clipped) = split(&expected);
            let goal = &next - &clipped + &s / rho;
            let (mut ours, mut target) = (w, DMatrix::zeros(p, p));
            let mut panel = DMatrix::zeros(p, PANEL.min(p));
            let sums = elementwise_pass(&x, &s, &mut ours, &mut target, &mut panel, bound, rho);
            let lower = |m: DMatrix<f64>| m.lower_triangle();
            assert!(lower(&ours - &expected).amax() < 1e-12, "{p}");
            assert!(lower(&target - &goal).amax() < 1e-12, "{p}");
            let penalty = dense.abs().sum() - dense.diagonal().abs().sum();
            for (got, exact) in [
                (sums.primal, (&dense - &next).norm_squared()),
                (sums.dual_change, (&next - &y).norm_squared()),
                (sums.x, dense.norm_squared()),
                (sums.y, next.norm_squared()),
                (sums.u, clipped.norm_squared()),
                (sums.linear, s.dot(&dense)),
                (sums.penalty, penalty),
            ] {
                assert!((got - exact).abs() < 1e-9 * (1.0 + exact.abs()), "{p}");
            }
            retarget(&ours, &s, bound, rho, &mut target);
            assert!(lower(&target - &goal).amax() < 1e-12, "{p}");
            dual_matrix(&ours, &s, bound, rho, &mut target);
            assert!(lower(&target - (&s - &clipped * rho)).amax() < 1e-12, "{p}");
            rescale_dual(&mut ours, bound, 0.5);
            assert!(
                lower(&ours - (&next + &clipped * 0.5)).amax() < 1e-12,
                "{p}"
            );
        }
    }
}
