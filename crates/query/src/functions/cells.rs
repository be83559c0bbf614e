//! The cells of the world ([`model::cells`]) under which a spatial index keeps shapes, and in which a query looks for them.

use model::cells::{Cell, REGION_CELLS_MAX, SHAPE_CELLS_MAX, Span, cover};
use serde_json::Value as Json;

use super::geometry::{Geometry, Place, arc_latitudes, is_clockwise};

/// The cells to keep a value under, on the earth or on a plane; none if it is no shape.
pub fn of_shape(json: &Json, flat: bool) -> Vec<Cell> {
    let spans = match flat {
        true => Geometry::parse_flat(json).map(|shape| flat_spans(&shape, 0.0)),
        false => Geometry::parse(json).map(|shape| spans(&shape)),
    };
    spans.map_or(Vec::new(), |spans| cover(&spans, SHAPE_CELLS_MAX))
}

/// The cells to find all shapes in that come within so many metres of this one (on a plane: so many of its units); `None` if it is no shape.
pub fn around(json: &Json, metres: f64, flat: bool) -> Option<Vec<Cell>> {
    if flat {
        let shape = Geometry::parse_flat(json).ok()?;
        return Some(cover(&flat_spans(&shape, metres.max(0.0)), REGION_CELLS_MAX));
    }
    /// The earth is curved nowhere more than at the equator, to the north: no degree is shorter.
    const RADIUS_MIN: f64 = 6_335_000.0;
    let shape = Geometry::parse(json).ok()?;
    let angle = (metres.max(0.0) / RADIUS_MIN).to_degrees();
    let spans: Vec<Span> = spans(&shape).iter().map(|span| span.widened(angle)).collect();
    Some(cover(&spans, REGION_CELLS_MAX))
}

/// A span around each part of a shape.
fn spans(shape: &Geometry) -> Vec<Span> {
    match shape {
        Geometry::Points(places) => {
            let point = |&(longitude, latitude): &Place| Span::place(longitude, latitude);
            places.iter().map(point).collect()
        }
        Geometry::Lines(lines) => lines.iter().map(|line| around_line(line).0).collect(),
        Geometry::Polygons(polygons) => polygons
            .iter()
            .map(|rings| match rings.first() {
                Some(outer) if !is_clockwise(outer) => match around_line(outer) {
                    (area, turns) if turns.abs() < 180.0 => area,
                    // It goes around a pole.
                    _ => Span::WORLD,
                },
                // All but what it goes around.
                _ => Span::WORLD,
            })
            .collect(),
    }
}

/// A span around each part of a shape on a plane, and what comes within a distance of it. Of a plane that has no end, the farther out the
/// larger a piece is what a degree is there: its place is the logarithm of a coordinate, which any number has, and which keeps their order.
fn flat_spans(shape: &Geometry, distance: f64) -> Vec<Span> {
    /// What counts as touching may be this much of a coordinate apart.
    const NEAR: f64 = 1e-9;
    let degrees = |number: f64, most: f64| {
        let end = (number.abs().ln_1p() / f64::MAX.ln() * most).min(most * 0.999_999);
        end.copysign(number)
    };
    let around = |places: &[Place]| {
        let reach = |numbers: &dyn Fn(&Place) -> f64, most: f64| {
            let least = places.iter().map(numbers).fold(f64::INFINITY, f64::min);
            let greatest = places.iter().map(numbers).fold(f64::NEG_INFINITY, f64::max);
            let near = NEAR * least.abs().max(greatest.abs()) + distance;
            (degrees(least - near, most), degrees(greatest + near, most))
        };
        let ((west, east), (south, north)) = (reach(&|p| p.0, 180.0), reach(&|p| p.1, 90.0));
        Span { west, east, south, north }
    };
    match shape {
        Geometry::Points(places) => places.iter().map(|place| around(&[*place])).collect(),
        Geometry::Lines(lines) => lines.iter().map(|line| around(line)).collect(),
        Geometry::Polygons(polygons) => {
            polygons.iter().filter_map(|rings| rings.first()).map(|ring| around(ring)).collect()
        }
    }
}

