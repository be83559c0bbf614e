//! Points, lines and polygons on the earth.
//!
//! Distances and areas are those of the ellipsoid. Which side of a line a point is on, and whether
//! lines cross, is decided on the sphere, where edges are great circles: for edges shorter than a
//! few hundred kilometres the difference is below the precision of any map.
//!
//! The ring of a polygon runs counter-clockwise around what it holds; one that runs clockwise holds
//! the rest of the world.

use geographiclib_rs::{Geodesic, InverseGeodesic, PolygonArea, Winding};
use serde_json::Value as Json;

/// A place: longitude and latitude in degrees, as GeoJSON orders them.
pub type Place = (f64, f64);
/// A direction from the centre of the earth.
type Vector = [f64; 3];

/// The area of the whole earth, in square metres.
const EARTH_AREA: f64 = 510_065_621_724_088.5;

/// A shape that GeoJSON describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Geometry {
    /// One place or several.
    Points(Vec<Place>),
    /// One line or several.
    Lines(Vec<Vec<Place>>),
    /// One polygon or several, each an outer ring and holes.
    Polygons(Vec<Vec<Vec<Place>>>),
}

impl Geometry {
    /// Reads GeoJSON; the error says what is wrong with it.
    pub fn parse(json: &Json) -> Result<Self, &'static str> {
        Self::parse_with(json, place)
    }

    /// The same on a plane, where coordinates have no bounds.
    pub fn parse_flat(json: &Json) -> Result<Self, &'static str> {
        Self::parse_with(json, flat_place)
    }

    fn parse_with(json: &Json, place: ReadPlace) -> Result<Self, &'static str> {
        let line = |json: &Json| line(json, place);
        let polygon = |json: &Json| polygon(json, place);
        let kind = json.get("type").and_then(Json::as_str);
        let kind = kind.ok_or("The value is not a GeoJSON object.")?;
        let coordinates = json.get("coordinates").ok_or("Coordinates are missing.")?;
        match kind {
            "Point" => Ok(Geometry::Points(vec![place(coordinates)?])),
            "MultiPoint" => Ok(Geometry::Points(list(coordinates, place)?)),
            "LineString" => Ok(Geometry::Lines(vec![line(coordinates)?])),
            "MultiLineString" => Ok(Geometry::Lines(list(coordinates, line)?)),
            "Polygon" => Ok(Geometry::Polygons(vec![polygon(coordinates)?])),
            "MultiPolygon" => Ok(Geometry::Polygons(list(coordinates, polygon)?)),
            _ => Err("The GeoJSON type is not supported."),
        }
    }

    /// In square metres; lines and points have none.
    pub fn area(&self) -> f64 {
        let Geometry::Polygons(polygons) = self else { return 0.0 };
        let areas = polygons.iter().map(|rings| {
            let mut rings = rings.iter().map(|ring| signed_area(ring));
            let outer = rings.next().unwrap_or(0.0);
            let outer = if outer < 0.0 { EARTH_AREA + outer } else { outer };
            outer - rings.map(f64::abs).sum::<f64>()
        });
        areas.sum()
    }

    /// The shortest way between two shapes, in metres.
    pub fn distance(&self, other: &Geometry) -> f64 {
        if self.intersects(other) {
            return 0.0;
        }
        let (a, b) = (self.edges(), other.edges());
        let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
        let distances = pairs.flat_map(|(a, b)| {
            [(a.0, b), (a.1, b), (b.0, a), (b.1, a)].map(|(place, edge)| to_edge(place, *edge))
        });
        distances.fold(f64::INFINITY, f64::min)
    }

    /// Whether the shapes have a place in common.
    pub fn intersects(&self, other: &Geometry) -> bool {
        let holds = |a: &Geometry, b: &Geometry| b.places().any(|place| a.holds(place));
        if holds(self, other) || holds(other, self) {
            return true;
        }
        let (a, b) = (self.edges(), other.edges());
        a.iter().any(|a| b.iter().any(|b| cross(*a, *b)))
    }

    /// Whether all of this shape lies in the other.
    pub fn is_within(&self, other: &Geometry) -> bool {
        if !self.places().all(|place| other.holds(place)) {
            return false;
        }
        let (a, b) = (self.edges(), other.edges());
        !a.iter().any(|a| b.iter().any(|b| cross(*a, *b)))
    }

    pub(super) fn places(&self) -> Box<dyn Iterator<Item = Place> + '_> {
        match self {
            Geometry::Points(points) => Box::new(points.iter().copied()),
            Geometry::Lines(lines) => Box::new(lines.iter().flatten().copied()),
            Geometry::Polygons(polygons) => Box::new(polygons.iter().flatten().flatten().copied()),
        }
    }

    /// The edges; a point is an edge without length.
    pub(super) fn edges(&self) -> Vec<(Place, Place)> {
        let of_line = |line: &Vec<Place>| -> Vec<(Place, Place)> {
            line.windows(2).map(|pair| (pair[0], pair[1])).collect()
        };
        match self {
            Geometry::Points(points) => points.iter().map(|place| (*place, *place)).collect(),
            Geometry::Lines(lines) => lines.iter().flat_map(of_line).collect(),
            Geometry::Polygons(polygons) => polygons.iter().flatten().flat_map(of_line).collect(),
        }
    }

    /// Whether a place belongs to the shape.
    fn holds(&self, place: Place) -> bool {
        /// How near, in metres, counts as on a line.
        const NEAR: f64 = 1e-3;
        match self {
            Geometry::Points(points) => points.iter().any(|p| metres(*p, place) < NEAR),
            Geometry::Lines(_) => self.edges().iter().any(|edge| to_edge(place, *edge) < NEAR),
            // The border belongs to a polygon.
            Geometry::Polygons(polygons) => polygons.iter().any(|rings| {
                let border =
                    |ring: &Vec<Place>| ring.windows(2).any(|e| touches(place, e[0], e[1]));
                let mut parts = rings.iter();
                rings.iter().any(border)
                    || parts.next().is_some_and(|outer| ring_holds(outer, place))
                        && !parts.any(|hole| encircles(hole, place))
            }),
        }
    }
}

