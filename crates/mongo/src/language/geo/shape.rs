//! GeoJSON geometries.

use bson::{RawBsonRef, RawDocument};
use model::cells::Span;

use super::sphere::{Vector, cross, cross_properly, edges, in_ring, on_ring};
use super::{Point, pair};
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::value::shown_raw;

/// A geometry: points, lines, and polygons with holes. All kinds of GeoJSON are some of each.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    flat: Vec<Point>,
    points: Vec<Vector>,
    lines: Vec<Vec<Vector>>,
    /// The first ring encloses, the others are holes.
    polygons: Vec<Vec<Vec<Vector>>>,
}

impl Shape {
    /// The geometry that a value is: GeoJSON, or a pair of numbers.
    pub fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Document(document)
                if matches!(document.get("type"), Ok(Some(RawBsonRef::String(_)))) =>
            {
                Self::parse(document).ok()
            }
            value => pair(value).map(|point| Self {
                flat: vec![point],
                points: vec![Vector::of(point)],
                ..Self::default()
            }),
        }
    }

    /// Reads GeoJSON.
    pub fn parse(document: &RawDocument) -> Result<Self> {
        let mut shape = Self::default();
        shape.add(document, 0)?;
        Ok(shape)
    }

    fn add(&mut self, document: &RawDocument, depth: usize) -> Result<()> {
        let unknown =
            || Failure::bad_value(format!("unknown GeoJSON type: {}", shown_raw(document.into())));
        let Some(RawBsonRef::String(kind)) = document.get("type")? else { return Err(unknown()) };
        if kind == "GeometryCollection" {
            let Some(RawBsonRef::Array(geometries)) = document.get("geometries")? else {
                return Err(Failure::bad_value("GeometryCollection geometries must be an array"));
            };
            for geometry in geometries {
                match geometry? {
                    RawBsonRef::Document(geometry) if depth < 4 => self.add(geometry, depth + 1)?,
                    _ => {
                        return Err(Failure::bad_value(
                            "Element of \"geometries\" must be an object",
                        ));
                    }
                }
            }
            return Ok(());
        }
        let coordinates = document
            .get("coordinates")?
            .ok_or_else(|| Failure::bad_value(format!("{kind} must have coordinates")))?;
        match kind {
            "Point" => {
                let point = self.point(coordinates)?;
                self.points.push(point);
            }
            "MultiPoint" => {
                for each in items(coordinates)? {
                    let point = self.point(each)?;
                    self.points.push(point);
                }
            }
            "LineString" => {
                let line = self.line(coordinates, 2)?;
                self.lines.push(line);
            }
            "MultiLineString" => {
                for each in items(coordinates)? {
                    let line = self.line(each, 2)?;
                    self.lines.push(line);
                }
            }
            "Polygon" => {
                let polygon = self.polygon(coordinates)?;
                self.polygons.push(polygon);
            }
            "MultiPolygon" => {
                for each in items(coordinates)? {
                    let polygon = self.polygon(each)?;
                    self.polygons.push(polygon);
                }
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn point(&mut self, value: RawBsonRef<'_>) -> Result<Vector> {
        let wrong = || Failure::bad_value("Point must only contain numeric elements");
        let RawBsonRef::Array(array) = value else {
            return Err(Failure::bad_value("Point must be an array or object"));
        };
        let mut numbers = array.into_iter();
        let mut next = || -> Result<f64> {
            Number::of(numbers.next().ok_or_else(wrong)??).map(Number::to_f64).ok_or_else(wrong)
        };
        let point = Point { x: next()?, y: next()? };
        if !(-180.0..=180.0).contains(&point.x) || !(-90.0..=90.0).contains(&point.y) {
            return Err(Failure::bad_value(format!(
                "longitude/latitude is out of bounds, lng: {} lat: {}",
                point.x, point.y
            )));
        }
        self.flat.push(point);
        Ok(Vector::of(point))
    }

    fn line(&mut self, value: RawBsonRef<'_>, min: usize) -> Result<Vec<Vector>> {
        let mut line = Vec::new();
        for each in items(value)? {
            line.push(self.point(each)?);
        }
        if line.len() < min {
            return Err(Failure::bad_value(format!(
                "GeoJSON LineString must have at least {min} vertices: {}",
                shown_raw(value)
            )));
        }
        Ok(line)
    }

    fn polygon(&mut self, value: RawBsonRef<'_>) -> Result<Vec<Vec<Vector>>> {
        let mut rings = Vec::new();
        for each in items(value)? {
            let ring = self.line(each, 2)?;
            if ring.len() < 4 {
                return Err(Failure::bad_value(format!(
                    "Loop must have at least 3 different vertices: {}",
                    shown_raw(each)
                )));
            }
            if ring.first() != ring.last() {
                return Err(Failure::bad_value(format!("Loop is not closed: {}", shown_raw(each))));
            }
            rings.push(ring);
        }
        if rings.is_empty() {
            return Err(Failure::bad_value("Polygon has no loops."));
        }
        Ok(rings)
    }

    /// Spans of the world that hold all of it.
    ///
    /// What lies within less than a quarter of a turn from a middle has its edges, and what they enclose, there too.
    pub fn spans(&self) -> Vec<Span> {
        let lines = self.lines.iter().map(Vec::as_slice);
        let borders = self.polygons.iter().filter_map(|rings| rings.first()).map(Vec::as_slice);
        let points = self.points.iter().map(std::slice::from_ref);
        points
            .chain(lines)
            .chain(borders)
            .map(|part| match Vector::middle(part) {
                Some((middle, radius)) if radius < 1.5 => span_around(middle, radius),
                _ => Span::WORLD,
            })
            .collect()
    }

    /// Whether something can lie in it.
    pub fn has_area(&self) -> bool {
        !self.polygons.is_empty() && self.points.is_empty() && self.lines.is_empty()
    }

    /// All its corners.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.flat.iter().copied()
    }

    /// How far a point is from it, as an angle.
    pub fn angle_to(&self, point: Vector) -> f64 {
        if self.covers(point) {
            return 0.0;
        }
        let points = self.points.iter().map(|each| point.angle(*each));
        let edges = self.lines().map(|(a, b)| point.angle_to_edge(a, b));
        points.chain(edges).fold(f64::INFINITY, f64::min)
    }

    /// Edges of lines and borders.
    fn lines(&self) -> impl Iterator<Item = (Vector, Vector)> + '_ {
        self.lines.iter().chain(self.polygons.iter().flatten()).flat_map(|line| edges(line))
    }

    /// Corners of everything.
    fn corners(&self) -> impl Iterator<Item = Vector> + '_ {
        let borders = self.lines.iter().chain(self.polygons.iter().flatten()).flatten();
        self.points.iter().chain(borders).copied()
    }

    /// Whether a point lies in one of the polygons.
    fn covers(&self, point: Vector) -> bool {
        self.polygons.iter().any(|rings| {
            let mut rings = rings.iter();
            let inside = rings.next().is_some_and(|outer| in_ring(point, outer));
            inside && rings.all(|hole| !in_ring(point, hole) || on_ring(point, hole))
        })
    }

    /// Whether all of another lies in it.
    pub fn contains(&self, other: &Self) -> bool {
        let crossing =
            || other.lines().any(|edge| self.lines().any(|border| cross_properly(edge, border)));
        other.corners().all(|corner| self.covers(corner)) && !crossing()
    }

    /// Whether they have a point in common.
    pub fn intersects(&self, other: &Self) -> bool {
        let same = |point: Vector| self.points.iter().any(|own| own.angle(point) < 1e-9);
        let touched = |shape: &Self, point: Vector| {
            shape.covers(point) || shape.lines().any(|(a, b)| point.angle_to_edge(a, b) < 1e-9)
        };
        other.points.iter().any(|point| same(*point))
            || other.corners().any(|corner| touched(self, corner))
            || self.corners().any(|corner| touched(other, corner))
            || self.lines().any(|own| other.lines().any(|their| cross(own, their)))
    }
}

/// A span of the world that holds all within so many radians of a place.
pub fn span_around(centre: Vector, radius: f64) -> Span {
    let Point { x, y } = centre.to_point();
    Span::place(x, y).widened(radius.to_degrees())
}

fn items(value: RawBsonRef<'_>) -> Result<Vec<RawBsonRef<'_>>> {
    let RawBsonRef::Array(array) = value else {
        return Err(Failure::bad_value("GeoJSON coordinates must be an array of coordinates"));
    };
    let mut out = Vec::new();
    for item in array {
        out.push(item?);
    }
    Ok(out)
}
