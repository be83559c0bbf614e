//! Cells of the world, by which spatial indexes find shapes.
//!
//! A cell is a rectangle of longitudes and latitudes; the first is the world, and each holds four of half its width and height. A cell is
//! named by the way to it, so those inside it are named by what begins with its name. A shape is kept under a few cells that cover it, and
//! a query asks for the cells that cover its region: if shape and region have a place in common, one of the shape's cells is inside one of
//! the region's, or the other way round. What is found so may still lie apart: it is a superset.

/// The way to a cell: each byte says which quarter, from 0 to 3.
pub type Cell = Vec<u8>;

/// How small cells become: about 40 metres at the equator.
pub const DEPTH_MAX: usize = 20;

/// How many cells a shape is kept under at most; four more of the smallest kind may be needed for what lies on a border.
pub const SHAPE_CELLS_MAX: usize = 8;

/// How many a region is looked for in.
pub const REGION_CELLS_MAX: usize = 32;

/// Longitudes and latitudes in degrees. The east may lie beyond 180, if it crosses the date line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its least longitude.
    pub west: f64,
    /// Its greatest longitude.
    pub east: f64,
    /// Its least latitude.
    pub south: f64,
    /// Its greatest latitude.
    pub north: f64,
}

impl Span {
    /// All there is.
    pub const WORLD: Self = Self { west: -180.0, east: 180.0, south: -90.0, north: 90.0 };

    /// One place.
    pub fn place(longitude: f64, latitude: f64) -> Self {
        Self { west: longitude, east: longitude, south: latitude, north: latitude }
    }

    /// What comes within so many degrees of it, along the sphere.
    pub fn widened(self, angle: f64) -> Self {
        /// What counts as touching may be this far apart, in degrees.
        const NEAR: f64 = 1e-6;
        let angle = angle.max(0.0) + NEAR;
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
    fn pieces(self) -> Vec<Self> {
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

    fn meets(&self, other: &Self) -> bool {
        self.west <= other.east
            && other.west <= self.east
            && self.south <= other.north
            && other.south <= self.north
    }
}

/// The cells that spans meet: as small as they can be while they are so few.
pub fn cover(spans: &[Span], count_max: usize) -> Vec<Cell> {
    let spans: Vec<Span> = spans.iter().flat_map(|span| span.pieces()).collect();
    let mut cells = vec![(Cell::new(), Span::WORLD)];
    for _ in 0..DEPTH_MAX {
        let quarters = cells.iter().flat_map(|(name, area)| quarters(name, *area));
        let smaller: Vec<_> =
            quarters.filter(|(_, area)| spans.iter().any(|wanted| wanted.meets(area))).collect();
        if smaller.len() > count_max {
            break;
        }
        cells = smaller;
    }
    cells.into_iter().map(|(name, _)| name).collect()
}

fn quarters(name: &[u8], area: Span) -> impl Iterator<Item = (Cell, Span)> {
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
