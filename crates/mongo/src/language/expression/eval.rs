//! Computing expressions; comparison and logic.

use std::cmp::Ordering;

use bson::{Bson, RawArray, RawBsonRef, RawDocument};

use super::{Function, MANY, Node};
use crate::language::compare::order_values;
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::path::field;
use crate::language::value::{owned, owned_document, type_name};
use crate::language::vars::Vars;

/// What an expression sees while it is computed.
pub struct Scope<'a> {
    document: &'a RawDocument,
    bound: Vec<(String, Bson)>,
    /// The command's surroundings.
    pub vars: &'a Vars,
}

impl<'a> Scope<'a> {
    /// A scope with the document as root and current.
    pub fn new(document: &'a RawDocument, vars: &'a Vars) -> Self {
        Self { document, bound: Vec::new(), vars }
    }

    /// Binds a variable; a later one hides an earlier of the same name.
    pub fn bind(&mut self, name: &str, value: Bson) {
        self.bound.push((name.to_owned(), value));
    }

    fn variable(&self, name: &str) -> Option<&Bson> {
        self.bound.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The value of a tree.
    pub(crate) fn eval(&mut self, node: &Node) -> Result<Bson> {
        Ok(match node {
            Node::Constant(value) => value.clone(),
            Node::Field(path) => match self.variable("CURRENT") {
                Some(current) => in_value(current, path),
                None => in_document(self.document, path)?,
            },
            Node::Root(path) => self.root(path)?,
            Node::Variable(name, path) => match self.variable(name) {
                Some(value) => in_value(value, path),
                None => self.global(name, path)?,
            },
            Node::Object(fields) => {
                let mut out = bson::Document::new();
                for (name, node) in fields {
                    match self.eval(node)? {
                        Bson::Undefined => {}
                        value => drop(out.insert(name, value)),
                    }
                }
                Bson::Document(out)
            }
            Node::Array(nodes) => {
                // An array has no gaps: what is missing is null in it.
                let missing_to_null =
                    |value| if value == Bson::Undefined { Bson::Null } else { value };
                Bson::Array(
                    nodes
                        .iter()
                        .map(|node| self.eval(node).map(missing_to_null))
                        .collect::<Result<_>>()?,
                )
            }
            Node::And(nodes) => {
                for node in nodes {
                    if !truth(&self.eval(node)?) {
                        return Ok(Bson::Boolean(false));
                    }
                }
                Bson::Boolean(true)
            }
            Node::Or(nodes) => {
                for node in nodes {
                    if truth(&self.eval(node)?) {
                        return Ok(Bson::Boolean(true));
                    }
                }
                Bson::Boolean(false)
            }
            Node::Condition(nodes) => {
                let [condition, yes, no] = &**nodes;
                let chosen = if truth(&self.eval(condition)?) { yes } else { no };
                self.eval(chosen)?
            }
            Node::IfNull(nodes) => {
                let mut last = Bson::Null;
                for node in nodes {
                    last = self.eval(node)?;
                    if !is_nullish(&last) {
                        break;
                    }
                }
                last
            }
            Node::Switch { branches, default } => {
                for (case, then) in branches {
                    if truth(&self.eval(case)?) {
                        return self.eval(then);
                    }
                }
                match default {
                    Some(default) => self.eval(default)?,
                    None => {
                        return Err(Failure::coded(
                            40066,
                            "$switch could not find a matching branch for an input, and no default was specified.",
                        ));
                    }
                }
            }
            Node::Let { variables, body } => {
                let mut values = Vec::with_capacity(variables.len());
                for (name, node) in variables {
                    values.push((name.clone(), self.eval(node)?));
                }
                let depth = self.bound.len();
                self.bound.extend(values);
                let result = self.eval(body);
                self.bound.truncate(depth);
                result?
            }
            Node::Map { input, name, body } => {
                let Some(items) = self.items(input, "$map", 16883)? else { return Ok(Bson::Null) };
                let mut out = Vec::with_capacity(items.len());
                for item in items {
                    out.push(match self.eval_with(name, item, body)? {
                        Bson::Undefined => Bson::Null,
                        value => value,
                    });
                }
                Bson::Array(out)
            }
            Node::Filter { input, name, condition, limit } => {
                let Some(items) = self.items(input, "$filter", 28651)? else {
                    return Ok(Bson::Null);
                };
                let limit = match limit {
                    None => usize::MAX,
                    Some(limit) => match self.eval(limit)? {
                        value if is_nullish(&value) => usize::MAX,
                        value => filter_limit(&value)?,
                    },
                };
                let mut out = Vec::new();
                for item in items {
                    if out.len() == limit {
                        break;
                    }
                    if truth(&self.eval_with(name, item.clone(), condition)?) {
                        out.push(item);
                    }
                }
                Bson::Array(out)
            }
            Node::Reduce { input, initial, body } => {
                let Some(items) = self.items(input, "$reduce", 40080)? else {
                    return Ok(Bson::Null);
                };
                let mut value = self.eval(initial)?;
                for item in items {
                    let depth = self.bound.len();
                    self.bind("this", item);
                    self.bind("value", value);
                    let next = self.eval(body);
                    self.bound.truncate(depth);
                    value = next?;
                }
                value
            }
            Node::Call(function, nodes) => match &nodes[..] {
                // Most take one or two: no allocation for their arguments.
                [one] => (function.call)(&[self.eval(one)?], self)?,
                [one, two] => (function.call)(&[self.eval(one)?, self.eval(two)?], self)?,
                nodes => {
                    let mut values = Vec::with_capacity(nodes.len());
                    for node in nodes {
                        values.push(self.eval(node)?);
                    }
                    (function.call)(&values, self)?
                }
            },
            Node::Named(function, nodes) => {
                let mut values = Vec::with_capacity(nodes.len());
                for node in nodes {
                    values.push(match node {
                        Some(node) => Some(self.eval(node)?),
                        None => None,
                    });
                }
                (function.call)(&values, self)?
            }
        })
    }

    fn eval_with(&mut self, name: &str, value: Bson, body: &Node) -> Result<Bson> {
        let depth = self.bound.len();
        self.bind(name, value);
        let result = self.eval(body);
        self.bound.truncate(depth);
        result
    }

    /// The elements that an operator goes over; none for null.
    fn items(&mut self, input: &Node, operator: &str, code: i32) -> Result<Option<Vec<Bson>>> {
        match self.eval(input)? {
            Bson::Array(items) => Ok(Some(items)),
            value if is_nullish(&value) => Ok(None),
            other if operator == "$reduce" => Err(Failure::coded(
                code,
                format!("$reduce requires that 'input' be an array, found: {}", other),
            )),
            other => Err(Failure::coded(
                code,
                format!("input to {operator} must be an array not {}", kind(&other)),
            )),
        }
    }

    /// The current document.
    pub(super) fn current(&self) -> Result<Bson> {
        match self.variable("CURRENT") {
            Some(current) => Ok(current.clone()),
            None => Ok(Bson::Document(owned_document(self.document)?)),
        }
    }

    fn root(&self, path: &[String]) -> Result<Bson> {
        match self.variable("ROOT") {
            Some(root) => Ok(in_value(root, path)),
            None if path.is_empty() => Ok(Bson::Document(owned_document(self.document)?)),
            None => in_document(self.document, path),
        }
    }

    fn global(&self, name: &str, path: &[String]) -> Result<Bson> {
        Ok(match name {
            "NOW" => in_value(&Bson::DateTime(self.vars.now), path),
            "CURRENT" if path.is_empty() => Bson::Document(owned_document(self.document)?),
            "CURRENT" => in_document(self.document, path)?,
            "REMOVE" => Bson::Undefined,
            "CLUSTER_TIME" => Bson::Timestamp(bson::Timestamp {
                time: (self.vars.now.timestamp_millis() / 1000) as u32,
                increment: 1,
            }),
            "USER_ROLES" => Bson::Array(Vec::new()),
            "KEEP" | "PRUNE" | "DESCEND" => Bson::String(format!("$${name}")),
            _ => match self.vars.variable(name) {
                Some(value) => in_value(value, path),
                None => Bson::Undefined,
            },
        })
    }
}

fn filter_limit(value: &Bson) -> Result<usize> {
    Number::of_bson(value)
        .and_then(Number::to_i64_exact)
        .and_then(|limit| i32::try_from(limit).ok())
        .ok_or_else(|| {
            Failure::coded(327391, "$filter: limit must be represented as a 32-bit integral value")
        })
        .and_then(|limit| {
            usize::try_from(limit).ok().filter(|limit| *limit > 0).ok_or_else(|| {
                Failure::coded(
                    327392,
                    format!("$filter: limit must be greater than 0, found: {limit}"),
                )
            })
        })
}

/// The name of a value's type; what is missing has one too.
pub(crate) fn kind(value: &Bson) -> &'static str {
    match value {
        Bson::Undefined => "missing",
        value => type_name(value.element_type()),
    }
}

