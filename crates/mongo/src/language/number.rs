//! Numbers of all four kinds in one arithmetic: int, long, double, decimal, the wider of two deciding the result.

use std::cmp::Ordering;

use bson::{Bson, RawBsonRef};

use super::decimal::Decimal;

/// A number out of a document.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// 32 bits.
    Int(i32),
    /// 64 bits.
    Long(i64),
    /// Floating, binary.
    Double(f64),
    /// Floating, decimal.
    Decimal(Decimal),
}

use Number::{Double, Int, Long};

impl Number {
    /// The number that a value is, if it is one.
    pub fn of(value: RawBsonRef<'_>) -> Option<Self> {
        Some(match value {
            RawBsonRef::Int32(n) => Int(n),
            RawBsonRef::Int64(n) => Long(n),
            RawBsonRef::Double(n) => Double(n),
            RawBsonRef::Decimal128(n) => Self::Decimal(Decimal::decode(n)),
            _ => return None,
        })
    }

    /// The number that an owned value is, if it is one.
    pub fn of_bson(value: &Bson) -> Option<Self> {
        Some(match value {
            Bson::Int32(n) => Int(*n),
            Bson::Int64(n) => Long(*n),
            Bson::Double(n) => Double(*n),
            Bson::Decimal128(n) => Self::Decimal(Decimal::decode(*n)),
            _ => return None,
        })
    }

    /// The number as a value.
    pub fn to_bson(self) -> Bson {
        match self {
            Int(n) => Bson::Int32(n),
            Long(n) => Bson::Int64(n),
            Double(n) => Bson::Double(n),
            Self::Decimal(n) => Bson::Decimal128(n.encode()),
        }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Int(n) => f64::from(n),
            Long(n) => n as f64,
            Double(n) => n,
            Self::Decimal(n) => n.to_f64(),
        }
    }

    /// As a decimal; doubles with 15 digits, as MongoDB converts them.
    pub fn to_decimal(self) -> Decimal {
        match self {
            Int(n) => Decimal::from_i64(i64::from(n)),
            Long(n) => Decimal::from_i64(n),
            Double(n) => Decimal::from_f64(n, 15),
            Self::Decimal(n) => n,
        }
    }

    /// The whole number it equals exactly, if it does and fits.
    pub fn to_i64_exact(self) -> Option<i64> {
        match self {
            Int(n) => Some(i64::from(n)),
            Long(n) => Some(n),
            Double(n) => (n.trunc() == n && (-TWO_63..TWO_63).contains(&n)).then_some(n as i64),
            Self::Decimal(n) => n.is_whole().then(|| n.to_i64()).flatten(),
        }
    }

    /// Cut to a whole number and held within the range; NaN is zero.
    pub fn to_i64_clamped(self) -> i64 {
        match self {
            Int(n) => i64::from(n),
            Long(n) => n,
            Double(n) => n as i64,
            Self::Decimal(n) => n.to_i64().unwrap_or(match n {
                _ if n.is_nan() => 0,
                _ if n.is_negative() => i64::MIN,
                _ => i64::MAX,
            }),
        }
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        match self {
            Int(n) => n == 0,
            Long(n) => n == 0,
            Double(n) => n == 0.0,
            Self::Decimal(n) => n.is_zero(),
        }
    }

    /// Whether it is not a number.
    pub fn is_nan(self) -> bool {
        match self {
            Double(n) => n.is_nan(),
            Self::Decimal(n) => n.is_nan(),
            _ => false,
        }
    }

    /// MongoDB's order of numbers: by value whatever the kind, NaN first.
    pub fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Int(a), Int(b)) => a.cmp(&b),
            (Long(a), Long(b)) => a.cmp(&b),
            (Int(a), Long(b)) => i64::from(a).cmp(&b),
            (Long(a), Int(b)) => a.cmp(&i64::from(b)),
            (Double(a), Double(b)) => order_doubles(a, b),
            (Int(a), Double(b)) => order_doubles(f64::from(a), b),
            (Double(a), Int(b)) => order_doubles(a, f64::from(b)),
            (Long(a), Double(b)) => order_long_double(a, b),
            (Double(a), Long(b)) => order_long_double(b, a).reverse(),
            (a, b) => a.exact_decimal().order(b.exact_decimal()),
        }
    }

    /// As a decimal to compare by: doubles with all 34 digits.
    pub fn exact_decimal(self) -> Decimal {
        match self {
            Double(n) => Decimal::from_f64(n, 34),
            other => other.to_decimal(),
        }
    }

    /// The sum; none if a long overflows.
    pub fn plus(self, other: Self) -> Option<Self> {
        self.combine(other, i64::checked_add, |a, b| a + b, Decimal::plus)
    }

    /// The difference; none if a long overflows.
    pub fn subtract(self, other: Self) -> Option<Self> {
        self.combine(other, i64::checked_sub, |a, b| a - b, Decimal::subtract)
    }

    /// The product; none if a long overflows.
    pub fn multiply(self, other: Self) -> Option<Self> {
        self.combine(other, i64::checked_mul, |a, b| a * b, Decimal::multiply)
    }

    /// The sum, going over to a double where a long overflows, as expressions do.
    pub fn plus_wide(self, other: Self) -> Self {
        self.plus(other).unwrap_or_else(|| Double(self.to_f64() + other.to_f64()))
    }

    /// The product, going over to a double where a long overflows, as expressions do.
    pub fn multiply_wide(self, other: Self) -> Self {
        self.multiply(other).unwrap_or_else(|| Double(self.to_f64() * other.to_f64()))
    }

    fn combine(
        self,
        other: Self,
        whole: fn(i64, i64) -> Option<i64>,
        double: fn(f64, f64) -> f64,
        decimal: fn(Decimal, Decimal) -> Decimal,
    ) -> Option<Self> {
        Some(match (self, other) {
            (Self::Decimal(_), _) | (_, Self::Decimal(_)) => {
                Self::Decimal(decimal(self.to_decimal(), other.to_decimal()))
            }
            (Double(_), _) | (_, Double(_)) => Double(double(self.to_f64(), other.to_f64())),
            (Int(a), Int(b)) => {
                let sum = whole(i64::from(a), i64::from(b))?;
                i32::try_from(sum).map_or(Long(sum), Int)
            }
            _ => Long(whole(self.to_i64_clamped(), other.to_i64_clamped())?),
        })
    }
}

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

fn order_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// Exact, though not every long is a double.
fn order_long_double(a: i64, b: f64) -> Ordering {
    if b.is_nan() || b < -TWO_63 {
        return Ordering::Greater;
    }
    if b >= TWO_63 {
        return Ordering::Less;
    }
    // In range, cutting is exact; what was cut decides among equals.
    a.cmp(&(b as i64)).then_with(|| 0.0_f64.total_cmp(&(b - b.trunc() + 0.0)))
}
