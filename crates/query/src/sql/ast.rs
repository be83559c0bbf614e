//! The tree of a query as it was written, before anything is resolved.
//!
//! Every node that an error may point at carries its [`Span`]. Equality of expressions ignores
//! spans: that is how GROUP BY finds its keys again in the SELECT list.

use serde_json::Number;

use crate::error::Span;

/// A whole SELECT, at the top or in parentheses.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// What each row becomes.
    pub select: Select,
    /// Where rows come from; without it there is exactly one.
    pub from: Option<From>,
    /// Which rows stay.
    pub filter: Option<Expr>,
    /// GROUP BY.
    pub group_by: Vec<Expr>,
    /// ORDER BY.
    pub order_by: Option<OrderBy>,
    /// OFFSET and LIMIT, which come together.
    pub offset_limit: Option<(Expr, Expr)>,
}

/// The SELECT clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// DISTINCT.
    pub distinct: bool,
    /// TOP n.
    pub top: Option<Expr>,
    /// The shape of a row.
    pub spec: SelectSpec,
    /// The place of what follows SELECT.
    pub span: Span,
}

/// The shape of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum SelectSpec {
    /// `*`.
    Star,
    /// `VALUE expr`.
    Value(Expr),
    /// `expr [AS alias], …`.
    List(Vec<SelectItem>),
}

/// One column of a SELECT list.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectItem {
    /// Its value.
    pub expr: Expr,
    /// Its name, if one was given.
    pub alias: Option<String>,
}

/// The FROM clause.
#[derive(Clone, Debug, PartialEq)]
pub struct From {
    /// What stands first.
    pub first: Source,
    /// Each JOIN in turn.
    pub joins: Vec<Source>,
}

/// One source of rows in FROM or JOIN.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// `x IN …`: one row for each element, rather than one row for the whole.
    pub iterate: bool,
    /// The name its rows go by.
    pub alias: Option<String>,
    /// What it reads.
    pub collection: Collection,
    /// Its place.
    pub span: Span,
}

/// What a source reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Collection {
    /// A container or an alias, and a path into it.
    Path {
        /// The first name.
        root: String,
        /// The steps after it.
        steps: Vec<Step>,
    },
    /// A subquery.
    Subquery(Box<Query>),
}

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `.name` or `["name"]`.
    Name(String),
    /// `[n]`.
    Index(u64),
}

/// The ORDER BY clause.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderBy {
    /// By keys, the first first.
    Keys(Vec<OrderKey>),
    /// RANK: by the score of a full-text, vector or fused function.
    Rank(Expr),
}

/// One key of ORDER BY.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey {
    /// What to sort by.
    pub expr: Expr,
    /// DESC.
    pub descending: bool,
}

/// An expression and its place.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
    /// How deep the tree below it is; bounded by the parser, so that walks may recurse.
    pub depth: u16,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// What an expression is.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `undefined`.
    Undefined,
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// `@name`.
    Parameter(String),
    /// A name from FROM.
    Name(String),
    /// `base.name`, `base["name"]`.
    Member(Box<Expr>, String),
    /// `base[index]`.
    Index(Box<Expr>, Box<Expr>),
    /// `[a, …]`.
    Array(Vec<Expr>),
    /// `{"a": …}`.
    Object(Vec<(String, Expr)>),
    /// An operator before its operand.
    Unary(UnaryOp, Box<Expr>),
    /// An operator between two operands.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `a AND b AND …`.
    And(Vec<Expr>),
    /// `a OR b OR …`.
    Or(Vec<Expr>),
    /// `a ?? b`.
    Coalesce(Box<Expr>, Box<Expr>),
    /// `a ? b : c`.
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `a [NOT] IN (b, …)`.
    In {
        /// What is looked for.
        needle: Box<Expr>,
        /// What it may be.
        list: Vec<Expr>,
        /// NOT.
        negated: bool,
    },
    /// `a [NOT] BETWEEN b AND c`.
    Between {
        /// What is compared.
        value: Box<Expr>,
        /// At least this.
        low: Box<Expr>,
        /// At most this.
        high: Box<Expr>,
        /// NOT.
        negated: bool,
    },
    /// `a [NOT] LIKE b [ESCAPE c]`.
    Like {
        /// What is matched.
        value: Box<Expr>,
        /// `%`, `_`, `[a-f]`, `[^a]`.
        pattern: Box<Expr>,
        /// The character that makes the next one plain.
        escape: Option<Box<Expr>>,
        /// NOT.
        negated: bool,
    },
    /// `f(a, …)`.
    Call {
        /// As written.
        name: String,
        /// `udf.f(…)`.
        udf: bool,
        /// What is passed.
        args: Vec<Expr>,
    },
    /// A query in an expression.
    Subquery(SubqueryKind, Box<Query>),
}

/// What a query in an expression stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubqueryKind {
    /// `(SELECT …)`: its only row, or undefined.
    Scalar,
    /// `EXISTS(…)`: whether it has rows.
    Exists,
    /// `ARRAY(…)`: its rows.
    Array,
    /// `ALL(…)`: whether every row is true.
    All,
    /// `FIRST(…)`: its first row.
    First,
    /// `LAST(…)`: its last row.
    Last,
}

/// An operator before its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    /// `NOT`.
    Not,
    /// `-`.
    Minus,
    /// `+`.
    Plus,
    /// `~`.
    BitNot,
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `%`.
    Modulo,
    /// `&`.
    BitAnd,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `<<`.
    ShiftLeft,
    /// `>>`.
    ShiftRight,
    /// `>>>`.
    ShiftRightZero,
    /// `=`.
    Equal,
    /// `!=`, `<>`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
    /// `||`.
    Concat,
}

impl Expr {
    /// The expressions right below, those of subqueries left out.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Undefined
            | ExprKind::Null
            | ExprKind::Bool(_)
            | ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::Parameter(_)
            | ExprKind::Name(_)
            | ExprKind::Subquery(..) => Vec::new(),
            ExprKind::Member(base, _) | ExprKind::Unary(_, base) => vec![base],
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) | ExprKind::Coalesce(a, b) => {
                vec![a, b]
            }
            ExprKind::Conditional(a, b, c) => vec![a, b, c],
            ExprKind::Array(items) | ExprKind::And(items) | ExprKind::Or(items) => {
                items.iter().collect()
            }
            ExprKind::Object(members) => members.iter().map(|(_, value)| value).collect(),
            ExprKind::In { needle, list, .. } => std::iter::once(&**needle).chain(list).collect(),
            ExprKind::Between { value, low, high, .. } => vec![value, low, high],
            ExprKind::Like { value, pattern, escape, .. } => {
                [value, pattern].into_iter().chain(escape).map(|part| &**part).collect()
            }
            ExprKind::Call { args, .. } => args.iter().collect(),
        }
    }

    /// Whether this expression or one below it, short of subqueries, is as asked.
    pub fn any(&self, test: &dyn Fn(&Expr) -> bool) -> bool {
        test(self) || self.children().into_iter().any(|child| child.any(test))
    }

    /// For a path such as `c.a["b"][0]`, the name it starts from.
    pub fn root(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Name(name) => Some(name),
            ExprKind::Member(base, _) | ExprKind::Index(base, _) => base.root(),
            _ => None,
        }
    }
}