/// Whether a value counts as true: all but false, null, missing and zero.
pub(crate) fn truth(value: &Bson) -> bool {
    match value {
        Bson::Boolean(flag) => *flag,
        Bson::Null | Bson::Undefined => false,
        value => Number::of_bson(value).is_none_or(|number| !number.is_zero()),
    }
}

/// Null or missing.
pub(crate) fn is_nullish(value: &Bson) -> bool {
    matches!(value, Bson::Null | Bson::Undefined)
}

/// What a path leads to. An array on the way stands for the array of what its documents have there.
pub(crate) fn in_value(value: &Bson, path: &[String]) -> Bson {
    let Some((first, rest)) = path.split_first() else { return value.clone() };
    match value {
        Bson::Document(document) => match document.get(first) {
            Some(value) => in_value(value, rest),
            None => Bson::Undefined,
        },
        Bson::Array(items) => Bson::Array(
            items
                .iter()
                .filter(|item| matches!(item, Bson::Document(_) | Bson::Array(_)))
                .map(|item| in_value(item, path))
                .filter(|found| *found != Bson::Undefined)
                .collect(),
        ),
        _ => Bson::Undefined,
    }
}

/// The same in a raw document.
pub(crate) fn in_document(document: &RawDocument, path: &[String]) -> Result<Bson> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(Bson::Document(owned_document(document)?));
    };
    match field(document, first) {
        None => Ok(Bson::Undefined),
        Some(value) if rest.is_empty() => owned(value),
        Some(RawBsonRef::Document(inner)) => in_document(inner, rest),
        Some(RawBsonRef::Array(array)) => in_array(array, rest),
        Some(_) => Ok(Bson::Undefined),
    }
}

