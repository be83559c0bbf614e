//! The clauses of one SELECT: FROM, the shape of rows, GROUP BY, ORDER BY, and the counts.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::rank::nearest_first;
use super::{Binding, Compiler, Grouping, Scope};
use crate::error::{Diagnostic, Result, Span};
use crate::expr::{AggregateFunction, Block, Expr, Group, Rank, SortKey, Source, SourceRows};
use crate::sql::ast::{self, ExprKind, SelectSpec};

impl Compiler<'_> {
    /// Compiles a query within the names already in scope.
    pub(super) fn block(&mut self, query: &ast::Query) -> Result<Block> {
        self.scopes.push(Scope::new());
        let block = self.block_in_scope(query);
        self.scopes.pop();
        block
    }

    fn block_in_scope(&mut self, query: &ast::Query) -> Result<Block> {
        let sources = self.sources(query)?;
        let filter = match &query.filter {
            Some(filter) => Some(self.expr(filter)?),
            None => None,
        };
        // WHERE true keeps everything, so it is not asked of every row.
        let filter = filter.filter(|expr| !matches!(expr, Expr::Constant(Some(Json::Bool(true)))));
        let keys = query.group_by.iter().map(|key| self.expr(key)).collect::<Result<Vec<_>>>()?;
        let grouped = !keys.is_empty() || has_aggregates(query);
        // An aggregate of all rows is one row: the order that is asked for is checked, and changes nothing.
        let one_row = grouped && keys.is_empty() && !has_rank(query);
        if one_row {
            self.order(query)?;
        }
        let outer = grouped.then(|| self.begin_group(query));
        let projection = self.projection(query, &sources);
        let order = if one_row { Ok((Vec::new(), None)) } else { self.order(query) };
        let group = outer.map(|outer| {
            let grouping = std::mem::replace(&mut self.group, outer);
            Group { keys, aggregates: grouping.map(|g| g.aggregates).unwrap_or_default() }
        });
        let (order, rank) = order?;
        let (top, offset, limit) = self.counts(query)?;
        let limit = top.into_iter().chain(limit).min();
        let distinct = query.select.distinct;
        let projection = projection?;
        Ok(Block { sources, filter, group, projection, distinct, order, rank, offset, limit })
    }

    /// From here on, raw rows are out of reach; gives back what was so before.
    fn begin_group(&mut self, query: &ast::Query) -> Option<Grouping> {
        let scopes_hidden = self.scopes.len();
        let keys = query.group_by.clone();
        self.group.replace(Grouping { keys, aggregates: Vec::new(), scopes_hidden })
    }

    fn sources(&mut self, query: &ast::Query) -> Result<Vec<Source>> {
        let Some(from) = &query.from else { return Ok(Vec::new()) };
        // The first name at the very top is the container, whatever it is called.
        let mut sources = vec![self.source(&from.first, self.scopes.len() == 1)?];
        for join in &from.joins {
            sources.push(self.source(join, false)?);
        }
        Ok(sources)
    }

    fn source(&mut self, source: &ast::Source, is_container: bool) -> Result<Source> {
        let (rows, name) = match &source.collection {
            ast::Collection::Path { root, steps } => {
                let base =
                    if is_container { Binding::Item } else { self.resolve_row(root, source.span)? };
                if steps.is_empty() && !source.iterate && matches!(base, Binding::Item) {
                    let name = source.alias.as_ref().unwrap_or(root);
                    self.bind(name, Binding::Item, source.span)?;
                    return Ok(Source { slot: None, rows: SourceRows::Item });
                }
                let value =
                    steps.iter().fold(self.bound(base), |value, step| self.step(value, step));
                let rows = if source.iterate {
                    SourceRows::Elements(value)
                } else {
                    SourceRows::Value(value)
                };
                (rows, last_name(root, steps))
            }
            // Its rows are this query's items.
            ast::Collection::Subquery(_) if is_container => {
                if !source.iterate {
                    if let Some(name) = &source.alias {
                        self.bind(name, Binding::Item, source.span)?;
                    }
                    return Ok(Source { slot: None, rows: SourceRows::Item });
                }
                (SourceRows::Elements(Expr::Item), None)
            }
            ast::Collection::Subquery(query) => {
                let block = Box::new(self.block(query)?);
                let rows = if source.iterate {
                    SourceRows::RowElements(block)
                } else {
                    SourceRows::Rows(block)
                };
                (rows, None)
            }
        };
        let slot = self.new_slot();
        if let Some(name) = source.alias.as_ref().or(name.as_ref()) {
            self.bind(name, Binding::Slot(slot), source.span)?;
        }
        Ok(Source { slot: Some(slot), rows })
    }

    /// Makes a name known in the innermost scope.
    fn bind(&mut self, name: &str, binding: Binding, span: Span) -> Result<()> {
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        if scope.iter().any(|(known, _)| known == name) {
            let message = format!("The input alias '{name}' is specified more than once.");
            return Err(Diagnostic::at(span, "SC2003", message).into());
        }
        scope.push((name.to_owned(), binding));
        Ok(())
    }

    fn projection(&mut self, query: &ast::Query, sources: &[Source]) -> Result<Expr> {
        let select = &query.select;
        match &select.spec {
            SelectSpec::Star => star(query, sources),
            SelectSpec::Value(expr) => self.expr(expr),
            SelectSpec::List(items) => {
                let names = column_names(items, select.span)?;
                let values = items.iter().map(|item| self.expr(&item.expr));
                let values = values.collect::<Result<Vec<_>>>()?;
                Ok(self.fold(Expr::Object(names.into_iter().zip(values).collect())))
            }
        }
    }

    fn order(&mut self, query: &ast::Query) -> Result<(Vec<SortKey>, Option<Rank>)> {
        match &query.order_by {
            None => Ok((Vec::new(), None)),
            Some(ast::OrderBy::Rank(expr)) => Ok((Vec::new(), Some(self.rank(expr)?))),
            Some(ast::OrderBy::Keys(keys)) => {
                let is_top = self.scopes.len() == 1;
                let keys = keys.iter().map(|key| {
                    if !is_sortable(&key.expr, is_top) {
                        return Err(unsortable(key.expr.span));
                    }
                    let expr = self.expr(&key.expr)?;
                    // The nearest vectors come first, whichever way their metric counts.
                    let nearest = nearest_first(&expr);
                    let descending = nearest.unwrap_or(key.descending);
                    let expr = match nearest {
                        // What has no vector is not near.
                        Some(false) => {
                            let far = Expr::Constant(Some(Json::Object(Default::default())));
                            Expr::Coalesce(Box::new(expr), Box::new(far))
                        }
                        _ => expr,
                    };
                    Ok(SortKey { expr, descending })
                });
                Ok((keys.collect::<Result<_>>()?, None))
            }
        }
    }

    /// The numbers of TOP, OFFSET and LIMIT.
    pub(super) fn counts(&mut self, query: &ast::Query) -> Result<(Option<u64>, u64, Option<u64>)> {
        let top = query.select.top.as_ref().map(|top| self.count(top, "TOP", "SC2060"));
        let top = top.transpose()?;
        match &query.offset_limit {
            None => Ok((top, 0, None)),
            Some((offset, limit)) => {
                let offset = self.count(offset, "OFFSET", "SC2062")?;
                Ok((top, offset, Some(self.count(limit, "LIMIT", "SC2061")?)))
            }
        }
    }

    fn count(&mut self, expr: &ast::Expr, clause: &str, code: &'static str) -> Result<u64> {
        let value = self.expr(expr)?;
        let number = match &value {
            Expr::Constant(Some(Json::Number(number))) => number.as_f64(),
            _ => None,
        };
        let refuse = |message: String| Err(Diagnostic::at(expr.span, code, message).into());
        match number {
            Some(n) if n < 0.0 || n.fract() != 0.0 => {
                refuse(format!("The {clause} count value must be a non-negative integer."))
            }
            Some(n) if n > f64::from(i32::MAX) => {
                refuse(format!("The {clause} count value exceeds the maximum allowed value."))
            }
            Some(n) => Ok(n as u64),
            None => refuse(format!("The {clause} count value must be a number.")),
        }
    }
}

