//! A query ready to run: names resolved, parameters bound, constants folded.
//!
//! [`compile`](crate::compile) makes these from the tree of the text; [`eval`](crate::eval) and
//! [`gather`](crate::gather) run them.

use std::collections::HashSet;

use serde_json::Value as Json;

use crate::functions::Function;
use crate::functions::like::Pattern;
use crate::item::Fields;
use crate::sql::ast::{BinaryOp, Step, SubqueryKind, UnaryOp};

/// An expression over the item at hand.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A value that does not depend on the item; `None` is undefined.
    Constant(Option<Json>),
    /// The whole item.
    Item,
    /// A field of the item, by its number in [`Item`](crate::item::Item), and steps into it.
    Field(usize, Vec<Step>),
    /// The current row of a source in FROM, by its number.
    Slot(usize),
    /// A member of an object.
    Member(Box<Expr>, String),
    /// An element of an array, or a member by a computed name.
    Index(Box<Expr>, Box<Expr>),
    /// An array; undefined elements are left out.
    Array(Vec<Expr>),
    /// An object; undefined members are left out.
    Object(Vec<(String, Expr)>),
    /// An operator before its operand.
    Unary(UnaryOp, Box<Expr>),
    /// An operator between two operands.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// All of them true.
    And(Vec<Expr>),
    /// One of them true.
    Or(Vec<Expr>),
    /// The first, unless it is undefined.
    Coalesce(Box<Expr>, Box<Expr>),
    /// One or the other.
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Whether a value is at least one other and at most a third.
    Between(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Whether a value is among others.
    In(Box<Expr>, Vec<Expr>),
    /// Whether a value is among many constants, by their keys.
    InSet(Box<Expr>, HashSet<Vec<u8>>, Vec<Json>),
    /// Whether text matches a constant pattern.
    Like(Box<Expr>, Pattern),
    /// Whether text matches a computed pattern, with or without an escape character.
    LikeComputed(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    /// A built-in function.
    Call(&'static Function, Vec<Expr>),
    /// A user-defined function.
    Udf(String, Vec<Expr>),
    /// A key of the group at hand.
    GroupKey(usize),
    /// An aggregate of the group at hand.
    Aggregate(usize),
    /// A query within.
    Subquery(SubqueryKind, Box<Block>),
}

impl Expr {
    /// The constant `undefined`.
    pub const UNDEFINED: Expr = Expr::Constant(None);

    /// The path into the item that it stands for, such as `/a/b/0`; `None` if it is none.
    pub fn path(&self, fields: &Fields) -> Option<String> {
        let Expr::Field(field, steps) = self else { return None };
        let mut path = format!("/{}", fields.name(*field)?);
        for step in steps {
            match step {
                Step::Name(name) => path.extend(["/", name]),
                Step::Index(index) => path.push_str(&format!("/{index}")),
            }
        }
        Some(path)
    }

    /// Whether it is a constant.
    pub fn is_constant(&self) -> bool {
        matches!(self, Expr::Constant(_))
    }
}

/// One SELECT: what flows in, what stays, what each row becomes.
#[derive(Clone, Debug)]
pub struct Block {
    /// FROM and its JOINs, nested left to right; without any there is one row.
    pub sources: Vec<Source>,
    /// WHERE.
    pub filter: Option<Expr>,
    /// GROUP BY and aggregates.
    pub group: Option<Group>,
    /// What a row becomes; an undefined result is no row.
    pub projection: Expr,
    /// DISTINCT.
    pub distinct: bool,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// ORDER BY RANK.
    pub rank: Option<Rank>,
    /// Rows to leave out at the start.
    pub offset: u64,
    /// Rows to give at most: TOP, LIMIT, or the smaller of both.
    pub limit: Option<u64>,
}

impl Block {
    /// Whether each row can be given as soon as it is met.
    pub fn is_streaming(&self) -> bool {
        self.group.is_none() && self.order.is_empty() && self.rank.is_none()
    }
}

/// One source of rows.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where its current row is kept; the item itself needs no place.
    pub slot: Option<usize>,
    /// What it gives.
    pub rows: SourceRows,
}

/// What a source gives.
#[derive(Clone, Debug)]
pub enum SourceRows {
    /// The item, once.
    Item,
    /// One value, unless it is undefined.
    Value(Expr),
    /// Each element of an array.
    Elements(Expr),
    /// Each row of a subquery.
    Rows(Box<Block>),
    /// Each element of each row of a subquery.
    RowElements(Box<Block>),
}

/// GROUP BY: the keys, and what is gathered for each group.
#[derive(Clone, Debug)]
pub struct Group {
    /// The keys; without any, all rows are one group, even if there are none.
    pub keys: Vec<Expr>,
    /// The aggregates, by number.
    pub aggregates: Vec<Aggregate>,
}

/// One aggregate and what it is taken over.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Which.
    pub function: AggregateFunction,
    /// Of what.
    pub argument: Expr,
}

/// The aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFunction {
    /// How many are defined.
    Count,
    /// How many are true.
    CountIf,
    /// The sum of numbers; undefined if anything else was among them.
    Sum,
    /// The mean of numbers; undefined if anything else was among them, or nothing.
    Average,
    /// The smallest primitive.
    Min,
    /// The largest primitive.
    Max,
    /// All of them, as an array.
    MakeList,
    /// Those that differ, as an array.
    MakeSet,
}

impl AggregateFunction {
    /// What each is called.
    pub const NAMES: [(&str, Self); 8] = [
        ("COUNT", AggregateFunction::Count),
        ("COUNTIF", AggregateFunction::CountIf),
        ("SUM", AggregateFunction::Sum),
        ("AVG", AggregateFunction::Average),
        ("MIN", AggregateFunction::Min),
        ("MAX", AggregateFunction::Max),
        ("MAKELIST", AggregateFunction::MakeList),
        ("MAKESET", AggregateFunction::MakeSet),
    ];

    /// The aggregate of this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, function)| *function)
    }
}

/// One key of ORDER BY.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// What to sort by.
    pub expr: Expr,
    /// Largest first.
    pub descending: bool,
}

/// ORDER BY RANK: one or several scores, fused by their ranks.
#[derive(Clone, Debug)]
pub struct Rank {
    /// Each score.
    pub scores: Vec<Score>,
    /// The weight of each in the fusion.
    pub weights: Vec<f64>,
}

/// One score of ORDER BY RANK.
#[derive(Clone, Debug)]
pub enum Score {
    /// How well text matches search terms, given how common they are.
    FullText {
        /// The text.
        text: Expr,
        /// The terms, each one or several words.
        terms: Vec<Vec<String>>,
    },
    /// A number; a distance where less is better, otherwise a similarity.
    Vector {
        /// The call that computes it.
        call: Expr,
        /// Whether a smaller number is a better one.
        smaller_is_better: bool,
    },
}