/// The span around a line, and how far it goes around the earth from its start to its end.
fn around_line(line: &[Place]) -> (Span, f64) {
    let Some(&(start, latitude)) = line.first() else { return (Span::WORLD, 0.0) };
    let mut area = Span { west: start, east: start, south: latitude, north: latitude };
    let mut longitude = start;
    for edge in line.windows(2) {
        let turn = edge[1].0 - edge[0].0;
        let turn = turn - 360.0 * (turn / 360.0).round();
        if turn.abs() > 179.0 {
            // Which way it goes, or whether over a pole, is a matter of the last digits.
            return (Span::WORLD, 0.0);
        }
        longitude += turn;
        let (south, north) = arc_latitudes(edge[0], edge[1]);
        area = Span {
            west: area.west.min(longitude),
            east: area.east.max(longitude),
            south: area.south.min(south),
            north: area.north.max(north),
        };
    }
    (area, longitude - start)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::functions::plane;

    fn related(a: &[Cell], b: &[Cell]) -> bool {
        a.iter().any(|a| b.iter().any(|b| a.starts_with(b) || b.starts_with(a)))
    }

    fn shape(random: &mut fastrand::Rng, spread: f64) -> Json {
        // Poles, the date line and the borders of cells among them.
        let special = [(0.0, 0.0), (179.9, 10.0), (-180.0, -45.0), (20.0, 89.0), (-70.0, -89.5)];
        let (x, y) = match random.u8(0..2) {
            0 => *random.choice(&special).unwrap(),
            _ => (random.f64() * 360.0 - 180.0, random.f64() * 180.0 - 90.0),
        };
        let place = |dx: f64, dy: f64| {
            let longitude = x + dx * spread;
            let longitude = longitude - 360.0 * (longitude / 360.0).round();
            json!([longitude, (y + dy * spread).clamp(-90.0, 90.0)])
        };
        let corner = |angle: f64| place(angle.cos(), angle.sin());
        match random.u8(0..4) {
            0 => json!({"type": "Point", "coordinates": place(0.0, 0.0)}),
            1 => {
                json!({"type": "LineString", "coordinates": [corner(random.f64() * 6.0), corner(random.f64() * 6.0)]})
            }
            2 => json!({"type": "MultiPoint", "coordinates": [place(0.0, 0.0), corner(1.0)]}),
            _ => {
                let mut ring: Vec<Json> = [0.1, 1.3, 2.9, 4.4, 5.6].map(corner).to_vec();
                ring.push(ring[0].clone());
                json!({"type": "Polygon", "coordinates": [ring]})
            }
        }
    }

    /// The promise of the index: what a query would find is found by its cells.
    #[test]
    fn shapes_that_meet_have_cells_that_meet() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut met, mut near, mut apart) = (0, 0, 0);
        for _ in 0..3_000 {
            let spread = [0.001, 0.5, 5.0, 30.0][random.usize(0..4)];
            let (a, b) = (shape(&mut random, spread), shape(&mut random, spread));
            let (first, second) = (Geometry::parse(&a).unwrap(), Geometry::parse(&b).unwrap());
            let cells = of_shape(&a, false);
            assert!((1..=SHAPE_CELLS_MAX).contains(&cells.len()), "{a}");
            if first.intersects(&second) || first.is_within(&second) || second.is_within(&first) {
                met += 1;
                assert!(related(&cells, &around(&b, 0.0, false).unwrap()), "{a} {b}");
            }
            let distance = first.distance(&second);
            if distance < 2_000_000.0 {
                near += 1;
                assert!(
                    related(&cells, &around(&b, distance, false).unwrap()),
                    "{distance} {a} {b}"
                );
            }
            apart += usize::from(!related(&cells, &around(&b, 0.0, false).unwrap()));
        }
        assert!(met > 100 && near > 100 && apart > 500, "{met} {near} {apart}");
    }

    /// The same on a plane, where coordinates may be anything.
    #[test]
    fn flat_shapes_that_meet_have_cells_that_meet() {
        let mut random = fastrand::Rng::with_seed(8);
        let (mut met, mut near, mut apart) = (0, 0, 0);
        for _ in 0..3_000 {
            let scale = [1e-6, 1.0, 1e3, 1e9][random.usize(0..4)];
            let mut number = || f64::from(random.i32(-6..7)) * scale;
            let mut corner = || json!([number(), number()]);
            let mut shape = |kind: usize| match kind {
                0 => json!({"type": "Point", "coordinates": corner()}),
                1 => json!({"type": "LineString", "coordinates": [corner(), corner()]}),
                _ => {
                    let (a, b, c) = (corner(), corner(), corner());
                    json!({"type": "Polygon", "coordinates": [[a, b, c, a]]})
                }
            };
            let (a, b) = (shape(met % 3), shape(near % 3));
            let first = Geometry::parse_flat(&a).unwrap();
            let second = Geometry::parse_flat(&b).unwrap();
            let cells = of_shape(&a, true);
            if plane::intersects(&first, &second) || plane::is_within(&first, &second) {
                met += 1;
                assert!(related(&cells, &around(&b, 0.0, true).unwrap()), "{a} {b}");
            }
            let distance = plane::distance(&first, &second);
            near += 1;
            assert!(related(&cells, &around(&b, distance, true).unwrap()), "{distance} {a} {b}");
            apart += usize::from(!related(&cells, &around(&b, 0.0, true).unwrap()));
        }
        assert!(met > 100 && apart > 500, "{met} {near} {apart}");
    }

    #[test]
    fn what_is_no_shape_has_no_cells() {
        assert_eq!(
            of_shape(&json!({"type": "Point", "coordinates": [0, 91]}), false),
            Vec::<Cell>::new()
        );
        assert_eq!(of_shape(&json!("x"), false), Vec::<Cell>::new());
        assert_eq!(around(&json!(1), 5.0, false), None);
    }

    #[test]
    fn cells_are_small_where_shapes_are() {
        let point = json!({"type": "Point", "coordinates": [-122.33, 47.6]});
        assert_eq!(of_shape(&point, false).len(), 1);
        assert_eq!(of_shape(&point, false)[0].len(), model::cells::DEPTH_MAX);
        let around = around(&point, 1_000.0, false).unwrap();
        assert!(around.iter().all(|cell| cell.len() > 12) && around.len() <= REGION_CELLS_MAX);
    }
}