fn has_rank(query: &ast::Query) -> bool {
    matches!(query.order_by, Some(ast::OrderBy::Rank(_)))
}

/// Whether the query computes over groups of rows even without GROUP BY.
fn has_aggregates(query: &ast::Query) -> bool {
    match &query.select.spec {
        SelectSpec::Star => false,
        SelectSpec::Value(expr) => expr.any(&is_aggregate),
        SelectSpec::List(items) => items.iter().any(|item| item.expr.any(&is_aggregate)),
    }
}

/// Whether an expression is the call of an aggregate.
pub(crate) fn is_aggregate(expr: &ast::Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call { name, udf: false, .. }
        if AggregateFunction::named(name).is_some())
}

/// `SELECT *`: the only source.
fn star(query: &ast::Query, sources: &[Source]) -> Result<Expr> {
    let refuse = |code, message: &str| Err(Diagnostic::at(query.select.span, code, message).into());
    match sources {
        _ if !query.group_by.is_empty() => {
            refuse("SC2041", "'SELECT *' is not allowed with GROUP BY.")
        }
        [] => refuse("SC2039", "'SELECT *' is not valid if FROM clause is omitted."),
        [source] => Ok(source.slot.map_or(Expr::Item, Expr::Slot)),
        _ => refuse("SC2040", "'SELECT *' is only valid with a single input set."),
    }
}

