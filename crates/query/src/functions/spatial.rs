//! ST_DISTANCE and its kin: GeoJSON on the WGS-84 ellipsoid, in metres and square metres.

use serde_json::json;

use super::geometry::Geometry;
use super::{Function, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("ST_AREA", (1, 1), |_, args| read(&args[0]).map(|geometry| geometry.area()).into()),
    pure("ST_DISTANCE", (2, 2), |_, args| match (read(&args[0]), read(&args[1])) {
        (Some(a), Some(b)) => a.distance(&b).into(),
        _ => Value::Undefined,
    }),
    pure("ST_INTERSECTS", (2, 2), |_, args| match (read(&args[0]), read(&args[1])) {
        (Some(a), Some(b)) => a.intersects(&b).into(),
        _ => Value::Undefined,
    }),
    pure("ST_ISVALID", (1, 1), |_, args| match validity(&args[0]) {
        None => Value::Undefined,
        Some(validity) => validity.is_ok().into(),
    }),
    pure("ST_ISVALIDDETAILED", (1, 1), |_, args| match validity(&args[0]) {
        None => Value::Undefined,
        Some(Ok(())) => Value::built(json!({"valid": true})),
        Some(Err(reason)) => Value::built(json!({"valid": false, "reason": reason})),
    }),
    pure("ST_WITHIN", (2, 2), |_, args| match (read(&args[0]), read(&args[1])) {
        (Some(a), Some(b)) => a.is_within(&b).into(),
        _ => Value::Undefined,
    }),
];

fn read(value: &Value<'_>) -> Option<Geometry> {
    Geometry::parse(&value.to_json()?).ok()
}

/// Whether a defined value is GeoJSON, or why not.
fn validity(value: &Value<'_>) -> Option<Result<(), &'static str>> {
    value.to_json().map(|json| Geometry::parse(&json).map(|_| ()))
}
