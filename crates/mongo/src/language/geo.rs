//! Geometry for `$geoWithin`, `$geoIntersects`, `$near` and `$geoNear`.
//!
//! GeoJSON lives on a sphere: edges are parts of great circles, a polygon is what it encloses on the smaller side. Pairs of numbers
//! (`[x, y]`, `{lng: x, lat: y}`) live on a plane, or on the sphere where the operator says so. Distances on the sphere are in
//! metres for GeoJSON and in radians for pairs.

mod near;
mod shape;
mod sphere;

use bson::{RawBsonRef, RawDocument};
use model::cells::{self, Cell};

use super::failure::{Failure, Result};
use super::number::Number;
use super::value::shown_raw;
pub use near::{Near, NearStage};
use shape::{Shape, span_around};
use sphere::Vector;

/// The radius of the earth, in metres, as MongoDB has it.
const EARTH_METRES: f64 = 6_378_100.0;

/// A point by its two numbers: longitude and latitude, or x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    x: f64,
    y: f64,
}

/// Where a value must lie.
#[derive(Clone, Debug)]
pub struct Region {
    area: Area,
    /// Whether touching is enough.
    intersects: bool,
}

#[derive(Clone, Debug)]
enum Area {
    Shape(Shape),
    /// Left, bottom, right, top.
    Box(Point, Point),
    Polygon(Vec<Point>),
    Circle(Point, f64),
    /// The radius in radians.
    Cap(Vector, f64),
}

impl Region {
    /// Reads `$geoWithin` or `$geoIntersects`.
    pub fn parse(operator: &str, value: RawBsonRef<'_>) -> Result<Self> {
        let RawBsonRef::Document(spec) = value else {
            return Err(Failure::bad_value(format!("{operator} must be an object")));
        };
        let intersects = operator == "$geoIntersects";
        for element in spec.iter() {
            let (name, value) = element?;
            let area = match name.as_str() {
                "$geometry" => {
                    let RawBsonRef::Document(geometry) = value else {
                        return Err(Failure::bad_value("$geometry must be an object"));
                    };
                    let shape = Shape::parse(geometry)?;
                    if !intersects && !shape.has_area() {
                        return Err(Failure::bad_value(format!(
                            "$within not supported with provided geometry: {}",
                            shown_raw(value)
                        )));
                    }
                    Area::Shape(shape)
                }
                _ if intersects => {
                    return Err(Failure::bad_value(format!(
                        "unknown geo specifier: {name}: {}",
                        shown_raw(value)
                    )));
                }
                "$box" => {
                    let corners = points(value)?;
                    let [a, b] = corners[..] else {
                        return Err(Failure::bad_value("$box needs two corners"));
                    };
                    Area::Box(
                        Point { x: a.x.min(b.x), y: a.y.min(b.y) },
                        Point { x: a.x.max(b.x), y: a.y.max(b.y) },
                    )
                }
                "$polygon" => {
                    let ring = points(value)?;
                    if ring.len() < 3 {
                        return Err(Failure::bad_value("Polygon must have at least 3 points"));
                    }
                    Area::Polygon(ring)
                }
                "$center" => {
                    let (centre, radius) = circle(value)?;
                    Area::Circle(centre, radius)
                }
                "$centerSphere" => {
                    let (centre, radius) = circle(value)?;
                    Area::Cap(Vector::of(centre), radius)
                }
                // What `$near` also takes; harmless here.
                "$maxDistance" | "$minDistance" => continue,
                other => {
                    return Err(Failure::bad_value(format!(
                        "unknown geo specifier: {other}: {}",
                        shown_raw(value)
                    )));
                }
            };
            return Ok(Self { area, intersects });
        }
        Err(Failure::bad_value(format!("{operator} must contain a geometry")))
    }

    /// The cells in which all that lies there is kept; none where it is no place on the sphere.
    pub fn cells(&self) -> Option<Vec<Cell>> {
        let spans = match &self.area {
            Area::Shape(shape) => shape.spans(),
            Area::Cap(centre, radius) => vec![span_around(*centre, *radius)],
            Area::Box(..) | Area::Polygon(_) | Area::Circle(..) => return None,
        };
        Some(cells::cover(&spans, cells::REGION_CELLS_MAX))
    }

    /// Whether a value, or an element of an array of geometries, lies there.
    pub fn holds(&self, value: RawBsonRef<'_>) -> bool {
        let mut found = false;
        each_shape(value, &mut |shape| found |= self.holds_shape(shape));
        found
    }

