//! ST_DISTANCE and its kin: GeoJSON on the WGS-84 ellipsoid, in metres and square metres; or on a plane, if the container says so.

use serde_json::json;

use super::geometry::Geometry;
use super::{Body, Function, plane, pure};
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
    pure("ST_ISVALIDDETAILED", (1, 1), |_, args| detailed(validity(&args[0]))),
    pure("ST_WITHIN", (2, 2), |_, args| match (read(&args[0]), read(&args[1])) {
        (Some(a), Some(b)) => a.is_within(&b).into(),
        _ => Value::Undefined,
    }),
];

/// What these functions do on a plane.
pub const ON_PLANE: &[Function] = &[
    flat("ST_AREA", (1, 1), |_, args| read_flat(&args[0]).map(|shape| plane::area(&shape)).into()),
    flat("ST_DISTANCE", (2, 2), |_, args| both_flat(args, plane::distance)),
    flat("ST_INTERSECTS", (2, 2), |_, args| both_flat(args, plane::intersects)),
    flat("ST_ISVALID", (1, 1), |_, args| match flat_validity(&args[0]) {
        None => Value::Undefined,
        Some(validity) => validity.is_ok().into(),
    }),
    flat("ST_ISVALIDDETAILED", (1, 1), |_, args| detailed(flat_validity(&args[0]))),
    flat("ST_WITHIN", (2, 2), |_, args| both_flat(args, plane::is_within)),
];

const fn flat(name: &'static str, args: (usize, usize), body: Body) -> Function {
    Function { flat: true, ..pure(name, args, body) }
}

fn read_flat(value: &Value<'_>) -> Option<Geometry> {
    Geometry::parse_flat(&value.to_json()?).ok()
}

fn both_flat<'a, T: Into<Value<'a>>>(
    args: &[Value<'a>],
    relation: fn(&Geometry, &Geometry) -> T,
) -> Value<'a> {
    match (read_flat(&args[0]), read_flat(&args[1])) {
        (Some(a), Some(b)) => relation(&a, &b).into(),
        _ => Value::Undefined,
    }
}

fn flat_validity(value: &Value<'_>) -> Option<Result<(), &'static str>> {
    value.to_json().map(|json| Geometry::parse_flat(&json).map(|_| ()))
}

fn detailed<'a>(validity: Option<Result<(), &'static str>>) -> Value<'a> {
    match validity {
        None => Value::Undefined,
        Some(Ok(())) => Value::built(json!({"valid": true})),
        Some(Err(reason)) => Value::built(json!({"valid": false, "reason": reason})),
    }
}

fn read(value: &Value<'_>) -> Option<Geometry> {
    Geometry::parse(&value.to_json()?).ok()
}

/// Whether a defined value is GeoJSON, or why not.
fn validity(value: &Value<'_>) -> Option<Result<(), &'static str>> {
    value.to_json().map(|json| Geometry::parse(&json).map(|_| ()))
}
