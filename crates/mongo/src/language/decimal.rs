//! Decimal128 arithmetic: 34 decimal digits and an exponent, rounded half to even, as IEEE 754-2008 has it.
//!
//! The `bson` crate carries the sixteen bytes and writes them as text; this module computes with them. A finite number is
//! `coefficient · 10^exponent`. Intermediate results need up to 256 bits, for which there is a small [`Wide`] here.

use std::cmp::Ordering;

use bson::Decimal128;

/// The largest coefficient is one less.
const LIMIT: u128 = 10u128.pow(34);
const DIGITS_MAX: u32 = 34;
const EXPONENT_MIN: i32 = -6176;
const EXPONENT_MAX: i32 = 6111;

/// A decoded Decimal128.
#[derive(Clone, Copy, Debug)]
pub enum Decimal {
    /// `±coefficient · 10^exponent`.
    Finite {
        /// Whether it is below zero; zero has a sign too.
        negative: bool,
        /// The digits as one number, at most 34 of them.
        coefficient: u128,
        /// The power of ten that they are multiplied with.
        exponent: i32,
    },
    /// Plus or minus infinity.
    Infinite {
        /// Whether it is minus infinity.
        negative: bool,
    },
    /// Not a number.
    Nan,
}

use Decimal::{Finite, Infinite, Nan};

impl Decimal {
    /// Zero, without digits after the point.
    pub const ZERO: Self = Finite { negative: false, coefficient: 0, exponent: 0 };

    /// Decodes the sixteen bytes.
    pub fn decode(value: Decimal128) -> Self {
        let bits = u128::from_le_bytes(value.bytes());
        let negative = bits >> 127 == 1;
        match bits >> 122 & 0x1F {
            0x1F => Nan,
            0x1E => Infinite { negative },
            // The form for large coefficients only holds numbers above the limit, which count as zero.
            top if top >> 3 == 3 => Finite {
                negative,
                coefficient: 0,
                exponent: (bits >> 111 & 0x3FFF) as i32 + EXPONENT_MIN,
            },
            _ => {
                let coefficient = bits & ((1 << 113) - 1);
                let exponent = (bits >> 113 & 0x3FFF) as i32 + EXPONENT_MIN;
                let coefficient = if coefficient < LIMIT { coefficient } else { 0 };
                Finite { negative, coefficient, exponent }
            }
        }
    }

    /// The sixteen bytes.
    pub fn encode(self) -> Decimal128 {
        let bits = match self {
            Nan => 0x1F << 122,
            Infinite { negative } => (0x1E << 122) | (u128::from(negative) << 127),
            Finite { negative, coefficient, exponent } => {
                let biased = (exponent - EXPONENT_MIN) as u128;
                (u128::from(negative) << 127) | (biased << 113) | coefficient
            }
        };
        Decimal128::from_bytes(bits.to_le_bytes())
    }

    /// Rounds a wide coefficient to 34 digits; too large becomes infinity, too small zero.
    fn fit(negative: bool, wide: Wide, exponent: i32) -> Self {
        let mut drop = wide.digits().saturating_sub(DIGITS_MAX) as i32;
        drop = drop.max(EXPONENT_MIN - exponent);
        let mut exponent = exponent;
        let mut coefficient = wide;
        if drop > 0 {
            coefficient = wide.round_off(drop as u32);
            exponent += drop;
            if coefficient.digits() > DIGITS_MAX {
                coefficient = coefficient.round_off(1);
                exponent += 1;
            }
        }
        let mut coefficient = coefficient.low;
        if coefficient == 0 {
            return Finite {
                negative,
                coefficient,
                exponent: exponent.clamp(EXPONENT_MIN, EXPONENT_MAX),
            };
        }
        while exponent > EXPONENT_MAX && coefficient < LIMIT / 10 {
            coefficient *= 10;
            exponent -= 1;
        }
        if exponent > EXPONENT_MAX {
            return Infinite { negative };
        }
        Finite { negative, coefficient, exponent }
    }

