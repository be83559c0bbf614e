//! From the tree of the text to a [`Block`] that can run: names become numbers, parameters and
//! literals constants, functions pointers; and everything that can be refused is refused here.

mod clauses;
mod expressions;
mod rank;

use std::sync::Arc;

pub(crate) use clauses::{column_names, is_aggregate};
use serde_json::Value as Json;

use crate::error::{Diagnostic, Error, Result, Span};
use crate::eval::Env;
use crate::expr::{Aggregate, Block, Expr, Score};
use crate::functions::{Depends, Host};
use crate::item::{Fields, Item};
use crate::sql::{self, ast, print};

/// A query that has passed all checks and can be run, any number of times.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The tree of its text.
    pub(crate) tree: ast::Query,
    /// What runs.
    pub(crate) block: Block,
    /// The fields of the item that it names.
    pub(crate) fields: Fields,
    /// How many places for rows of sources it needs.
    pub(crate) slots: usize,
    /// The number of TOP.
    pub(crate) top: Option<u64>,
    /// The number of LIMIT.
    pub(crate) take: Option<u64>,
    /// For `FROM (SELECT …)`: the query whose rows are this one's items.
    pub(crate) inner: Option<Arc<Compiled>>,
}

/// What a query may refer to besides the item and its parameters.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The container's computed properties: name, and the text `SELECT VALUE … FROM c`.
    pub computed: Vec<(String, String)>,
    /// The query's `now`, if it is known already: what depends on it is then computed here, once,
    /// and can be looked up in an index.
    pub now_millis: Option<i64>,
    /// What the container's vector policy says, by path (`/vector`): options of VECTORDISTANCE.
    pub vectors: Vec<(String, Json)>,
    /// Whether shapes lie on a plane, not on the earth.
    pub flat: bool,
}

/// How a page of a query goes on after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumes {
    /// At the item of the last row.
    ByItem,
    /// With all items, by dropping the rows up to the place of the last one.
    ByPlace,
}

impl Compiled {
    /// Reads a query, binds its parameters (named with their `@`) and checks it.
    pub fn new(text: &str, parameters: &[(String, Json)], options: &Options) -> Result<Self> {
        let tree = sql::parse(text)?;
        Self::from_tree(tree, parameters, options).map_err(|error| located(error, text))
    }

    /// Reads the condition of a patch, `from c where …`, as a query that gives `true` for each item
    /// that meets it.
    pub fn condition(text: &str) -> Result<Self> {
        let (alias, filter) = sql::parse_condition(text)?;
        let tree = ast::Query::matching(alias, filter);
        Self::from_tree(tree, &[], &Options::default()).map_err(|error| located(error, text))
    }

    fn from_tree(
        tree: ast::Query,
        parameters: &[(String, Json)],
        options: &Options,
    ) -> Result<Self> {
        let inner = match tree.from.as_ref().map(|from| &from.first.collection) {
            Some(ast::Collection::Subquery(query)) => {
                Some(Arc::new(Self::from_tree((**query).clone(), parameters, options)?))
            }
            _ => None,
        };
        let mut compiler = Compiler {
            parameters,
            computed: &options.computed,
            vectors: &options.vectors,
            flat: options.flat,
            now_millis: options.now_millis,
            fields: Fields::default(),
            slots: 0,
            scopes: Vec::new(),
            group: None,
        };
        let block = compiler.block(&tree)?;
        let (top, _, take) = compiler.counts(&tree)?;
        let Compiler { fields, slots, .. } = compiler;
        Ok(Self { tree, block, fields, slots, top, take, inner })
    }

    /// Whether the query gives rows as it meets items; otherwise only once it has seen all.
    pub fn is_streaming(&self) -> bool {
        self.block.is_streaming() && self.inner.as_ref().is_none_or(|inner| inner.is_streaming())
    }

    /// How later pages find what earlier ones have left.
    pub fn resumes(&self) -> Resumes {
        if self.comes_by_item() { Resumes::ByItem } else { Resumes::ByPlace }
    }

    /// Whether rows come as soon as their items do, and as these do.
    pub(crate) fn comes_by_item(&self) -> bool {
        self.passes_on() && self.inner.as_ref().is_none_or(|inner| inner.comes_by_item())
    }

    /// Whether rows come in the order of what they are made of.
    pub(crate) fn passes_on(&self) -> bool {
        self.block.is_streaming() && !self.block.distinct
    }

    /// Whether each row depends on its item alone.
    pub(crate) fn is_item_by_item(&self) -> bool {
        self.passes_on()
            && (self.block.offset, self.block.limit) == (0, None)
            && self.inner.as_ref().is_none_or(|inner| inner.is_item_by_item())
    }

