//! The plain data of filter operators: comparisons, types, bits.

use std::cmp::Ordering;

use bson::spec::ElementType;
use bson::{RawBsonRef, spec::BinarySubtype};

use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::value::{shown_raw, type_name};

/// How a value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `$eq`
    Equal,
    /// `$lt`
    Less,
    /// `$lte`
    AtMost,
    /// `$gt`
    Greater,
    /// `$gte`
    AtLeast,
}

impl Comparison {
    /// Whether an order satisfies it.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }

    /// Whether equal values satisfy it.
    pub fn takes_equal(self) -> bool {
        self.holds(Ordering::Equal)
    }
}

/// A set of BSON types, as `$type` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    kinds: Vec<ElementType>,
}

impl From<Vec<ElementType>> for Kinds {
    fn from(kinds: Vec<ElementType>) -> Self {
        Self { kinds }
    }
}

const ALL_KINDS: [ElementType; 21] = [
    ElementType::Double,
    ElementType::String,
    ElementType::EmbeddedDocument,
    ElementType::Array,
    ElementType::Binary,
    ElementType::Undefined,
    ElementType::ObjectId,
    ElementType::Boolean,
    ElementType::DateTime,
    ElementType::Null,
    ElementType::RegularExpression,
    ElementType::DbPointer,
    ElementType::JavaScriptCode,
    ElementType::Symbol,
    ElementType::JavaScriptCodeWithScope,
    ElementType::Int32,
    ElementType::Timestamp,
    ElementType::Int64,
    ElementType::Decimal128,
    ElementType::MaxKey,
    ElementType::MinKey,
];

impl Kinds {
    /// Reads a type's name or number, or an array of them.
    pub fn parse(value: RawBsonRef<'_>) -> Result<Self> {
        let mut found = Self::default();
        match value {
            RawBsonRef::Array(array) => {
                for value in array {
                    found.add(value?)?;
                }
                if found.kinds.is_empty() {
                    return Err(Failure::failed_to_parse(" must match at least one type"));
                }
            }
            value => found.add(value)?,
        }
        Ok(found)
    }

    fn add(&mut self, value: RawBsonRef<'_>) -> Result<()> {
        if let RawBsonRef::String(name) = value {
            if name == "number" {
                self.kinds.extend([
                    ElementType::Double,
                    ElementType::Int32,
                    ElementType::Int64,
                    ElementType::Decimal128,
                ]);
                return Ok(());
            }
            let kind = ALL_KINDS
                .iter()
                .find(|kind| type_name(**kind) == name)
                .ok_or_else(|| Failure::bad_value(format!("Unknown type name alias: {name}")))?;
            self.kinds.push(*kind);
            return Ok(());
        }
        let Some(number) = Number::of(value) else {
            return Err(Failure::type_mismatch("type must be represented as a number or a string"));
        };
        let code = number.to_i64_exact().ok_or_else(|| {
            Failure::bad_value(format!("Invalid numerical type code: {}", shown_raw(value)))
        })?;
        let byte = match code {
            -1 => Some(ElementType::MinKey),
            127 => Some(ElementType::MaxKey),
            1..=19 => u8::try_from(code).ok().and_then(ElementType::from),
            _ => None,
        };
        let kind =
            byte.ok_or_else(|| Failure::bad_value(format!("Invalid numerical type code: {code}")))?;
        self.kinds.push(kind);
        Ok(())
    }

    /// Whether a value is of one of the types.
    pub fn contains(&self, kind: ElementType) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Which of the bits must be how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// `$bitsAllSet`
    AllSet,
    /// `$bitsAllClear`
    AllClear,
    /// `$bitsAnySet`
    AnySet,
    /// `$bitsAnyClear`
    AnyClear,
}

/// The places of bits, the lowest is 0.
#[derive(Clone, Debug)]
pub struct Mask {
    places: Vec<usize>,
}

impl Mask {
    /// Reads a mask: a number, binary data or an array of places.
    pub fn parse(operator: &str, value: RawBsonRef<'_>) -> Result<Self> {
        let places = match value {
            RawBsonRef::Array(array) => {
                let mut places = Vec::new();
                for value in array {
                    let value = value?;
                    let place = Number::of(value)
                        .and_then(Number::to_i64_exact)
                        .and_then(|place| usize::try_from(place).ok())
                        .ok_or_else(|| {
                            Failure::bad_value(format!(
                                "Failed to parse bit position. Expected a non-negative integer in: {}",
                                shown_raw(value)
                            ))
                        })?;
                    places.push(place);
                }
                places
            }
            RawBsonRef::Binary(binary) => {
                (0..binary.bytes.len() * 8).filter(|at| bit(binary.bytes, *at)).collect()
            }
            value => {
                let mask = Number::of(value)
                    .and_then(Number::to_i64_exact)
                    .filter(|mask| *mask >= 0)
                    .ok_or_else(|| match Number::of(value) {
                        Some(_) => Failure::failed_to_parse(format!(
                            "Expected a non-negative number in: {operator}: {}",
                            shown_raw(value)
                        )),
                        None => Failure::bad_value(format!(
                            "{operator} takes an Array, a number, or a BinData but received: {operator}: {}",
                            shown_raw(value)
                        )),
                    })?;
                (0..64).filter(|at| mask >> at & 1 == 1).collect()
            }
        };
        Ok(Self { places })
    }

    /// Whether the bits of a value are as asked; only whole numbers and binary data have any.
    pub fn test(&self, bits: Bits, value: RawBsonRef<'_>) -> bool {
        let test = |is_set: &dyn Fn(usize) -> bool| {
            let mut set = self.places.iter().map(|place| is_set(*place));
            match bits {
                Bits::AllSet => set.all(|set| set),
                Bits::AllClear => set.all(|set| !set),
                Bits::AnySet => set.any(|set| set),
                Bits::AnyClear => set.any(|set| !set),
            }
        };
        match value {
            RawBsonRef::Binary(binary) if binary.subtype != BinarySubtype::Column => {
                test(&|at| bit(binary.bytes, at))
            }
            value => match Number::of(value).and_then(Number::to_i64_exact) {
                // Beyond its 64 bits a number goes on with its sign.
                Some(number) => test(&|at| number >> at.min(63) & 1 == 1),
                None => false,
            },
        }
    }
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}
