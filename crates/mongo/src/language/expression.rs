//! Expressions: values computed from a document, in `$expr`, projections, pipelines and update pipelines.
//!
//! [`Expression::parse`] turns the text into a tree once; [`Expression::value`] computes it for a raw document, decoding only the
//! fields that it names. What is missing is [`Bson::Undefined`] throughout: a field that gets it is left out. Most operators are
//! plain functions of their arguments and stand in tables, one file a family; those that bind variables or need not compute all
//! of their arguments are nodes of the tree.

mod arithmetic;
mod array;
mod bits;
pub(crate) mod calendar;
mod convert;
pub(crate) mod date;
mod eval;
mod object;
mod parse;
mod set;
pub(crate) mod statistics;
mod string;

use std::sync::Arc;

use bson::{Bson, RawBsonRef, RawDocument};

use super::failure::Result;
use super::vars::Vars;
pub use eval::Scope;
pub(crate) use eval::{is_nullish, truth};
pub(crate) use parse::{Parser, check_name};

/// A value to be computed.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
    vars: Arc<Vars>,
}

/// The tree of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Constant(Bson),
    /// A path from the current document.
    Field(Vec<String>),
    /// A variable, and a path into it.
    Variable(String, Vec<String>),
    /// `$$ROOT`, and a path into it.
    Root(Vec<String>),
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    /// If, then, else.
    Condition(Box<[Node; 3]>),
    IfNull(Vec<Node>),
    Switch {
        branches: Vec<(Node, Node)>,
        default: Option<Box<Node>>,
    },
    Let {
        variables: Vec<(String, Node)>,
        body: Box<Node>,
    },
    Map {
        input: Box<Node>,
        name: String,
        body: Box<Node>,
    },
    Filter {
        input: Box<Node>,
        name: String,
        condition: Box<Node>,
        limit: Option<Box<Node>>,
    },
    Reduce {
        input: Box<Node>,
        initial: Box<Node>,
        body: Box<Node>,
    },
    /// A function of arguments in a row.
    Call(&'static Function, Vec<Node>),
    /// A function of named arguments, in the order of its table.
    Named(&'static NamedFunction, Vec<Option<Node>>),
}

/// An operator whose arguments stand in an array (or alone).
#[derive(Debug)]
pub(crate) struct Function {
    pub name: &'static str,
    /// The fewest arguments.
    pub min: usize,
    /// The most.
    pub max: usize,
    pub call: fn(&[Bson], &Scope<'_>) -> Result<Bson>,
}

/// An operator whose arguments have names.
#[derive(Debug)]
pub(crate) struct NamedFunction {
    pub name: &'static str,
    /// Those that must be there come first.
    pub names: &'static [&'static str],
    pub required: usize,
    pub call: fn(&[Option<Bson>], &Scope<'_>) -> Result<Bson>,
}

/// Any number of arguments.
pub(crate) const MANY: usize = usize::MAX;

/// The families of functions.
static FUNCTIONS: [&[Function]; 9] = [
    eval::FUNCTIONS,
    arithmetic::FUNCTIONS,
    array::FUNCTIONS,
    bits::FUNCTIONS,
    convert::FUNCTIONS,
    object::FUNCTIONS,
    set::FUNCTIONS,
    statistics::FUNCTIONS,
    string::FUNCTIONS,
];

static NAMED: [&[NamedFunction]; 6] =
    [array::NAMED, convert::NAMED, date::NAMED, object::NAMED, statistics::NAMED, string::NAMED];

impl Expression {
    /// Reads an expression.
    pub fn parse(value: &Bson, vars: &Vars) -> Result<Self> {
        let root = Parser::new(vars).node(value)?;
        Ok(Self { root, vars: Arc::new(vars.clone()) })
    }

    /// Reads a raw expression.
    pub fn parse_raw(value: RawBsonRef<'_>, vars: &Vars) -> Result<Self> {
        Self::parse(&super::value::owned(value)?, vars)
    }

    /// A value as it is, whatever it looks like.
    pub(crate) fn constant(value: Bson, vars: &Vars) -> Self {
        Self { root: Node::Constant(value), vars: Arc::new(vars.clone()) }
    }

    /// Its value for a document; [`Bson::Undefined`] if it has none.
    pub fn value(&self, document: &RawDocument) -> Result<Bson> {
        Scope::new(document, &self.vars).eval(&self.root)
    }

    /// Its value with some variables bound.
    pub(crate) fn value_with(
        &self,
        document: &RawDocument,
        bound: &[(&str, Bson)],
    ) -> Result<Bson> {
        let mut scope = Scope::new(document, &self.vars);
        for (name, value) in bound {
            scope.bind(name, value.clone());
        }
        scope.eval(&self.root)
    }

    /// Whether it has the same value for every document.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self.root, Node::Constant(_))
    }

    /// Whether its value counts as true.
    pub fn is_true(&self, document: &RawDocument) -> Result<bool> {
        Ok(truth(&self.value(document)?))
    }
}