    /// Whether rows are ranked by how common search terms are, so that the first page must see all items, also those that WHERE drops.
    pub fn measures_all(&self) -> bool {
        let scores = self.block.rank.iter().flat_map(|rank| &rank.scores);
        scores.into_iter().any(|score| matches!(score, Score::FullText { .. }))
    }

    /// The text without its filter: all that a row's place among the others depends on.
    pub fn unfiltered(&self) -> String {
        print::query(&ast::Query { filter: None, ..self.tree.clone() })
    }

    /// The tree of the text.
    pub fn tree(&self) -> &ast::Query {
        &self.tree
    }
}

impl ast::Query {
    /// `SELECT VALUE true FROM alias WHERE filter`.
    fn matching(alias: String, filter: ast::Expr) -> Self {
        let span = Span::default();
        let value = ast::Expr { kind: ast::ExprKind::Bool(true), span, depth: 1 };
        let collection = ast::Collection::Path { root: alias, steps: Vec::new() };
        let first = ast::Source { iterate: false, alias: None, collection, span };
        Self {
            select: ast::Select {
                distinct: false,
                top: None,
                spec: ast::SelectSpec::Value(value),
                span,
            },
            from: Some(ast::From { first, joins: Vec::new() }),
            filter: Some(filter),
            group_by: Vec::new(),
            order_by: None,
            offset_limit: None,
        }
    }
}

fn located(error: Error, text: &str) -> Error {
    match error {
        Error::Text(diagnostics) => Error::Text(diagnostics.locate(text)),
        other => other,
    }
}

/// What a name in the text stands for.
#[derive(Clone, Copy, Debug)]
enum Binding {
    /// The item itself.
    Item,
    /// The current row of a source.
    Slot(usize),
}

/// The names that one FROM clause brings.
type Scope = Vec<(String, Binding)>;

/// While the SELECT list of a grouped query is compiled: what may be used in place of raw rows.
struct Grouping {
    keys: Vec<ast::Expr>,
    aggregates: Vec<Aggregate>,
    /// Names of scopes below this number are those of single rows, which the group no longer has.
    scopes_hidden: usize,
}

struct Compiler<'q> {
    parameters: &'q [(String, Json)],
    computed: &'q [(String, String)],
    vectors: &'q [(String, Json)],
    flat: bool,
    now_millis: Option<i64>,
    fields: Fields,
    slots: usize,
    scopes: Vec<Scope>,
    group: Option<Grouping>,
}

impl Compiler<'_> {
    fn new_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    /// What a name stands for, the innermost meaning first.
    fn resolve(&self, name: &str, span: Span) -> Result<Binding> {
        let mut names = self.scopes.iter().rev().flat_map(|scope| scope.iter().rev());
        let found = names.find(|(known, _)| known == name).map(|(_, binding)| *binding);
        found.ok_or_else(|| unresolved(name, span))
    }

    /// The constant that an expression of constants comes to; other expressions as they are.
    fn fold(&self, expr: Expr) -> Expr {
        let foldable = match &expr {
            Expr::Unary(_, a) | Expr::Member(a, _) | Expr::InSet(a, ..) => a.is_constant(),
            Expr::Binary(_, a, b) | Expr::Index(a, b) | Expr::Coalesce(a, b) => {
                a.is_constant() && b.is_constant()
            }
            Expr::Conditional(a, b, c) | Expr::Between(a, b, c) => {
                a.is_constant() && b.is_constant() && c.is_constant()
            }
            Expr::And(all) | Expr::Or(all) | Expr::Array(all) => all.iter().all(Expr::is_constant),
            Expr::Object(members) => members.iter().all(|(_, value)| value.is_constant()),
            Expr::In(a, list) => a.is_constant() && list.iter().all(Expr::is_constant),
            Expr::Like(a, _) => a.is_constant(),
            Expr::LikeComputed(a, b, c) => {
                a.is_constant() && b.is_constant() && c.as_ref().is_none_or(|c| c.is_constant())
            }
            Expr::Call(function, args) => {
                let known = match function.depends {
                    Depends::Arguments => true,
                    Depends::Now => self.now_millis.is_some(),
                    Depends::Chance => false,
                };
                known && args.iter().all(Expr::is_constant)
            }
            _ => false,
        };
        if !foldable {
            return expr;
        }
        const STEPS_MAX: u64 = 1_000_000;
        let fields = Fields::default();
        let host = Host::new(self.now_millis.unwrap_or_default(), 0, STEPS_MAX);
        let value =
            Env::new(Item::new(b"{}", &fields), 0, &host).eval(&expr).map(|value| value.to_json());
        value.map_or(expr, Expr::Constant)
    }
}

fn unresolved(name: &str, span: Span) -> Error {
    let message = format!("Identifier '{name}' could not be resolved.");
    Diagnostic::at(span, "SC2001", message).into()
}
