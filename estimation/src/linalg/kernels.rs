//! Calls of the library's kernels.

/// Calls kernels, and cleans the vector registers that they leave full.
///
/// The library's matrix products are assembly without `vzeroupper`. Until something executes it, each scalar instruction
/// on this thread waits for the upper halves of its registers: an accountant's logarithms took 25 times as long after a
/// product as before it.
pub(in crate::linalg) fn kernels<T>(call: impl FnOnce() -> T) -> T {
    let result = call();
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        // A function that has used these registers ends with the instruction.
        simd.vectorize(UseRegisters(simd));
    }
    result
}

#[cfg(target_arch = "x86_64")]
struct UseRegisters(pulp::x86::V3);

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for UseRegisters {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        std::hint::black_box(self.0.splat_f64x4(std::hint::black_box(0.0)));
    }
}