    /// The number that a text stands for, as the BSON specification writes Decimal128.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<Decimal128>().ok().map(Self::decode)
    }

    /// A whole number.
    pub fn from_i64(value: i64) -> Self {
        Finite { negative: value < 0, coefficient: u128::from(value.unsigned_abs()), exponent: 0 }
    }

    /// A double, rounded to this many digits. MongoDB converts to 15 and compares with 34.
    pub fn from_f64(value: f64, digits: usize) -> Self {
        if value.is_nan() {
            return Nan;
        }
        let negative = value.is_sign_negative();
        if value.is_infinite() {
            return Infinite { negative };
        }
        if value == 0.0 {
            return Finite { negative, coefficient: 0, exponent: 0 };
        }
        let text = format!("{:.*e}", digits - 1, value.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let coefficient = mantissa
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        let exponent = exponent.parse::<i32>().unwrap_or(0) - (digits as i32 - 1);
        Self::fit(negative, Wide::from(coefficient), exponent)
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Nan => f64::NAN,
            Infinite { negative: false } => f64::INFINITY,
            Infinite { negative: true } => f64::NEG_INFINITY,
            Finite { negative, coefficient, exponent } => {
                let size = format!("{coefficient}e{exponent}").parse::<f64>().unwrap_or(f64::NAN);
                if negative { -size } else { size }
            }
        }
    }

    /// The whole number it is cut to; none if that does not fit.
    pub fn to_i64(self) -> Option<i64> {
        let Finite { negative, coefficient, exponent } = self.truncate(0) else { return None };
        let size = match exponent {
            0.. if coefficient == 0 => 0,
            0..=19 => coefficient.checked_mul(10u128.pow(exponent as u32))?,
            20.. => return None,
            _ => coefficient / 10u128.checked_pow(exponent.unsigned_abs()).unwrap_or(u128::MAX),
        };
        let signed = i128::try_from(size).ok()?;
        i64::try_from(if negative { -signed } else { signed }).ok()
    }

    /// Whether there is nothing after the point.
    pub fn is_whole(self) -> bool {
        matches!(self, Finite { .. }) && self.order(self.truncate(0)) == Ordering::Equal
    }

    /// Whether it is zero of either sign.
    pub fn is_zero(self) -> bool {
        matches!(self, Finite { coefficient: 0, .. })
    }

    /// Whether it is not a number.
    pub fn is_nan(self) -> bool {
        matches!(self, Nan)
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        match self {
            Finite { negative, coefficient, .. } => negative && coefficient != 0,
            Infinite { negative } => negative,
            Nan => false,
        }
    }

    /// MongoDB's order: NaN first, the zeros equal.
    pub fn order(self, other: Self) -> Ordering {
        let rank = |value: Self| match value {
            Nan => 0,
            Infinite { negative: true } => 1,
            Finite { .. } if value.is_negative() => 2,
            Finite { coefficient: 0, .. } => 3,
            Finite { .. } => 4,
            Infinite { negative: false } => 5,
        };
        let by_rank = rank(self).cmp(&rank(other));
        let (
            Finite { coefficient: a, exponent: p, .. },
            Finite { coefficient: b, exponent: q, .. },
        ) = (self, other)
        else {
            return by_rank;
        };
        if by_rank.is_ne() || a == 0 {
            return by_rank;
        }
        let size = magnitude(a, p).cmp(&magnitude(b, q)).then_with(|| {
            // Equal places of the leading digit: the exponents differ by less than 34.
            let low = p.min(q);
            (a * 10u128.pow((p - low) as u32)).cmp(&(b * 10u128.pow((q - low) as u32)))
        });
        if self.is_negative() { size.reverse() } else { size }
    }

    /// Without its sign.
    pub fn abs(self) -> Self {
        match self {
            Finite { coefficient, exponent, .. } => {
                Finite { negative: false, coefficient, exponent }
            }
            Infinite { .. } => Infinite { negative: false },
            Nan => Nan,
        }
    }

    /// With the other sign.
    pub fn negate(self) -> Self {
        match self {
            Finite { negative, coefficient, exponent } => {
                Finite { negative: !negative, coefficient, exponent }
            }
            Infinite { negative } => Infinite { negative: !negative },
            Nan => Nan,
        }
    }

    /// The sum.
    pub fn plus(self, other: Self) -> Self {
        let (a, b) = match (self, other) {
            (Nan, _) | (_, Nan) => return Nan,
            (Infinite { negative: m }, Infinite { negative: n }) if m != n => return Nan,
            (Infinite { .. }, _) => return self,
            (_, Infinite { .. }) => return other,
            (Finite { exponent: p, .. }, Finite { exponent: q, .. }) if p >= q => (self, other),
            _ => (other, self),
        };
        let (
            Finite { negative: m, coefficient: large, exponent: p },
            Finite { negative: n, coefficient: small, exponent: q },
        ) = (a, b)
        else {
            return Nan;
        };
        if large == 0 && small == 0 {
            return Finite { negative: m && n, coefficient: 0, exponent: q };
        }
        if large == 0 {
            return b;
        }
        // Far apart, all that matters of the smaller is that it is there.
        let (small, q) = if p - q > 40 { (u128::from(small != 0), p - 40) } else { (small, q) };
        let large = Wide::from(large).scale((p - q) as u32);
        let small = Wide::from(small);
        if m == n {
            return Self::fit(m, large.add(small), q);
        }
        match large.cmp(&small) {
            Ordering::Equal => Finite { negative: false, coefficient: 0, exponent: q },
            Ordering::Greater => Self::fit(m, large.subtract(small), q),
            Ordering::Less => Self::fit(n, small.subtract(large), q),
        }
    }

    /// The difference.
    pub fn subtract(self, other: Self) -> Self {
        self.plus(other.negate())
    }

    /// The product.
    pub fn multiply(self, other: Self) -> Self {
        let negative = self.sign() != other.sign();
        match (self, other) {
            (Nan, _) | (_, Nan) => Nan,
            (Infinite { .. }, by) | (by, Infinite { .. }) => {
                if by.is_zero() {
                    Nan
                } else {
                    Infinite { negative }
                }
            }
            (
                Finite { coefficient: a, exponent: p, .. },
                Finite { coefficient: b, exponent: q, .. },
            ) => Self::fit(negative, Wide::product(a, b), p + q),
        }
    }

    /// The quotient; dividing by zero gives infinity or NaN.
    pub fn divide(self, other: Self) -> Self {
        let negative = self.sign() != other.sign();
        let (
            Finite { coefficient: a, exponent: p, .. },
            Finite { coefficient: b, exponent: q, .. },
        ) = (self, other)
        else {
            return match (self, other) {
                (Nan, _) | (_, Nan) | (Infinite { .. }, Infinite { .. }) => Nan,
                (Infinite { .. }, _) => Infinite { negative },
                _ => Finite { negative, coefficient: 0, exponent: EXPONENT_MIN },
            };
        };
        if b == 0 {
            return if a == 0 { Nan } else { Infinite { negative } };
        }
        if a == 0 {
            let exponent = (p - q).clamp(EXPONENT_MIN, EXPONENT_MAX);
            return Finite { negative, coefficient: 0, exponent };
        }
        let scale = 36 + digits(b) - digits(a);
        let (mut quotient, rest) = Wide::from(a).scale(scale).divide(b);
        let mut exponent = p - q - scale as i32;
        if rest == 0 {
            // An exact quotient is written as short as the operands allow.
            while exponent < p - q {
                let (tenth, digit) = quotient.divide(10);
                if digit != 0 {
                    break;
                }
                quotient = tenth;
                exponent += 1;
            }
        } else {
            // One more digit says that something follows, so that a half is not taken for exact.
            quotient = quotient.scale(1).add(Wide::from(1));
            exponent -= 1;
        }
        Self::fit(negative, quotient, exponent)
    }

    /// What a whole-numbered division leaves, with the sign of the first.
    pub fn remainder(self, other: Self) -> Self {
        let (
            Finite { negative, coefficient: a, exponent: p },
            Finite { coefficient: b, exponent: q, .. },
        ) = (self, other)
        else {
            return match (self, other) {
                (Finite { .. }, Infinite { .. }) => self,
                _ => Nan,
            };
        };
        if b == 0 {
            return Nan;
        }
        if p >= q {
            let mut rest = a % b;
            for _ in 0..p - q {
                rest = Wide::product(rest, 10).divide(b).1;
                if rest == 0 {
                    break;
                }
            }
            return Finite { negative, coefficient: rest, exponent: q };
        }
        if q - p > DIGITS_MAX as i32 {
            return self;
        }
        let by = Wide::from(b).scale((q - p) as u32);
        let rest = if by.high > 0 { a } else { a % by.low };
        Finite { negative, coefficient: rest, exponent: p }
    }

    /// Cut after this many places (negative: before the point).
    pub fn truncate(self, places: i32) -> Self {
        self.at_place(places, |quotient, _, _, _| quotient)
    }

    /// Rounded half to even after this many places.
    pub fn round(self, places: i32) -> Self {
        self.at_place(places, |quotient, rest, unit, _| match (rest * 2).cmp(&unit) {
            Ordering::Greater => quotient + 1,
            Ordering::Equal => quotient + quotient % 2,
            Ordering::Less => quotient,
        })
    }

    /// The largest whole number that is not above it.
    pub fn floor(self) -> Self {
        self.at_place(0, |quotient, rest, _, negative| quotient + u128::from(negative && rest > 0))
    }

    /// The smallest whole number that is not below it.
    pub fn ceil(self) -> Self {
        self.at_place(0, |quotient, rest, _, negative| quotient + u128::from(!negative && rest > 0))
    }

    fn at_place(self, places: i32, keep: impl Fn(u128, u128, u128, bool) -> u128) -> Self {
        let Finite { negative, coefficient, exponent } = self else { return self };
        let drop = -places - exponent;
        if drop <= 0 {
            return self;
        }
        let (quotient, rest, unit) = match 10u128.checked_pow(drop as u32) {
            Some(unit) if drop <= 36 => (coefficient / unit, coefficient % unit, unit),
            // Far below half a unit.
            _ => (0, u128::from(coefficient > 0), 10),
        };
        let coefficient = keep(quotient, rest, unit, negative);
        Self::fit(negative, Wide::from(coefficient), -places)
    }

    /// The square root, to 34 digits.
    pub fn sqrt(self) -> Self {
        let Finite { coefficient, exponent, .. } = self else {
            return if self.is_negative() { Nan } else { self };
        };
        if coefficient == 0 {
            return self;
        }
        if self.is_negative() {
            return Nan;
        }
        // Newton's steps from the double's root double the digits each time.
        let half = Finite { negative: false, coefficient: 5, exponent: -1 };
        let even = exponent - exponent.rem_euclid(2);
        let scaled = Finite { negative: false, coefficient, exponent: exponent - even };
        let mut root = Self::from_f64(scaled.to_f64().sqrt(), 17);
        for _ in 0..3 {
            root = root.plus(scaled.divide(root)).multiply(half);
        }
        let Finite { coefficient, exponent, .. } = root else { return root };
        Self::fit(false, Wide::from(coefficient), exponent + even / 2).shortest()
    }

    /// Without zeros at the end of the digits.
    pub fn shortest(self) -> Self {
        let Finite { negative, mut coefficient, mut exponent } = self else { return self };
        while coefficient != 0 && coefficient % 10 == 0 && exponent < EXPONENT_MAX {
            coefficient /= 10;
            exponent += 1;
        }
        Finite { negative, coefficient, exponent }
    }

    fn sign(self) -> bool {
        match self {
            Finite { negative, .. } | Infinite { negative } => negative,
            Nan => false,
        }
    }
}