    fn holds_shape(&self, shape: &Shape) -> bool {
        let all = |inside: &dyn Fn(Point) -> bool| shape.points().all(inside);
        match &self.area {
            Area::Shape(area) if self.intersects => area.intersects(shape),
            Area::Shape(area) => area.contains(shape),
            Area::Box(low, high) => {
                all(&|p| (low.x..=high.x).contains(&p.x) && (low.y..=high.y).contains(&p.y))
            }
            Area::Polygon(ring) => all(&|p| in_flat_ring(p, ring)),
            Area::Circle(centre, radius) => all(&|p| flat_distance(p, *centre) <= *radius),
            Area::Cap(centre, radius) => all(&|p| Vector::of(p).angle(*centre) <= *radius),
        }
    }
}

/// Shows the geometry that a value is, or those that are an array's elements.
fn each_shape(value: RawBsonRef<'_>, see: &mut dyn FnMut(&Shape)) {
    if let Some(shape) = Shape::of(value) {
        see(&shape);
    } else if let RawBsonRef::Array(array) = value {
        for item in array.into_iter().flatten() {
            if let Some(shape) = Shape::of(item) {
                see(&shape);
            }
        }
    }
}

/// `[x, y]` or a document whose first two fields are numbers.
fn pair(value: RawBsonRef<'_>) -> Option<Point> {
    let numbers = |mut values: Box<dyn Iterator<Item = RawBsonRef<'_>> + '_>| {
        let x = Number::of(values.next()?)?.to_f64();
        let y = Number::of(values.next()?)?.to_f64();
        (x.is_finite() && y.is_finite()).then_some(Point { x, y })
    };
    match value {
        RawBsonRef::Array(array) => numbers(Box::new(array.into_iter().flatten())),
        RawBsonRef::Document(document) => {
            numbers(Box::new(document.iter().flatten().map(|(_, value)| value)))
        }
        _ => None,
    }
}

fn points(value: RawBsonRef<'_>) -> Result<Vec<Point>> {
    let wrong = || Failure::bad_value("Point must be an array or object of two numbers");
    match value {
        RawBsonRef::Array(array) => {
            array.into_iter().map(|item| pair(item?).ok_or_else(wrong)).collect()
        }
        RawBsonRef::Document(document) => {
            document.iter().map(|item| pair(item?.1).ok_or_else(wrong)).collect()
        }
        _ => Err(wrong()),
    }
}

/// `[[x, y], radius]`.
fn circle(value: RawBsonRef<'_>) -> Result<(Point, f64)> {
    let wrong = || Failure::bad_value("a circle needs a centre and a radius that is not negative");
    let RawBsonRef::Array(array) = value else { return Err(wrong()) };
    let mut parts = array.into_iter();
    let (Some(centre), Some(radius)) = (parts.next(), parts.next()) else { return Err(wrong()) };
    let centre = pair(centre?).ok_or_else(wrong)?;
    let radius = Number::of(radius?).map(Number::to_f64).filter(|radius| *radius >= 0.0);
    Ok((centre, radius.ok_or_else(wrong)?))
}

fn flat_distance(a: Point, b: Point) -> f64 {
    (a.x - b.x).hypot(a.y - b.y)
}

/// Whether a point lies in a polygon on the plane; its border belongs to it.
fn in_flat_ring(p: Point, ring: &[Point]) -> bool {
    let mut inside = false;
    for (at, a) in ring.iter().enumerate() {
        let b = ring[(at + 1) % ring.len()];
        let cross = (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x);
        let within = p.x >= a.x.min(b.x)
            && p.x <= a.x.max(b.x)
            && p.y >= a.y.min(b.y)
            && p.y <= a.y.max(b.y);
        if cross == 0.0 && within {
            return true;
        }
        if (a.y > p.y) != (b.y > p.y) && p.x < (b.x - a.x) * (p.y - a.y) / (b.y - a.y) + a.x {
            inside = !inside;
        }
    }
    inside
}

/// The cells to keep a value under: of its geometry, or of those that are its elements.
pub fn cells_of(value: RawBsonRef<'_>) -> Vec<Cell> {
    let mut spans = Vec::new();
    each_shape(value, &mut |shape| spans.extend(shape.spans()));
    match spans.is_empty() {
        true => Vec::new(),
        false => cells::cover(&spans, cells::SHAPE_CELLS_MAX),
    }
}

