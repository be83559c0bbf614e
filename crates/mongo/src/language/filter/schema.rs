//! `$jsonSchema`: draft 4 of JSON Schema with MongoDB's `bsonType`.

use std::collections::HashSet;

use bson::spec::ElementType;
use bson::{RawBson, RawBsonRef, RawDocument};

use super::operators::Kinds;
use crate::language::compare::equal;
use crate::language::failure::{Failure, Result};
use crate::language::keycode;
use crate::language::number::Number;
use crate::language::pattern::Pattern;
use crate::language::value::type_name;

/// A schema that values are checked against.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
enum Rule {
    Kinds(Kinds),
    Enum(Vec<RawBson>),
    All(Vec<Schema>),
    Any(Vec<Schema>),
    One(Vec<Schema>),
    Not(Box<Schema>),
    // Numbers.
    Minimum(Number, bool),
    Maximum(Number, bool),
    MultipleOf(Number),
    // Strings.
    MinLength(i64),
    MaxLength(i64),
    Pattern(Pattern),
    // Arrays.
    MinItems(i64),
    MaxItems(i64),
    UniqueItems,
    Items(Box<Schema>),
    /// By place, and for what comes after.
    Tuple(Vec<Schema>, Box<Schema>),
    // Documents.
    Required(Vec<String>),
    MinProperties(i64),
    MaxProperties(i64),
    Properties(Properties),
    /// If the one is there, so must the others be.
    Needs(String, Vec<String>),
    Implies(String, Box<Schema>),
    Never,
}

#[derive(Clone, Debug, Default)]
struct Properties {
    named: Vec<(String, Schema)>,
    patterns: Vec<(Pattern, Schema)>,
    rest: Schema,
}

