//! Operators on one value: `$set`, `$inc`, `$mul`, `$min`, `$max`, `$bit`, `$currentDate`.

use bson::{Bson, Timestamp};

use super::target::{Part, written};
use crate::language::compare::order_values;
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::value::{shown, type_name};
use crate::language::vars::Vars;

/// What happens to a field's value.
#[derive(Debug)]
pub enum FieldChange {
    Set(Bson),
    Increment(Number),
    Multiply(Number),
    Min(Bson),
    Max(Bson),
    /// Applied one after the other.
    Bit(Vec<(BitOperation, Number)>),
    CurrentDate,
    CurrentTimestamp,
}

#[derive(Clone, Copy, Debug)]
pub enum BitOperation {
    And,
    Or,
    Xor,
}

/// Where a change happens, for its messages.
pub struct Place<'a> {
    pub path: &'a [Part],
    pub operator: &'static str,
    pub id: Option<&'a Bson>,
}

impl Place<'_> {
    /// The document's id as messages show it.
    pub fn document(&self) -> String {
        self.id.map_or_else(|| "{no id}".to_owned(), |id| format!("{{_id: {}}}", shown(id)))
    }

    /// The name of the field.
    pub fn name(&self) -> String {
        self.path.last().map(Part::text).unwrap_or_default()
    }

    /// The whole path.
    pub fn path(&self) -> String {
        written(self.path)
    }
}

impl FieldChange {
    /// The field's next value; none if it stays.
    pub fn next(
        &self,
        current: Option<&Bson>,
        at: &Place<'_>,
        vars: &Vars,
    ) -> Result<Option<Bson>> {
        Ok(Some(match self {
            Self::Set(value) => value.clone(),
            Self::Increment(by) => match number(current, at)? {
                None => by.to_bson(),
                Some(now) => now.plus(*by).ok_or_else(|| overflow(now, at))?.to_bson(),
            },
            Self::Multiply(by) => match number(current, at)? {
                None => by.multiply(Number::Int(0)).unwrap_or(Number::Int(0)).to_bson(),
                Some(now) => now.multiply(*by).ok_or_else(|| overflow(now, at))?.to_bson(),
            },
            Self::Min(value) | Self::Max(value) => match current {
                None => value.clone(),
                Some(current) => {
                    let order = order_values(value, current, vars.collation.as_ref());
                    let takes = match self {
                        Self::Min(_) => order.is_lt(),
                        _ => order.is_gt(),
                    };
                    if !takes {
                        return Ok(None);
                    }
                    value.clone()
                }
            },
            Self::Bit(operations) => bits(current, operations, at)?,
            Self::CurrentDate => Bson::DateTime(vars.now),
            Self::CurrentTimestamp => Bson::Timestamp(Timestamp {
                time: (vars.now.timestamp_millis() / 1000) as u32,
                increment: 1,
            }),
        }))
    }
}

fn number(current: Option<&Bson>, at: &Place<'_>) -> Result<Option<Number>> {
    let Some(current) = current else { return Ok(None) };
    match Number::of_bson(current) {
        Some(number) => Ok(Some(number)),
        None => Err(Failure::type_mismatch(format!(
            "Cannot apply {} to a value of non-numeric type. {} has the field '{}' of non-numeric type {}",
            at.operator,
            at.document(),
            at.name(),
            type_name(current.element_type())
        ))),
    }
}

fn overflow(now: Number, at: &Place<'_>) -> Failure {
    let kind = match now {
        Number::Int(_) => "NumberInt",
        _ => "NumberLong",
    };
    Failure::bad_value(format!(
        "Failed to apply {} operations to current value (({kind}){}) for document {}",
        at.operator,
        shown(&now.to_bson()),
        at.document()
    ))
}

fn bits(
    current: Option<&Bson>,
    operations: &[(BitOperation, Number)],
    at: &Place<'_>,
) -> Result<Bson> {
    let mut value = match current {
        None => Number::Int(0),
        Some(Bson::Int32(n)) => Number::Int(*n),
        Some(Bson::Int64(n)) => Number::Long(*n),
        Some(other) => {
            return Err(Failure::bad_value(format!(
                "Cannot apply $bit to a value of non-integral type.{} has the field {} of non-integer type {}",
                at.document(),
                at.name(),
                type_name(other.element_type())
            )));
        }
    };
    for (operation, by) in operations {
        let wide = matches!(value, Number::Long(_)) || matches!(by, Number::Long(_));
        let (a, b) = (value.to_i64_clamped(), by.to_i64_clamped());
        let result = match operation {
            BitOperation::And => a & b,
            BitOperation::Or => a | b,
            BitOperation::Xor => a ^ b,
        };
        value = if wide { Number::Long(result) } else { Number::Int(result as i32) };
    }
    Ok(value.to_bson())
}
