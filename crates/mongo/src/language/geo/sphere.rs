//! Points on the unit sphere.

use super::Point;

/// A point on the sphere, as a vector of length one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vector {
    x: f64,
    y: f64,
    z: f64,
}

/// Closer than this is the same place: a few millimetres.
const TOUCHING: f64 = 1e-9;

impl Vector {
    /// Of longitude and latitude in degrees.
    pub fn of(point: Point) -> Self {
        let (longitude, latitude) = (point.x.to_radians(), point.y.to_radians());
        Self {
            x: latitude.cos() * longitude.cos(),
            y: latitude.cos() * longitude.sin(),
            z: latitude.sin(),
        }
    }

    /// Longitude and latitude in degrees.
    pub fn to_point(self) -> Point {
        let latitude = self.z.atan2(self.x.hypot(self.y));
        Point { x: self.y.atan2(self.x).to_degrees(), y: latitude.to_degrees() }
    }

    /// The middle of points, and how far the farthest of them is from it; none if they have no middle.
    pub fn middle(points: &[Self]) -> Option<(Self, f64)> {
        let sum = points.iter().fold(Self { x: 0.0, y: 0.0, z: 0.0 }, |sum, each| sum.plus(*each));
        let length = sum.length();
        if length < 1e-9 {
            return None;
        }
        let middle = Self { x: sum.x / length, y: sum.y / length, z: sum.z / length };
        let farthest = points.iter().map(|each| middle.angle(*each)).fold(0.0, f64::max);
        Some((middle, farthest))
    }

    fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    fn cross(self, other: Self) -> Self {
        Self {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }

    fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The angle between two, in radians.
    pub fn angle(self, other: Self) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }

    /// How far it is from the part of a great circle between two points.
    pub fn angle_to_edge(self, a: Self, b: Self) -> f64 {
        let normal = a.cross(b);
        let length = normal.length();
        let ends = self.angle(a).min(self.angle(b));
        if length < 1e-15 {
            return ends;
        }
        // Beside the edge, the distance is that to its great circle.
        let beside = normal.cross(a).dot(self) >= 0.0 && b.cross(normal).dot(self) >= 0.0;
        if beside { (normal.dot(self) / length).clamp(-1.0, 1.0).asin().abs() } else { ends }
    }
}

/// Whether a point lies in a ring; its border belongs to it. A ring encloses less than half of the sphere.
pub fn in_ring(point: Vector, ring: &[Vector]) -> bool {
    if on_ring(point, ring) {
        return true;
    }
    let centre = ring.iter().fold(Vector { x: 0.0, y: 0.0, z: 0.0 }, |sum, each| sum.plus(*each));
    if point.dot(centre) <= 0.0 {
        return false;
    }
    // Seen from a point inside, the border goes once around.
    let north = if point.z.abs() < 0.9 {
        Vector { x: 0.0, y: 0.0, z: 1.0 }
    } else {
        Vector { x: 1.0, y: 0.0, z: 0.0 }
    };
    let east = north.cross(point);
    let up = point.cross(east);
    let azimuth = |vector: Vector| vector.dot(east).atan2(vector.dot(up));
    let mut turned = 0.0;
    for (a, b) in edges(ring) {
        let mut turn = azimuth(b) - azimuth(a);
        if turn > std::f64::consts::PI {
            turn -= std::f64::consts::TAU;
        } else if turn < -std::f64::consts::PI {
            turn += std::f64::consts::TAU;
        }
        turned += turn;
    }
    turned.abs() > std::f64::consts::PI
}

/// Whether a point lies on a border.
pub fn on_ring(point: Vector, ring: &[Vector]) -> bool {
    edges(ring).any(|(a, b)| point.angle_to_edge(a, b) < TOUCHING)
}

/// The edges of a ring or line, one after the other.
pub fn edges(line: &[Vector]) -> impl Iterator<Item = (Vector, Vector)> + '_ {
    line.windows(2).map(|pair| (pair[0], pair[1]))
}

/// Whether two edges cross or touch.
pub fn cross((a, b): (Vector, Vector), (c, d): (Vector, Vector)) -> bool {
    let touches = [
        a.angle_to_edge(c, d),
        b.angle_to_edge(c, d),
        c.angle_to_edge(a, b),
        d.angle_to_edge(a, b),
    ];
    touches.iter().any(|angle| *angle < TOUCHING) || cross_properly((a, b), (c, d))
}

/// Whether two edges cross in their midst.
pub fn cross_properly((a, b): (Vector, Vector), (c, d): (Vector, Vector)) -> bool {
    let (first, second) = (a.cross(b), c.cross(d));
    let apart = |normal: Vector, p: Vector, q: Vector| {
        let (p, q) = (normal.dot(p), normal.dot(q));
        p.abs() > TOUCHING && q.abs() > TOUCHING && (p > 0.0) != (q > 0.0)
    };
    if !apart(first, c, d) || !apart(second, a, b) {
        return false;
    }
    // The great circles meet twice, on opposite sides of the sphere.
    let meeting = first.cross(second);
    (meeting.dot(a.plus(b)) > 0.0) == (meeting.dot(c.plus(d)) > 0.0)
}