/// The names of the columns: the alias, the last name of a path, or `$1`, `$2`, ….
pub(crate) fn column_names(items: &[ast::SelectItem], span: Span) -> Result<Vec<String>> {
    let mut unnamed = 0;
    let mut seen = HashSet::with_capacity(items.len());
    let mut names = Vec::with_capacity(items.len());
    for item in items {
        let own = item.alias.clone().or_else(|| match &item.expr.kind {
            ExprKind::Name(name) | ExprKind::Member(_, name) => Some(name.clone()),
            _ => None,
        });
        let name = own.unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}")
        });
        if !seen.insert(name.clone()) {
            let message = format!("The select list has more than one property named '{name}'.");
            return Err(Diagnostic::at(span, "SC2011", message).into());
        }
        names.push(name);
    }
    Ok(names)
}

/// The name that a path without alias goes by.
fn last_name(root: &str, steps: &[ast::Step]) -> Option<String> {
    match steps.last() {
        None => Some(root.to_owned()),
        Some(ast::Step::Name(name)) => Some(name.clone()),
        Some(ast::Step::Index(_)) => None,
    }
}

/// ORDER BY takes paths, and at the top a few functions whose order an index knows.
fn is_sortable(expr: &ast::Expr, is_top: bool) -> bool {
    match &expr.kind {
        ExprKind::Name(_) => !is_top,
        ExprKind::Member(base, _) => base.root().is_some(),
        ExprKind::Index(base, index) => {
            base.root().is_some() && matches!(index.kind, ExprKind::Number(_))
        }
        ExprKind::Call { name, udf: false, .. } => {
            let scores = ["VECTORDISTANCE", "_VECTORSCORE", "_FULLTEXTSCORE", "ST_DISTANCE"];
            scores.iter().any(|score| score.eq_ignore_ascii_case(name)) || is_aggregate(expr)
        }
        _ => false,
    }
}

fn unsortable(span: Span) -> crate::error::Error {
    let message = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a \
                   document path.";
    Diagnostic::at(span, "SC2206", message).into()
}
