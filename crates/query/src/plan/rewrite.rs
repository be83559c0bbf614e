//! The texts that partitions run so that a client can merge what they answer.
//!
//! Sorted rows travel with their keys, groups with theirs, and aggregates as parts that can be added
//! up. Each value stands in an object under `item`, because an undefined one is then simply absent.

use super::info::aggregate_of;
use crate::compile::{column_names, is_aggregate};
use crate::error::{Diagnostic, Result};
use crate::expr::AggregateFunction;
use crate::sql::ast::{Expr, ExprKind, OrderBy, Query, SelectItem, SelectSpec};
use crate::sql::print;

/// What the client puts in place of this: `true`, or where to resume.
const RESUME_FILTER: &str = "{documentdb-formattableorderbyquery-filter}";

/// What becomes of a query when partitions run it.
pub struct Rewrite<'q> {
    query: &'q Query,
    /// The aggregate of `SELECT VALUE`, if it has one.
    pub aggregates: Vec<AggregateFunction>,
    /// The columns of a grouped SELECT list, and the aggregate that each is.
    pub aliases: Vec<(String, Option<AggregateFunction>)>,
}

impl<'q> Rewrite<'q> {
    /// Looks at what the query selects; refuses aggregates inside other expressions.
    pub fn new(query: &'q Query) -> Result<Self> {
        let mut rewrite = Self { query, aggregates: Vec::new(), aliases: Vec::new() };
        let exprs: Vec<&Expr> = match &query.select.spec {
            SelectSpec::Star => Vec::new(),
            SelectSpec::Value(expr) => vec![expr],
            SelectSpec::List(items) => items.iter().map(|item| &item.expr).collect(),
        };
        if exprs.iter().any(|expr| !is_aggregate(expr) && expr.any(&is_aggregate)) {
            let message = "Compositions of aggregates and other expressions are not allowed.";
            let message = message.to_owned();
            return Err(Diagnostic { code: "", message, span: None }.into());
        }
        match &query.select.spec {
            SelectSpec::List(items) if rewrite.is_grouped(&exprs) => {
                let names = column_names(items, query.select.span)?;
                let functions = items.iter().map(|item| aggregate_of(&item.expr));
                rewrite.aliases = names.into_iter().zip(functions).collect();
            }
            SelectSpec::Value(expr) => rewrite.aggregates.extend(aggregate_of(expr)),
            _ => {}
        }
        Ok(rewrite)
    }

    fn is_grouped(&self, exprs: &[&Expr]) -> bool {
        !self.query.group_by.is_empty() || exprs.iter().any(|expr| is_aggregate(expr))
    }

    /// The text for partitions; empty if the original will do.
    pub fn text(&self, offset_limit: Option<(u64, u64)>) -> String {
        let query = self.query;
        if !self.aliases.is_empty() || !query.group_by.is_empty() {
            return self.grouped();
        }
        if let (false, SelectSpec::Value(expr)) = (self.aggregates.is_empty(), &query.select.spec) {
            return format!("SELECT VALUE [{}]{}", partial(expr), self.source());
        }
        match (&query.order_by, offset_limit) {
            (Some(OrderBy::Keys(keys)), _) => {
                let keys: Vec<&Expr> = keys.iter().map(|key| &key.expr).collect();
                self.sorted(&keys, offset_limit)
            }
            (None, Some((offset, limit))) => {
                let mut text = print::query(&Query { offset_limit: None, ..query.clone() });
                text.push_str(&first_rows(offset, limit));
                text
            }
            _ => String::new(),
        }
    }

    /// ` FROM … WHERE …` as they were.
    fn source(&self) -> String {
        let from = self.query.from.as_ref().map(|from| format!(" FROM {}", print::from(from)));
        let filter = self.query.filter.as_ref().map(|f| format!(" WHERE {}", print::expr(f)));
        from.unwrap_or_default() + &filter.unwrap_or_default()
    }