/// The place of the leading digit.
fn magnitude(coefficient: u128, exponent: i32) -> i32 {
    digits(coefficient) as i32 + exponent
}

/// How many decimal digits a number has; one for zero.
pub fn digits(value: u128) -> u32 {
    value.checked_ilog10().unwrap_or(0) + 1
}

/// 256 bits without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    high: u128,
    low: u128,
}

impl From<u128> for Wide {
    fn from(low: u128) -> Self {
        Self { high: 0, low }
    }
}

impl Wide {
    fn product(a: u128, b: u128) -> Self {
        const HALF: u128 = (1 << 64) - 1;
        let (a_high, a_low) = (a >> 64, a & HALF);
        let (b_high, b_low) = (b >> 64, b & HALF);
        let low = a_low * b_low;
        let middle = a_high * b_low + (low >> 64);
        let middle_two = a_low * b_high + (middle & HALF);
        let high = a_high * b_high + (middle >> 64) + (middle_two >> 64);
        Self { high, low: (middle_two << 64) | (low & HALF) }
    }

    fn add(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self { high: self.high + other.high + u128::from(carry), low }
    }

    fn subtract(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self { high: self.high - other.high - u128::from(borrow), low }
    }

    /// Multiplied by a power of ten; the caller knows that it fits.
    fn scale(self, power: u32) -> Self {
        let mut out = self;
        let mut left = power;
        while left > 0 {
            let step = left.min(38);
            let factor = 10u128.pow(step);
            let low = Self::product(out.low, factor);
            out = Self { high: out.high.wrapping_mul(factor).wrapping_add(low.high), low: low.low };
            left -= step;
        }
        out
    }

