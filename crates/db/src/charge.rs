//! What operations cost, in request units.

/// Request units.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct RequestCharge(pub f64);
