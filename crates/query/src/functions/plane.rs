//! Shapes on a plane, for containers whose `geospatialConfig` is `Geometry`: distances and areas are in the units of the coordinates, edges
//! are straight, and which way a ring runs does not matter.

use super::geometry::{Geometry, Place};

/// An edge; a point is one without length.
type Edge = (Place, Place);

/// The area of polygons, holes left out; lines and points have none.
pub fn area(shape: &Geometry) -> f64 {
    let Geometry::Polygons(polygons) = shape else { return 0.0 };
    let area = |ring: &Vec<Place>| {
        let parts = ring.windows(2).map(|pair| pair[0].0 * pair[1].1 - pair[1].0 * pair[0].1);
        (parts.sum::<f64>() / 2.0).abs()
    };
    let areas = polygons.iter().map(|rings| {
        let mut rings = rings.iter().map(area);
        rings.next().unwrap_or(0.0) - rings.sum::<f64>()
    });
    areas.sum()
}

/// The shortest way between two shapes.
pub fn distance(a: &Geometry, b: &Geometry) -> f64 {
    if intersects(a, b) {
        return 0.0;
    }
    let (a, b) = (a.edges(), b.edges());
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (*a, *b)));
    let distances = pairs.flat_map(|(a, b)| {
        [(a.0, b), (a.1, b), (b.0, a), (b.1, a)].map(|(place, edge)| to_edge(place, edge))
    });
    distances.fold(f64::INFINITY, f64::min)
}

/// Whether the shapes have a place in common.
pub fn intersects(a: &Geometry, b: &Geometry) -> bool {
    let meets = |a: &Geometry, b: &Geometry| b.places().any(|place| holds(a, place));
    let cross = || a.edges().iter().any(|a| b.edges().iter().any(|b| cross(*a, *b)));
    meets(a, b) || meets(b, a) || cross()
}

/// Whether all of the first shape lies in the second.
pub fn is_within(a: &Geometry, b: &Geometry) -> bool {
    let cross = || a.edges().iter().any(|a| b.edges().iter().any(|b| cross(*a, *b)));
    a.places().all(|place| holds(b, place)) && !cross()
}

/// Whether a place belongs to a shape; the border does.
fn holds(shape: &Geometry, place: Place) -> bool {
    if shape.edges().iter().any(|edge| touches(place, *edge)) {
        return true;
    }
    let Geometry::Polygons(polygons) = shape else { return false };
    polygons.iter().any(|rings| {
        let mut parts = rings.iter();
        parts.next().is_some_and(|outer| encircles(outer, place))
            && !parts.any(|hole| encircles(hole, place))
    })
}

/// Whether a ring goes around a place: a ray from there crosses it an odd number of times.
fn encircles(ring: &[Place], (x, y): Place) -> bool {
    let crossed = ring.windows(2).filter(|pair| {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        (y0 > y) != (y1 > y) && x < (x1 - x0) * (y - y0) / (y1 - y0) + x0
    });
    crossed.count() % 2 == 1
}

/// Twice the area of a triangle: positive if it runs counter-clockwise.
fn side((a, b): Edge, place: Place) -> f64 {
    (b.0 - a.0) * (place.1 - a.1) - (b.1 - a.1) * (place.0 - a.0)
}

fn cross(a: Edge, b: Edge) -> bool {
    side(a, b.0) * side(a, b.1) < 0.0 && side(b, a.0) * side(b, a.1) < 0.0
}

/// Whether a place lies on an edge, but for the last digits.
fn touches(place: Place, edge: Edge) -> bool {
    const NEAR: f64 = 1e-12;
    let ((x0, y0), (x1, y1)) = edge;
    let scale = [x0, y0, x1, y1, place.0, place.1].map(f64::abs).into_iter().fold(0.0, f64::max);
    to_edge(place, edge) <= scale * NEAR
}

/// The distance from a place to the nearest of an edge.
fn to_edge((x, y): Place, ((x0, y0), (x1, y1)): Edge) -> f64 {
    let (dx, dy) = (x1 - x0, y1 - y0);
    let length = dx * dx + dy * dy;
    let along = match length > 0.0 {
        true => (((x - x0) * dx + (y - y0) * dy) / length).clamp(0.0, 1.0),
        false => 0.0,
    };
    (x - x0 - along * dx).hypot(y - y0 - along * dy)
}
