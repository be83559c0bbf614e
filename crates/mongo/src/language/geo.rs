//! Geometry on the sphere and on the plane.

use bson::{RawBsonRef, RawDocument};

use super::failure::{Failure, Result};
use super::path::Path;

/// Where a value must lie.
#[derive(Clone, Debug)]
pub struct Region {}

/// What a value must be near to.
#[derive(Clone, Debug)]
pub struct Near {}

impl Region {
    /// Reads `$geoWithin` or `$geoIntersects`.
    pub fn parse(_operator: &str, _value: RawBsonRef<'_>) -> Result<Self> {
        Err(Failure::coded(238, "geometry is not there yet"))
    }

    /// Whether a value lies there.
    pub fn holds(&self, _value: RawBsonRef<'_>) -> bool {
        false
    }
}

impl Near {
    /// Reads `$near` or `$nearSphere`.
    pub fn parse(_operator: &str, _value: RawBsonRef<'_>, _all: &RawDocument) -> Result<Self> {
        Err(Failure::coded(238, "geometry is not there yet"))
    }

    /// The distance of the nearest point at a path, if it is within the limits.
    pub fn distance_at(&self, _path: &Path, _document: &RawDocument) -> Option<f64> {
        None
    }
}