/// How a position is read.
type ReadPlace = fn(&Json) -> Result<Place, &'static str>;

fn flat_place(json: &Json) -> Result<Place, &'static str> {
    let numbers = json.as_array().ok_or("A position must be an array of numbers.")?;
    let number = |i: usize| numbers.get(i).and_then(Json::as_f64);
    number(0).zip(number(1)).ok_or("A position must have at least two numbers.")
}

fn place(json: &Json) -> Result<Place, &'static str> {
    let (longitude, latitude) = flat_place(json)?;
    if !(-90.0..=90.0).contains(&latitude) {
        return Err("Latitude values must be between -90 and 90 degrees.");
    }
    if !(-180.0..=180.0).contains(&longitude) {
        return Err("Longitude values must be between -180 and 180 degrees.");
    }
    Ok((longitude, latitude))
}

fn list<T>(
    json: &Json,
    part: impl Fn(&Json) -> Result<T, &'static str>,
) -> Result<Vec<T>, &'static str> {
    let items = json.as_array().ok_or("Coordinates must be an array.")?;
    items.iter().map(part).collect()
}

fn line(json: &Json, place: ReadPlace) -> Result<Vec<Place>, &'static str> {
    let places = list(json, place)?;
    if places.len() < 2 {
        return Err("A LineString must have at least two positions.");
    }
    Ok(places)
}

fn polygon(json: &Json, place: ReadPlace) -> Result<Vec<Vec<Place>>, &'static str> {
    let rings = list(json, |ring| list(ring, place))?;
    if rings.is_empty() {
        return Err("A Polygon must have at least one ring.");
    }
    for ring in &rings {
        if ring.len() < 4 {
            return Err("A ring of a Polygon must have at least four positions.");
        }
        if ring.first() != ring.last() {
            return Err("The first and last positions of a ring must be the same.");
        }
    }
    Ok(rings)
}

/// The area within a ring: positive if it runs counter-clockwise.
fn signed_area(ring: &[Place]) -> f64 {
    let earth = Geodesic::wgs84();
    let mut polygon = PolygonArea::new(&earth, Winding::CounterClockwise);
    ring.iter().skip(1).for_each(|(longitude, latitude)| polygon.add_point(*latitude, *longitude));
    let (_, area, _) = polygon.compute(true);
    area
}

fn metres(a: Place, b: Place) -> f64 {
    Geodesic::wgs84().inverse(a.1, a.0, b.1, b.0)
}

/// Whether a ring runs clockwise, and so holds all but what it goes around.
pub fn is_clockwise(ring: &[Place]) -> bool {
    signed_area(ring) < 0.0
}

