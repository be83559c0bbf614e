//! Distances: `$near`, `$nearSphere` and the stage `$geoNear`.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use model::cells::{self, Cell, Span};

use super::shape::{Shape, span_around};
use super::sphere::Vector;
use super::{EARTH_METRES, Point, each_shape, flat_distance, pair};
use crate::language::aggregate::with_field;
use crate::language::failure::{Failure, Result};
use crate::language::filter::Filter;
use crate::language::number::Number;
use crate::language::path::{Leaf, Path};
use crate::language::value::shown_raw;
use crate::language::vars::Vars;

/// What a value must be near to, and how near.
#[derive(Clone, Debug)]
pub struct Near {
    centre: Point,
    measure: Measure,
    min: f64,
    max: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    Metres,
    Radians,
    Flat,
}

impl Near {
    /// Reads `$near` or `$nearSphere`; the limits of pairs stand beside the operator, in `all`.
    pub fn parse(operator: &str, value: RawBsonRef<'_>, all: &RawDocument) -> Result<Self> {
        let spherical = operator == "$nearSphere";
        let geometry = match value {
            RawBsonRef::Document(spec) => spec.get("$geometry")?,
            _ => None,
        };
        match (geometry, value) {
            (Some(geometry), RawBsonRef::Document(spec)) => {
                let mut near = Self::around(geometry, true)?;
                near.limit(spec)?;
                Ok(near)
            }
            (_, value) => {
                let mut near = Self::around(value, spherical)?;
                near.limit(all)?;
                Ok(near)
            }
        }
    }

    fn around(value: RawBsonRef<'_>, spherical: bool) -> Result<Self> {
        let wrong =
            || Failure::bad_value(format!("$near requires a point, given {}", shown_raw(value)));
        let (centre, measure) = match value {
            RawBsonRef::Document(document)
                if matches!(document.get("type")?, Some(RawBsonRef::String(_))) =>
            {
                let shape = Shape::parse(document)?;
                let mut points = shape.points();
                let centre = points.next().ok_or_else(wrong)?;
                if points.next().is_some() {
                    return Err(wrong());
                }
                (centre, Measure::Metres)
            }
            value => {
                let measure = if spherical { Measure::Radians } else { Measure::Flat };
                (pair(value).ok_or_else(wrong)?, measure)
            }
        };
        Ok(Self { centre, measure, min: 0.0, max: f64::INFINITY })
    }

    fn limit(&mut self, spec: &RawDocument) -> Result<()> {
        for (name, slot) in [("maxDistance", &mut self.max), ("minDistance", &mut self.min)] {
            let given = match spec.get(format!("${name}"))? {
                Some(value) => Some(value),
                None => spec.get(name)?,
            };
            if let Some(value) = given {
                *slot = Number::of(value)
                    .map(Number::to_f64)
                    .filter(|distance| *distance >= 0.0)
                    .ok_or_else(|| {
                    Failure::bad_value(format!("{name} must be a non-negative number"))
                })?;
            }
        }
        Ok(())
    }

    /// The cells in which all that is near enough is kept; none on the plane.
    pub fn cells(&self) -> Option<Vec<Cell>> {
        let radius = match self.measure {
            Measure::Metres => self.max / EARTH_METRES,
            Measure::Radians => self.max,
            Measure::Flat => return None,
        };
        let span = match radius < std::f64::consts::PI {
            true => span_around(Vector::of(self.centre), radius),
            false => Span::WORLD,
        };
        Some(cells::cover(&[span], cells::REGION_CELLS_MAX))
    }

    /// The distance of the nearest geometry at a path, if it is within the limits.
    pub fn distance_at(&self, path: &Path, document: &RawDocument) -> Option<f64> {
        let mut best: Option<f64> = None;
        path.each(document, Leaf::Keep, |found| {
            let Some(value) = found.value else { return };
            each_shape(value, &mut |shape| {
                let distance = self.distance(shape);
                if best.is_none_or(|best| distance < best) {
                    best = Some(distance);
                }
            });
        });
        best.filter(|distance| (self.min..=self.max).contains(distance))
    }

    fn distance(&self, shape: &Shape) -> f64 {
        match self.measure {
            Measure::Metres => shape.angle_to(Vector::of(self.centre)) * EARTH_METRES,
            Measure::Radians => shape.angle_to(Vector::of(self.centre)),
            Measure::Flat => shape
                .points()
                .map(|point| flat_distance(point, self.centre))
                .fold(f64::INFINITY, f64::min),
        }
    }

    /// Reads the stage `$geoNear`.
    pub fn parse_stage(spec: &RawDocument, vars: &Vars) -> Result<NearStage> {
        let flag = |name: &str| -> Result<bool> {
            Ok(spec.get(name)?.and_then(RawBsonRef::as_bool).unwrap_or(false))
        };
        let centre = spec
            .get("near")?
            .ok_or_else(|| Failure::coded(5860400, "$geoNear requires a 'near' argument"))?;
        let mut near = Self::around(centre, flag("spherical")?)?;
        near.limit(spec)?;
        let Some(RawBsonRef::String(distance_field)) = spec.get("distanceField")? else {
            return Err(Failure::coded(
                16606,
                "$geoNear requires a 'distanceField' option as a String",
            ));
        };
        let Some(RawBsonRef::String(key)) = spec.get("key")? else {
            return Err(Failure::coded(
                27,
                "$geoNear requires a 2d or 2dsphere index, but none were found",
            ));
        };
        let multiplier = match spec.get("distanceMultiplier")? {
            None => 1.0,
            Some(value) => {
                Number::of(value).map(Number::to_f64).filter(|n| *n >= 0.0).ok_or_else(|| {
                    Failure::coded(
                        16828,
                        "$geoNear requires a 'distanceMultiplier' that is a nonnegative number",
                    )
                })?
            }
        };
        let filter = match spec.get("query")? {
            Some(RawBsonRef::Document(filter)) => Some(Filter::parse(filter, vars)?),
            _ => None,
        };
        Ok(NearStage {
            near,
            path: Path::new(key),
            filter,
            distance_field: distance_field.to_owned(),
            locations_field: spec
                .get("includeLocs")?
                .and_then(RawBsonRef::as_str)
                .map(str::to_owned),
            multiplier,
        })
    }
}

/// `$geoNear`: documents with their distance, the nearest first.
#[derive(Debug)]
pub struct NearStage {
    near: Near,
    path: Path,
    filter: Option<Filter>,
    distance_field: String,
    locations_field: Option<String>,
    multiplier: f64,
}

impl NearStage {
    /// What documents must be to come out of it.
    pub fn condition(&self) -> Filter {
        Filter::near_and(&self.path, &self.near, self.filter.as_ref())
    }

    /// Measures and sorts.
    pub fn run(&self, documents: Vec<RawDocumentBuf>) -> Result<Vec<RawDocumentBuf>> {
        let mut found = Vec::new();
        for document in documents {
            if let Some(filter) = &self.filter
                && !filter.matches(&document)?
            {
                continue;
            }
            let Some(distance) = self.near.distance_at(&self.path, &document) else { continue };
            let scaled = RawBsonRef::Double(distance * self.multiplier);
            let mut out = with_field(&document, &self.distance_field, Some(scaled))?;
            if let (Some(name), Some(place)) = (&self.locations_field, self.path.plain(&document)) {
                out = with_field(&out, name, Some(place))?;
            }
            found.push((distance, out));
        }
        found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(found.into_iter().map(|(_, document)| document).collect())
    }
}