impl Schema {
    /// Reads a schema.
    pub fn parse(spec: &RawDocument) -> Result<Self> {
        let mut rules = Vec::new();
        let mut properties = Properties::default();
        let mut has_properties = false;
        for element in spec.iter() {
            let (keyword, value) = element?;
            let keyword = keyword.as_str();
            match keyword {
                "bsonType" => rules.push(Rule::Kinds(Kinds::parse(value)?)),
                "type" => rules.push(Rule::Kinds(json_kinds(value)?)),
                "enum" => rules.push(Rule::Enum(values(keyword, value)?)),
                "allOf" => rules.push(Rule::All(schemas(keyword, value)?)),
                "anyOf" => rules.push(Rule::Any(schemas(keyword, value)?)),
                "oneOf" => rules.push(Rule::One(schemas(keyword, value)?)),
                "not" => rules.push(Rule::Not(Box::new(Self::parse(object(keyword, value)?)?))),
                "minimum" => {
                    rules.push(Rule::Minimum(
                        number(keyword, value)?,
                        flag(spec, "exclusiveMinimum")?,
                    ));
                }
                "maximum" => {
                    rules.push(Rule::Maximum(
                        number(keyword, value)?,
                        flag(spec, "exclusiveMaximum")?,
                    ));
                }
                "exclusiveMinimum" | "exclusiveMaximum" => {
                    let of = if keyword == "exclusiveMinimum" { "minimum" } else { "maximum" };
                    if spec.get(of)?.is_none() {
                        return Err(Failure::failed_to_parse(format!(
                            "$jsonSchema keyword '{of}' must be a present if {keyword} is present"
                        )));
                    }
                }
                "multipleOf" => {
                    let by = number(keyword, value)?;
                    if by.to_f64() <= 0.0 {
                        return Err(Failure::failed_to_parse(
                            "$jsonSchema keyword 'multipleOf' must have a positive value",
                        ));
                    }
                    rules.push(Rule::MultipleOf(by));
                }
                "minLength" => rules.push(Rule::MinLength(count(keyword, value)?)),
                "maxLength" => rules.push(Rule::MaxLength(count(keyword, value)?)),
                "pattern" => {
                    let RawBsonRef::String(source) = value else {
                        return Err(wrong_type(keyword, "string"));
                    };
                    rules.push(Rule::Pattern(Pattern::compile(source, "", "$jsonSchema")?));
                }
                "minItems" => rules.push(Rule::MinItems(count(keyword, value)?)),
                "maxItems" => rules.push(Rule::MaxItems(count(keyword, value)?)),
                "uniqueItems" => match value {
                    RawBsonRef::Boolean(true) => rules.push(Rule::UniqueItems),
                    RawBsonRef::Boolean(false) => {}
                    _ => return Err(wrong_type(keyword, "boolean")),
                },
                "items" => match value {
                    RawBsonRef::Document(inner) => {
                        rules.push(Rule::Items(Box::new(Self::parse(inner)?)))
                    }
                    RawBsonRef::Array(_) => {
                        let rest = match spec.get("additionalItems")? {
                            Some(value) => Self::or_flag("additionalItems", value)?,
                            None => Self::default(),
                        };
                        rules.push(Rule::Tuple(schemas(keyword, value)?, Box::new(rest)));
                    }
                    _ => return Err(wrong_type(keyword, "array or an object")),
                },
                "additionalItems" => drop(Self::or_flag(keyword, value)?),
                "required" => rules.push(Rule::Required(names(keyword, value)?)),
                "minProperties" => rules.push(Rule::MinProperties(count(keyword, value)?)),
                "maxProperties" => rules.push(Rule::MaxProperties(count(keyword, value)?)),
                "properties" => {
                    for element in object(keyword, value)?.iter() {
                        let (name, value) = element?;
                        let schema = Self::parse(object(name.as_str(), value)?)?;
                        properties.named.push((name.as_str().to_owned(), schema));
                    }
                    has_properties = true;
                }
                "patternProperties" => {
                    for element in object(keyword, value)?.iter() {
                        let (name, value) = element?;
                        let pattern = Pattern::compile(name.as_str(), "", "$jsonSchema")?;
                        properties
                            .patterns
                            .push((pattern, Self::parse(object(name.as_str(), value)?)?));
                    }
                    has_properties = true;
                }
                "additionalProperties" => {
                    properties.rest = Self::or_flag(keyword, value)?;
                    has_properties = true;
                }
                "dependencies" => {
                    for element in object(keyword, value)?.iter() {
                        let (name, value) = element?;
                        let name = name.as_str().to_owned();
                        rules.push(match value {
                            RawBsonRef::Document(inner) => {
                                Rule::Implies(name, Box::new(Self::parse(inner)?))
                            }
                            value => {
                                let needs = names("dependencies", value)?;
                                Rule::Needs(name, needs)
                            }
                        });
                    }
                }
                "title" | "description" => {
                    if !matches!(value, RawBsonRef::String(_)) {
                        return Err(wrong_type(keyword, "string"));
                    }
                }
                "$ref" | "$schema" | "default" | "definitions" | "format" | "id" => {
                    return Err(Failure::failed_to_parse(format!(
                        "$jsonSchema keyword '{keyword}' is not currently supported"
                    )));
                }
                _ => {
                    return Err(Failure::failed_to_parse(format!(
                        "Unknown $jsonSchema keyword: {keyword}"
                    )));
                }
            }
        }
        if has_properties {
            rules.push(Rule::Properties(properties));
        }
        Ok(Self { rules })
    }

    /// A schema, or a flag: everything or nothing.
    fn or_flag(keyword: &str, value: RawBsonRef<'_>) -> Result<Self> {
        match value {
            RawBsonRef::Boolean(true) => Ok(Self::default()),
            RawBsonRef::Boolean(false) => Ok(Self { rules: vec![Rule::Never] }),
            RawBsonRef::Document(inner) => Self::parse(inner),
            _ => Err(wrong_type(keyword, "object or boolean")),
        }
    }

    /// Whether a document is as the schema says.
    pub fn matches(&self, document: &RawDocument) -> Result<bool> {
        self.holds(RawBsonRef::Document(document))
    }

