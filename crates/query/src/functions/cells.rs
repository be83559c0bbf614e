//! Cells of the world, by which a spatial index finds shapes.
//!
//! A cell is a rectangle of longitudes and latitudes; the first is the world, and each holds four of half its width and height. A cell is
//! named by the way to it, so those inside it are named by what begins with its name. A shape is kept under a few cells that cover it, and
//! a query asks for the cells that cover its region: if shape and region have a place in common, one of the shape's cells is inside one of
//! the region's, or the other way round. What is found so may still lie apart: it is a superset.

use serde_json::Value as Json;

use super::geometry::{Geometry, Place, arc_latitudes, is_clockwise};

/// The way to a cell: each byte says which quarter, from 0 to 3.
pub type Cell = Vec<u8>;

/// How small cells become: about 40 metres at the equator.
const DEPTH_MAX: usize = 20;

/// How many cells a shape is kept under at most, and how many a region is looked for in; four more of the smallest kind may be needed for
/// what lies on a border.
const SHAPE_CELLS_MAX: usize = 8;
const REGION_CELLS_MAX: usize = 32;

/// The cells to keep a value under; none if it is no shape.
pub fn of_shape(json: &Json) -> Vec<Cell> {
    Geometry::parse(json).map_or(Vec::new(), |shape| cover(&boxes(&shape), SHAPE_CELLS_MAX))
}

/// The cells to find all shapes in that come within so many metres of this one; `None` if it is no shape.
pub fn around(json: &Json, metres: f64) -> Option<Vec<Cell>> {
    let shape = Geometry::parse(json).ok()?;
    let boxes: Vec<Box> = boxes(&shape).iter().map(|area| area.widened(metres)).collect();
    Some(cover(&boxes, REGION_CELLS_MAX))
}

/// Longitudes and latitudes in degrees. The east may lie beyond 180, if the box crosses the date line.
#[derive(Clone, Copy, Debug)]
struct Box {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Box {
    const WORLD: Box = Box { west: -180.0, east: 180.0, south: -90.0, north: 90.0 };

    /// What comes within so many metres of it.
    fn widened(self, metres: f64) -> Self {
        /// The earth is curved nowhere more than at the equator, to the north: no degree is shorter.
        const RADIUS_MIN: f64 = 6_335_000.0;
        /// What counts as touching may be this far apart, in degrees.
        const NEAR: f64 = 1e-6;
        let angle = (metres.max(0.0) / RADIUS_MIN).to_degrees() + NEAR;
        let (south, north) = (self.south - angle, self.north + angle);
        if south <= -89.0 || north >= 89.0 || angle >= 90.0 {
            // Around a pole all longitudes are near.
            return Self { south: south.max(-90.0), north: north.min(90.0), ..Self::WORLD };
        }
        let widest = south.abs().max(north.abs()).to_radians();
        let aside = (angle.to_radians().sin() / widest.cos()).min(1.0).asin().to_degrees() + NEAR;
        Self { west: self.west - aside, east: self.east + aside, south, north }
    }

    /// The same within -180 to 180, in one piece or two.
    fn pieces(self) -> Vec<Box> {
        if self.east - self.west >= 360.0 {
            return vec![Self { west: -180.0, east: 180.0, ..self }];
        }
        let turns = ((self.west + 180.0) / 360.0).floor() * 360.0;
        let (west, east) = (self.west - turns, self.east - turns);
        match east > 180.0 {
            false => vec![Self { west, east, ..self }],
            true => vec![
                Self { west, east: 180.0, ..self },
                Self { west: -180.0, east: east - 360.0, ..self },
            ],
        }
    }

    fn meets(&self, other: &Box) -> bool {
        self.west <= other.east
            && other.west <= self.east
            && self.south <= other.north
            && other.south <= self.north
    }
}

/// A box around each part of a shape.
fn boxes(shape: &Geometry) -> Vec<Box> {
    match shape {
        Geometry::Points(places) => {
            let point = |&(longitude, latitude): &Place| Box {
                west: longitude,
                east: longitude,
                south: latitude,
                north: latitude,
            };
            places.iter().map(point).collect()
        }
        Geometry::Lines(lines) => lines.iter().map(|line| around_line(line).0).collect(),
        Geometry::Polygons(polygons) => polygons
            .iter()
            .map(|rings| match rings.first() {
                Some(outer) if !is_clockwise(outer) => match around_line(outer) {
                    (area, turns) if turns.abs() < 180.0 => area,
                    // It goes around a pole.
                    _ => Box::WORLD,
                },
                // All but what it goes around.
                _ => Box::WORLD,
            })
            .collect(),
    }
}

/// The box around a line, and how far it goes around the earth from its start to its end.
fn around_line(line: &[Place]) -> (Box, f64) {
    let Some(&(start, latitude)) = line.first() else { return (Box::WORLD, 0.0) };
    let mut area = Box { west: start, east: start, south: latitude, north: latitude };
    let mut longitude = start;
    for edge in line.windows(2) {
        let turn = edge[1].0 - edge[0].0;
        let turn = turn - 360.0 * (turn / 360.0).round();
        if turn.abs() > 179.0 {
            // Which way it goes, or whether over a pole, is a matter of the last digits.
            return (Box::WORLD, 0.0);
        }
        longitude += turn;
        let (south, north) = arc_latitudes(edge[0], edge[1]);
        area = Box {
            west: area.west.min(longitude),
            east: area.east.max(longitude),
            south: area.south.min(south),
            north: area.north.max(north),
        };
    }
    (area, longitude - start)
}

/// The cells that boxes meet: as small as they can be while they are so few.
fn cover(boxes: &[Box], count_max: usize) -> Vec<Cell> {
    let boxes: Vec<Box> = boxes.iter().flat_map(|area| area.pieces()).collect();
    let mut cells = vec![(Cell::new(), Box::WORLD)];
    for _ in 0..DEPTH_MAX {
        let quarters = cells.iter().flat_map(|(name, area)| quarters(name, *area));
        let smaller: Vec<_> =
            quarters.filter(|(_, area)| boxes.iter().any(|wanted| wanted.meets(area))).collect();
        if smaller.len() > count_max {
            break;
        }
        cells = smaller;
    }
    cells.into_iter().map(|(name, _)| name).collect()
}

fn quarters(name: &[u8], area: Box) -> impl Iterator<Item = (Cell, Box)> {
    let (longitude, latitude) = ((area.west + area.east) / 2.0, (area.south + area.north) / 2.0);
    (0..4).map(move |quarter| {
        let mut area = area;
        if quarter & 1 == 0 {
            area.east = longitude
        } else {
            area.west = longitude
        }
        if quarter & 2 == 0 {
            area.north = latitude
        } else {
            area.south = latitude
        }
        ([name, &[quarter]].concat(), area)
    })
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
        assert_eq!(of_shape(&point)[0].len(), DEPTH_MAX);
        let around = around(&point, 1_000.0).unwrap();
        assert!(around.iter().all(|cell| cell.len() > 12) && around.len() <= REGION_CELLS_MAX);
    }
}