    /// Quotient and rest.
    fn divide(self, by: u128) -> (Self, u128) {
        if self.high == 0 {
            return (Self::from(self.low / by), self.low % by);
        }
        let (mut quotient, mut rest) = (Self { high: self.high / by, low: 0 }, self.high % by);
        for bit in (0..128).rev() {
            let carry = rest >> 127 == 1;
            rest = (rest << 1) | (self.low >> bit & 1);
            if carry || rest >= by {
                rest = rest.wrapping_sub(by);
                quotient.low |= 1 << bit;
            }
        }
        (quotient, rest)
    }

    fn digits(self) -> u32 {
        if self.high == 0 {
            return digits(self.low);
        }
        let (quotient, _) = self.divide(10u128.pow(38));
        38 + quotient.digits()
    }

    /// Without its last digits, rounded half to even.
    fn round_off(self, count: u32) -> Self {
        if count > 77 {
            return Self::from(0);
        }
        // The last digit dropped decides; those after it only whether a half is exact.
        let (mut kept, mut sticky) = (self, false);
        let mut left = count - 1;
        while left > 0 {
            let step = left.min(38);
            let (quotient, rest) = kept.divide(10u128.pow(step));
            sticky |= rest != 0;
            kept = quotient;
            left -= step;
        }
        let (quotient, last) = kept.divide(10);
        let up = match last.cmp(&5) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => sticky || quotient.low % 2 == 1,
        };
        if up { quotient.add(Self::from(1)) } else { quotient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn arithmetic_is_that_of_ieee_754() {
        type Case = (&'static str, fn(Decimal, Decimal) -> Decimal, &'static str, &'static str);
        let cases: [Case; 16] = [
            ("0.1", Decimal::plus, "0.2", "0.3"),
            ("1E+40", Decimal::plus, "1", "1.000000000000000000000000000000000E+40"),
            (
                "9999999999999999999999999999999999",
                Decimal::plus,
                "1",
                "1.000000000000000000000000000000000E+34",
            ),
            ("1", Decimal::subtract, "1E-50", "1.000000000000000000000000000000000"),
            ("1.5", Decimal::multiply, "2.0", "3.00"),
            ("1E+6000", Decimal::multiply, "1E+6000", "Infinity"),
            ("1", Decimal::divide, "3", "0.3333333333333333333333333333333333"),
            ("2", Decimal::divide, "3", "0.6666666666666666666666666666666667"),
            ("10", Decimal::divide, "4", "2.5"),
            ("1", Decimal::divide, "0", "Infinity"),
            ("0", Decimal::divide, "0", "NaN"),
            ("-7.5", Decimal::remainder, "2", "-1.5"),
            ("1E+30", Decimal::remainder, "7", "1"),
            ("Infinity", Decimal::subtract, "Infinity", "NaN"),
            ("Infinity", Decimal::multiply, "0", "NaN"),
            ("3", Decimal::remainder, "0", "NaN"),
        ];
        for (a, operation, b, expected) in cases {
            let found = operation(decimal(a), decimal(b)).encode().to_string();
            assert_eq!(found, expected, "{a} and {b}");
        }
    }

    #[test]
    fn rounding_goes_half_to_even() {
        for (value, places, rounded) in [
            ("2.5", 0, "2"),
            ("3.5", 0, "4"),
            ("-2.51", 0, "-3"),
            ("1234", -2, "1.2E+3"),
            ("0.25", 1, "0.2"),
        ] {
            assert_eq!(decimal(value).round(places).encode().to_string(), rounded, "{value}");
        }
        assert_eq!(decimal("-1.5").floor().encode().to_string(), "-2");
        assert_eq!(decimal("-1.5").ceil().encode().to_string(), "-1");
        assert_eq!(decimal("1E-6000").ceil().encode().to_string(), "1");
        assert_eq!(decimal("2").sqrt().encode().to_string(), "1.414213562373095048801688724209698");
        assert_eq!(decimal("144").sqrt().encode().to_string(), "12");
    }

    #[test]
    fn order_sees_through_the_way_a_number_is_written() {
        let ascending = [
            "NaN",
            "-Infinity",
            "-1E+10",
            "-1",
            "0",
            "1E-6176",
            "0.1",
            "1",
            "1.01",
            "2E+1",
            "Infinity",
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(decimal(a).order(decimal(b)), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(decimal("1.000").order(decimal("1")), Ordering::Equal);
        assert_eq!(decimal("-0").order(decimal("0E+5")), Ordering::Equal);
    }

    #[test]
    fn other_numbers_go_in_and_out() {
        assert_eq!(Decimal::from_f64(2.5, 15).encode().to_string(), "2.50000000000000");
        assert_eq!(Decimal::from_f64(-0.1, 34).to_f64(), -0.1);
        assert_eq!(Decimal::from_i64(i64::MIN).to_i64(), Some(i64::MIN));
        assert_eq!(decimal("1E+19").to_i64(), None);
        assert_eq!(decimal("12.99").to_i64(), Some(12));
        assert_eq!(decimal("9223372036854775808").to_i64(), None);
    }
}