    fn holds(&self, value: RawBsonRef<'_>) -> Result<bool> {
        for rule in &self.rules {
            if !rule.holds(value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Rule {
    /// A rule about one kind of value says nothing about others.
    fn holds(&self, value: RawBsonRef<'_>) -> Result<bool> {
        Ok(match self {
            Self::Never => false,
            Self::Kinds(kinds) => kinds.contains(value.element_type()),
            Self::Enum(values) => values.iter().any(|each| equal(each.as_raw_bson_ref(), value)),
            Self::All(schemas) => count_holding(schemas, value)? == schemas.len(),
            Self::Any(schemas) => count_holding(schemas, value)? > 0,
            Self::One(schemas) => count_holding(schemas, value)? == 1,
            Self::Not(schema) => !schema.holds(value)?,
            Self::Minimum(..) | Self::Maximum(..) | Self::MultipleOf(_) => {
                Number::of(value).is_none_or(|number| self.holds_number(number))
            }
            Self::MinLength(_) | Self::MaxLength(_) | Self::Pattern(_) => match value {
                RawBsonRef::String(text) => self.holds_text(text)?,
                _ => true,
            },
            Self::MinItems(_)
            | Self::MaxItems(_)
            | Self::UniqueItems
            | Self::Items(_)
            | Self::Tuple(..) => match value {
                RawBsonRef::Array(array) => {
                    let items: Vec<RawBsonRef<'_>> = array.into_iter().flatten().collect();
                    self.holds_items(&items)?
                }
                _ => true,
            },
            _ => match value {
                RawBsonRef::Document(document) => self.holds_fields(document)?,
                _ => true,
            },
        })
    }

    fn holds_number(&self, number: Number) -> bool {
        match self {
            Self::Minimum(low, exclusive) => {
                let order = number.order(*low);
                order.is_gt() || (order.is_eq() && !exclusive)
            }
            Self::Maximum(high, exclusive) => {
                let order = number.order(*high);
                order.is_lt() || (order.is_eq() && !exclusive)
            }
            Self::MultipleOf(by) => number.to_decimal().remainder(by.to_decimal()).is_zero(),
            _ => true,
        }
    }

    fn holds_text(&self, text: &str) -> Result<bool> {
        Ok(match self {
            Self::MinLength(min) => text.chars().count() as i64 >= *min,
            Self::MaxLength(max) => text.chars().count() as i64 <= *max,
            Self::Pattern(pattern) => pattern.is_match(text)?,
            _ => true,
        })
    }

    fn holds_items(&self, items: &[RawBsonRef<'_>]) -> Result<bool> {
        Ok(match self {
            Self::MinItems(min) => items.len() as i64 >= *min,
            Self::MaxItems(max) => items.len() as i64 <= *max,
            Self::UniqueItems => {
                let mut seen = HashSet::new();
                items.iter().all(|item| seen.insert(keycode::key(*item)))
            }
            Self::Items(schema) => {
                for item in items {
                    if !schema.holds(*item)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Tuple(schemas, rest) => {
                for (at, item) in items.iter().enumerate() {
                    if !schemas.get(at).unwrap_or(rest).holds(*item)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => true,
        })
    }

    fn holds_fields(&self, document: &RawDocument) -> Result<bool> {
        let has = |name: &String| document.get(name).is_ok_and(|found| found.is_some());
        Ok(match self {
            Self::Required(names) => names.iter().all(has),
            Self::MinProperties(min) => document.iter().count() as i64 >= *min,
            Self::MaxProperties(max) => document.iter().count() as i64 <= *max,
            Self::Needs(name, others) => !has(name) || others.iter().all(has),
            Self::Implies(name, schema) => !has(name) || schema.matches(document)?,
            Self::Properties(properties) => return properties.hold(document),
            _ => true,
        })
    }
}

impl Properties {
    fn hold(&self, document: &RawDocument) -> Result<bool> {
        for element in document.iter() {
            let (name, value) = element?;
            let name = name.as_str();
            let mut known = false;
            for (property, schema) in &self.named {
                if property == name {
                    known = true;
                    if !schema.holds(value)? {
                        return Ok(false);
                    }
                }
            }
            for (pattern, schema) in &self.patterns {
                if pattern.is_match(name)? {
                    known = true;
                    if !schema.holds(value)? {
                        return Ok(false);
                    }
                }
            }
            if !known && !self.rest.holds(value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn count_holding(schemas: &[Schema], value: RawBsonRef<'_>) -> Result<usize> {
    let mut count = 0;
    for schema in schemas {
        count += usize::from(schema.holds(value)?);
    }
    Ok(count)
}

fn wrong_type(keyword: &str, wanted: &str) -> Failure {
    let article = if wanted.starts_with(['a', 'o']) { "an" } else { "a" };
    Failure::type_mismatch(format!("$jsonSchema keyword '{keyword}' must be {article} {wanted}"))
}

fn object<'a>(keyword: &str, value: RawBsonRef<'a>) -> Result<&'a RawDocument> {
    value.as_document().ok_or_else(|| wrong_type(keyword, "object"))
}

fn number(keyword: &str, value: RawBsonRef<'_>) -> Result<Number> {
    Number::of(value).ok_or_else(|| wrong_type(keyword, "number"))
}

fn flag(spec: &RawDocument, keyword: &str) -> Result<bool> {
    match spec.get(keyword)? {
        None => Ok(false),
        Some(RawBsonRef::Boolean(flag)) => Ok(flag),
        Some(_) => Err(wrong_type(keyword, "boolean")),
    }
}

fn count(keyword: &str, value: RawBsonRef<'_>) -> Result<i64> {
    number(keyword, value)?.to_i64_exact().filter(|count| *count >= 0).ok_or_else(|| {
        Failure::failed_to_parse(format!(
            "$jsonSchema keyword '{keyword}' must be a non-negative integer"
        ))
    })
}

fn values(keyword: &str, value: RawBsonRef<'_>) -> Result<Vec<RawBson>> {
    let RawBsonRef::Array(array) = value else { return Err(wrong_type(keyword, "array")) };
    let mut out = Vec::new();
    for value in array {
        out.push(RawBson::from(value?));
    }
    if out.is_empty() {
        return Err(Failure::failed_to_parse(format!(
            "$jsonSchema keyword '{keyword}' cannot be an empty array"
        )));
    }
    Ok(out)
}

fn schemas(keyword: &str, value: RawBsonRef<'_>) -> Result<Vec<Schema>> {
    values(keyword, value)?
        .iter()
        .map(|each| match each {
            RawBson::Document(spec) => Schema::parse(spec),
            _ => Err(Failure::type_mismatch(format!(
                "$jsonSchema keyword '{keyword}' must be an array of objects"
            ))),
        })
        .collect()
}

fn names(keyword: &str, value: RawBsonRef<'_>) -> Result<Vec<String>> {
    values(keyword, value)?
        .iter()
        .map(|each| match each {
            RawBson::String(name) => Ok(name.clone()),
            other => Err(Failure::type_mismatch(format!(
                "$jsonSchema keyword '{keyword}' must be an array of strings, but found an element of type: {}",
                type_name(other.element_type())
            ))),
        })
        .collect()
}

/// The types of JSON; integers are not one of them.
fn json_kinds(value: RawBsonRef<'_>) -> Result<Kinds> {
    let list = match value {
        RawBsonRef::Array(_) => names("type", value)?,
        RawBsonRef::String(name) => vec![name.to_owned()],
        _ => return Err(wrong_type("type", "string or an array of strings")),
    };
    let mut kinds = Vec::new();
    for name in list {
        kinds.extend(match name.as_str() {
            "array" => vec![ElementType::Array],
            "boolean" => vec![ElementType::Boolean],
            "null" => vec![ElementType::Null],
            "object" => vec![ElementType::EmbeddedDocument],
            "string" => vec![ElementType::String],
            "number" => vec![
                ElementType::Double,
                ElementType::Int32,
                ElementType::Int64,
                ElementType::Decimal128,
            ],
            "integer" => {
                return Err(Failure::failed_to_parse(
                    "$jsonSchema type 'integer' is not currently supported.",
                ));
            }
            _ => return Err(Failure::bad_value(format!("Unknown type name alias: {name}"))),
        });
    }
    Ok(Kinds::from(kinds))
}