/// The GeoJSON geometry of a document, checked.
pub fn check(document: &RawDocument) -> Result<()> {
    Shape::parse(document).map(drop)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, RawDocumentBuf, doc};

    use super::*;

    /// A shape: near poles, the date line and borders of cells, or anywhere.
    fn shape(random: &mut fastrand::Rng, spread: f64) -> Document {
        let special = [(0.0, 0.0), (179.9, 10.0), (-180.0, -45.0), (20.0, 89.0), (-70.0, -89.5)];
        let (x, y) = match random.bool() {
            true => special[random.usize(..special.len())],
            false => (random.f64() * 360.0 - 180.0, random.f64() * 180.0 - 90.0),
        };
        let place = |angle: f64, far: f64| {
            let longitude = x + angle.cos() * spread * far;
            let longitude = longitude - 360.0 * (longitude / 360.0).round();
            let latitude = (y + angle.sin() * spread * far).clamp(-90.0, 90.0);
            Bson::from(vec![Bson::from(longitude), Bson::from(latitude)])
        };
        match random.u8(..4) {
            0 => doc! {"type": "Point", "coordinates": place(0.0, 0.0)},
            1 => {
                let ends = [random.f64() * 6.0, random.f64() * 6.0].map(|angle| place(angle, 1.0));
                doc! {"type": "LineString", "coordinates": ends.to_vec()}
            }
            2 => doc! {"type": "MultiPoint", "coordinates": [place(0.0, 0.0), place(1.0, 1.0)]},
            _ => {
                let mut ring = [0.1, 1.3, 2.9, 4.4, 5.6].map(|angle| place(angle, 1.0)).to_vec();
                ring.push(ring[0].clone());
                doc! {"type": "Polygon", "coordinates": [ring]}
            }
        }
    }

    /// The promise of the index: what a condition would find is kept where its cells lead.
    #[test]
    fn what_lies_in_a_region_is_kept_in_its_cells() {
        let related = |a: &[Cell], b: &[Cell]| {
            a.iter().any(|a| b.iter().any(|b| a.starts_with(b) || b.starts_with(a)))
        };
        let seed = 5;
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut found, mut apart) = (0, 0);
        for _ in 0..4_000 {
            let spread = [0.001, 0.5, 5.0, 30.0][random.usize(..4)];
            let (kept, asked) = (shape(&mut random, spread), shape(&mut random, spread));
            let metres = random.f64() * 3e6;
            let holder = RawDocumentBuf::try_from(&doc! {"at": kept.clone()}).unwrap();
            let value = holder.get("at").unwrap().unwrap();
            let cells = cells_of(value);
            assert!(!cells.is_empty(), "{kept}");
            let mut look = |holds: bool, wanted: Option<Vec<Cell>>| {
                let Some(wanted) = wanted else { return };
                let meets = related(&cells, &wanted);
                assert!(meets || !holds, "seed {seed}: {kept} in {asked} within {metres}");
                found += usize::from(holds);
                apart += usize::from(!meets);
            };
            for operator in ["$geoIntersects", "$geoWithin"] {
                let spec = RawDocumentBuf::try_from(&doc! {"$geometry": asked.clone()}).unwrap();
                if let Ok(region) = Region::parse(operator, RawBsonRef::Document(&spec)) {
                    look(region.holds(value), region.cells());
                }
            }
            if asked.get_str("type").is_ok_and(|kind| kind == "Point") {
                let spec = doc! {"$geometry": asked.clone(), "$maxDistance": metres};
                let spec = RawDocumentBuf::try_from(&spec).unwrap();
                let near = Near::parse("$near", RawBsonRef::Document(&spec), &spec).unwrap();
                let path = crate::language::path::Path::new("at");
                look(near.distance_at(&path, &holder).is_some(), near.cells());
                let centre = asked.get_array("coordinates").unwrap().clone();
                let cap = doc! {"$centerSphere": [centre, metres / EARTH_METRES]};
                let cap = RawDocumentBuf::try_from(&cap).unwrap();
                let cap = Region::parse("$geoWithin", RawBsonRef::Document(&cap)).unwrap();
                look(cap.holds(value), cap.cells());
            }
        }
        assert!(found > 300 && apart > 1_000, "{found} found, {apart} apart");
    }
}