    fn grouped(&self) -> String {
        let query = self.query;
        let payload = match &query.select.spec {
            SelectSpec::Star => String::new(),
            SelectSpec::Value(expr) if is_aggregate(expr) => format!("[{}]", partial(expr)),
            SelectSpec::Value(expr) => print::expr(expr),
            SelectSpec::List(items) => {
                let members = items.iter().zip(&self.aliases).map(|(item, (name, function))| {
                    let value = match function {
                        Some(_) => partial(&item.expr),
                        None => print::expr(&item.expr),
                    };
                    format!("{}: {value}", print::string(name))
                });
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
        };
        let source = self.source();
        if query.group_by.is_empty() {
            return format!("SELECT {payload} AS payload{source}");
        }
        let keys: Vec<&Expr> = query.group_by.iter().collect();
        let by = query.group_by.iter().map(print::expr).collect::<Vec<_>>().join(", ");
        let items = items(&keys);
        format!("SELECT {items} AS groupByItems, {payload} AS payload{source} GROUP BY {by}")
    }

    fn sorted(&self, keys: &[&Expr], offset_limit: Option<(u64, u64)>) -> String {
        let query = self.query;
        let SortedParts { root, from, filter, payload } = self.sorted_parts();
        let items = items(keys);
        let by = print::order_by(query);
        // Rows that carry their rid all differ: only the client can tell how many it takes for enough that are distinct.
        let (limits, page) = match (query.select.distinct, &query.select.top) {
            (true, _) => ("DISTINCT ".to_owned(), None),
            (false, Some(top)) => (format!("TOP {} ", print::expr(top)), offset_limit),
            (false, None) => (String::new(), offset_limit),
        };
        let page = page.map_or(String::new(), |(offset, limit)| first_rows(offset, limit));
        format!(
            "SELECT {limits}{root}._rid, {items} AS orderByItems, {payload} AS payload \
             FROM {from} WHERE {filter}{by}{page}"
        )
    }

    /// What every text whose rows are merged in order is made of.
    pub fn sorted_parts(&self) -> SortedParts {
        let query = self.query;
        let from = query.from.as_ref().map(print::from).unwrap_or_default();
        let root = query.from.as_ref().map(print::root).unwrap_or_default();
        let mut filter = format!("({RESUME_FILTER})");
        if let Some(own) = &query.filter {
            filter = format!("({} AND {filter})", print::expr(own));
        }
        let payload = match &query.select.spec {
            SelectSpec::Star => root.clone(),
            SelectSpec::Value(expr) => {
                // A row that is undefined is no row.
                filter = format!("({filter} AND IS_DEFINED({}))", print::expr(expr));
                print::expr(expr)
            }
            SelectSpec::List(items) => {
                let names = column_names(items, query.select.span).unwrap_or_default();
                let member = |(name, item): (&String, &SelectItem)| {
                    format!("{}: {}", print::string(name), print::expr(&item.expr))
                };
                let members: Vec<String> = names.iter().zip(items).map(member).collect();
                format!("{{{}}}", members.join(", "))
            }
        };
        SortedParts { root, from, filter, payload }
    }
}

/// The parts of a text whose rows are merged in order.
pub struct SortedParts {
    /// The name of the item.
    pub root: String,
    /// FROM.
    pub from: String,
    /// WHERE, with the place for a resume filter.
    pub filter: String,
    /// What the client is given in the end.
    pub payload: String,
}

/// `[{"item": key}, …]`.
fn items(keys: &[&Expr]) -> String {
    let items: Vec<String> =
        keys.iter().map(|key| format!("{{\"item\": {}}}", print::expr(key))).collect();
    format!("[{}]", items.join(", "))
}

/// What a partition answers in place of an aggregate: something that can be merged.
fn partial(expr: &Expr) -> String {
    let ExprKind::Call { args, .. } = &expr.kind else { return print::expr(expr) };
    let argument = args.first().map(print::expr).unwrap_or_default();
    let call = print::expr(expr);
    match aggregate_of(expr) {
        Some(AggregateFunction::Average) => {
            format!("{{\"item\": {{\"sum\": SUM({argument}), \"count\": COUNT({argument})}}}}")
        }
        Some(AggregateFunction::Min) => extreme(&call, "min", &argument),
        Some(AggregateFunction::Max) => extreme(&call, "max", &argument),
        _ => format!("{{\"item\": {call}}}"),
    }
}

/// The extreme, and how many values it was taken from: none at all is not the same as undefined.
fn extreme(call: &str, name: &str, argument: &str) -> String {
    let count = format!("COUNT({argument})");
    format!("{{\"item\": {call}, \"item2\": {{\"{name}\": {call}, \"count\": {count}}}}}")
}

/// Every partition gives the rows that could be among the wanted ones.
fn first_rows(offset: u64, limit: u64) -> String {
    format!(" OFFSET 0 LIMIT {}", offset + limit)
}
