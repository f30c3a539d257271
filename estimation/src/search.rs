//! Search by halving an interval.

/// The interval that `steps` halvings leave, or as many as floating point allows; `below` tells whether the point sought
/// is above a number.
pub fn bisect(
    mut low: f64,
    mut high: f64,
    steps: usize,
    below: impl Fn(f64) -> bool,
) -> (f64, f64) {
    for _ in 0..steps {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low, high)
}