fn in_array(array: &RawArray, path: &[String]) -> Result<Bson> {
    let mut out = Vec::new();
    for value in array {
        match value? {
            RawBsonRef::Document(inner) => match in_document(inner, path)? {
                Bson::Undefined => {}
                found => out.push(found),
            },
            RawBsonRef::Array(inner) => out.push(in_array(inner, path)?),
            _ => {}
        }
    }
    Ok(Bson::Array(out))
}

const fn two(name: &'static str, call: fn(&[Bson], &Scope<'_>) -> Result<Bson>) -> Function {
    Function { name, min: 2, max: 2, call }
}

pub(super) const FUNCTIONS: &[Function] = &[
    two("$eq", |values, scope| Ok(Bson::Boolean(order(values, scope).is_eq()))),
    two("$ne", |values, scope| Ok(Bson::Boolean(order(values, scope).is_ne()))),
    two("$lt", |values, scope| Ok(Bson::Boolean(order(values, scope).is_lt()))),
    two("$lte", |values, scope| Ok(Bson::Boolean(order(values, scope).is_le()))),
    two("$gt", |values, scope| Ok(Bson::Boolean(order(values, scope).is_gt()))),
    two("$gte", |values, scope| Ok(Bson::Boolean(order(values, scope).is_ge()))),
    two("$cmp", |values, scope| Ok(Bson::Int32(order(values, scope) as i32))),
    Function {
        name: "$not",
        min: 1,
        max: 1,
        call: |values, _| Ok(Bson::Boolean(!truth(&values[0]))),
    },
    Function { name: "$rand", min: 0, max: 0, call: |_, _| Ok(Bson::Double(fastrand::f64())) },
    Function {
        name: "$type",
        min: 1,
        max: 1,
        call: |values, _| Ok(Bson::String(kind(&values[0]).to_owned())),
    },
    Function {
        name: "$isNumber",
        min: 1,
        max: 1,
        call: |values, _| Ok(Bson::Boolean(Number::of_bson(&values[0]).is_some())),
    },
    Function {
        name: "$function",
        min: 0,
        max: MANY,
        call: |_, _| {
            Err(Failure::coded(
                115,
                "$function is not supported: there is no server-side JavaScript",
            ))
        },
    },
];

fn order(values: &[Bson], scope: &Scope<'_>) -> Ordering {
    order_values(&values[0], &values[1], scope.vars.collation.as_ref())
}