/// The southernmost and northernmost latitude of an edge, which may lie beyond both of its ends.
pub fn arc_latitudes(a: Place, b: Place) -> (f64, f64) {
    let (mut south, mut north) = (a.1.min(b.1), a.1.max(b.1));
    let (start, end) = (to_vector(a), to_vector(b));
    let normal = times(start, end);
    // Where the great circle comes nearest to a pole.
    let top = times(normal, times([0.0, 0.0, 1.0], normal));
    for (top, sign) in [(top, 1.0), (top.map(|x| -x), -1.0)] {
        let within = dot(times(start, top), normal) > 0.0 && dot(times(top, end), normal) > 0.0;
        if within && dot(top, top) > 0.0 {
            let latitude = to_place(top).1;
            if sign > 0.0 { north = north.max(latitude) } else { south = south.min(latitude) }
        }
    }
    (south, north)
}

/// Whether the side of a ring that it holds has a place.
fn ring_holds(ring: &[Place], place: Place) -> bool {
    is_clockwise(ring) != encircles(ring, place)
}

/// Whether a ring, whichever way it runs, goes around a place (on its smaller side).
fn encircles(ring: &[Place], place: Place) -> bool {
    let centre = to_vector(place);
    // The antipode is gone around too, the other way: all of the ring is then farther than 90°.
    if ring.iter().all(|corner| dot(to_vector(*corner), centre) < 0.0) {
        return false;
    }
    let bearings = ring.iter().map(|corner| bearing(place, *corner));
    let bearings: Vec<f64> = bearings.collect();
    let turns: f64 = bearings
        .windows(2)
        .map(|pair| {
            let turn = pair[1] - pair[0];
            turn - 360.0 * (turn / 360.0).round()
        })
        .sum();
    turns.abs() > 179.0
}

/// The direction of one place from another, in degrees from north.
fn bearing(from: Place, to: Place) -> f64 {
    let (latitude, other) = (from.1.to_radians(), to.1.to_radians());
    let turn = (to.0 - from.0).to_radians();
    let x = latitude.cos() * other.sin() - latitude.sin() * other.cos() * turn.cos();
    (turn.sin() * other.cos()).atan2(x).to_degrees()
}

/// The distance from a place to the nearest of an edge.
fn to_edge(place: Place, (a, b): (Place, Place)) -> f64 {
    let ends = metres(place, a).min(metres(place, b));
    let (p, start, end) = (to_vector(place), to_vector(a), to_vector(b));
    let normal = times(start, end);
    if dot(normal, normal) < 1e-24 {
        return ends;
    }
    // The foot of the perpendicular, if it falls between the ends.
    let foot = times(normal, times(p, normal));
    let between = dot(times(start, foot), normal) >= 0.0 && dot(times(foot, end), normal) >= 0.0;
    if between { ends.min(metres(place, to_place(foot))) } else { ends }
}

/// Whether a place lies on an edge, to within a millimetre.
fn touches(place: Place, a: Place, b: Place) -> bool {
    const NEAR: f64 = 1e-3 / 6_371_000.0;
    let apart = |a: Vector, b: Vector| {
        let between = [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
        dot(between, between).sqrt()
    };
    let (p, start, end) = (to_vector(place), to_vector(a), to_vector(b));
    apart(p, start) + apart(p, end) < apart(start, end) + NEAR
        && dot(times(start, end), p).abs() <= NEAR * apart(start, end).max(NEAR)
}

/// Whether two edges cross at a place inside both.
fn cross(a: (Place, Place), b: (Place, Place)) -> bool {
    let [a0, a1, b0, b1] = [a.0, a.1, b.0, b.1].map(to_vector);
    let side = |from: Vector, to: Vector, v: Vector| dot(times(from, to), v);
    let near = dot(plus(a0, a1), plus(b0, b1)) > 0.0;
    near && side(a0, a1, b0) * side(a0, a1, b1) < 0.0 && side(b0, b1, a0) * side(b0, b1, a1) < 0.0
}

fn to_vector((longitude, latitude): Place) -> Vector {
    let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
    let flat = latitude.cos();
    [flat * longitude.cos(), flat * longitude.sin(), latitude.sin()]
}

fn to_place([x, y, z]: Vector) -> Place {
    (y.atan2(x).to_degrees(), z.atan2(x.hypot(y)).to_degrees())
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn plus(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn times(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}
