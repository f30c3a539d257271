//! What device, server and analyst send each other.

pub mod api;
pub mod enrolment;
pub mod estimate;
pub mod report;
pub mod site_estimate;
