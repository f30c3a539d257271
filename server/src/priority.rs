//! Threads that let others go first.

/// Gives the calling thread, and threads that it starts from now on, this nice value. On Linux the priority belongs to
/// the thread that asks; elsewhere it would be that of the whole process.
pub(crate) fn lower(nice: i32, what: &str) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice) {
        tracing::debug!(%error, "{what} keep their priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (nice, what);
}
