//! The cells of the world ([`model::cells`]) under which a spatial index keeps shapes, and in which a query looks for them.

use model::cells::{Cell, REGION_CELLS_MAX, SHAPE_CELLS_MAX, Span, cover};
use serde_json::Value as Json;

use super::geometry::{Geometry, Place, arc_latitudes, is_clockwise};

/// The cells to keep a value under; none if it is no shape.
pub fn of_shape(json: &Json) -> Vec<Cell> {
    Geometry::parse(json).map_or(Vec::new(), |shape| cover(&spans(&shape), SHAPE_CELLS_MAX))
}

/// The cells to find all shapes in that come within so many metres of this one; `None` if it is no shape.
pub fn around(json: &Json, metres: f64) -> Option<Vec<Cell>> {
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
            let cells = of_shape(&a);
            assert!((1..=SHAPE_CELLS_MAX).contains(&cells.len()), "{a}");
            if first.intersects(&second) || first.is_within(&second) || second.is_within(&first) {
                met += 1;
                assert!(related(&cells, &around(&b, 0.0).unwrap()), "{a} {b}");
            }
            let distance = first.distance(&second);
            if distance < 2_000_000.0 {
                near += 1;
                assert!(related(&cells, &around(&b, distance).unwrap()), "{distance} {a} {b}");
            }
            apart += usize::from(!related(&cells, &around(&b, 0.0).unwrap()));
        }
        assert!(met > 100 && near > 100 && apart > 500, "{met} {near} {apart}");
    }

    #[test]
    fn what_is_no_shape_has_no_cells() {
        assert_eq!(of_shape(&json!({"type": "Point", "coordinates": [0, 91]})), Vec::<Cell>::new());
        assert_eq!(of_shape(&json!("x")), Vec::<Cell>::new());
        assert_eq!(around(&json!(1), 5.0), None);
    }

    #[test]
    fn cells_are_small_where_shapes_are() {
        let point = json!({"type": "Point", "coordinates": [-122.33, 47.6]});
        assert_eq!(of_shape(&point).len(), 1);
        assert_eq!(of_shape(&point)[0].len(), model::cells::DEPTH_MAX);
        let around = around(&point, 1_000.0).unwrap();
        assert!(around.iter().all(|cell| cell.len() > 12) && around.len() <= REGION_CELLS_MAX);
    }
}
