//! What an SDK must know to run a query over several partitions and merge the answers: the
//! `queryInfo` of a plan response.

use serde_json::{Map, Value as Json, json};

use super::rewrite::Rewrite;
use crate::compile::{Compiled, column_names, is_aggregate};
use crate::error::Result;
use crate::expr::AggregateFunction;
use crate::sql::ast::{Collection, Expr, ExprKind, OrderBy, Query, SelectSpec};
use crate::sql::print;

/// A plan for SDKs.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// The `queryInfo` object; null if there is a hybrid one.
    pub query_info: Json,
    /// The `hybridSearchQueryInfo` object of ORDER BY RANK; null otherwise.
    pub hybrid_info: Json,
    /// The features that a client needs to follow it.
    pub features: Vec<&'static str>,
}

impl Info {
    /// Whether what a partition has aggregated is wholly in its `item`. MIN and MAX have an `item2` as well, and where there was nothing to
    /// compare nothing else, which the oldest clients stumble over.
    pub fn merges_by_item(&self) -> bool {
        let aggregates = self.query_info["aggregates"].as_array().into_iter().flatten();
        aggregates.filter_map(Json::as_str).all(|name| !matches!(name, "Min" | "Max"))
    }
}

impl Compiled {
    /// The plan for SDKs that merge partitions themselves. Fails for what they cannot merge: an
    /// aggregate inside another expression.
    pub fn info(&self) -> Result<Info> {
        // DISTINCT inside COUNT: partitions send distinct values, the client counts them.
        if let Some((alias, inner)) = distinct_count(&self.tree) {
            let mut info = self.inner.as_ref().map_or_else(|| self.plain_info(), |i| i.info())?;
            info.query_info["dCountInfo"] = json!({"dCountAlias": alias});
            info.query_info["hasSelectValue"] = json!(alias.is_empty());
            info.query_info["rewrittenQuery"] = json!(print::query(inner));
            info.features.push("DCount");
            return Ok(info);
        }
        self.plain_info()
    }

    fn plain_info(&self) -> Result<Info> {
        let query = &self.tree;
        let rewrite = Rewrite::new(query)?;
        if let Some(hybrid_info) = self.hybrid_info(&rewrite) {
            let features = features(query, &rewrite);
            return Ok(Info { query_info: Json::Null, hybrid_info, features });
        }
        let keys = match &query.order_by {
            Some(OrderBy::Keys(keys)) => keys.as_slice(),
            _ => &[],
        };
        let directions = self.block.order.iter();
        let directions =
            directions.map(|key| if key.descending { "Descending" } else { "Ascending" });
        let sorted_by = |key: &crate::sql::ast::OrderKey| print::expr(&key.expr);
        let non_streaming = keys.iter().any(|key| is_distance(&key.expr));
        let (top, offset, limit) = self.counts();
        let query_info = json!({
            "distinctType": distinct_type(query),
            "top": top,
            "offset": offset,
            "limit": limit,
            "orderBy": directions.collect::<Vec<_>>(),
            "orderByExpressions": keys.iter().map(sorted_by).collect::<Vec<_>>(),
            "groupByExpressions": query.group_by.iter().map(print::expr).collect::<Vec<_>>(),
            "groupByAliases": rewrite.aliases.iter().map(|(alias, _)| alias).collect::<Vec<_>>(),
            "aggregates": rewrite.aggregates.iter().map(|a| type_name(*a)).collect::<Vec<_>>(),
            "groupByAliasToAggregateType": alias_types(&rewrite),
            "rewrittenQuery": rewrite.text(offset.zip(limit)),
            "hasSelectValue": matches!(query.select.spec, SelectSpec::Value(_)),
            "dCountInfo": null,
            "hasNonStreamingOrderBy": non_streaming,
        });
        let mut features = features(query, &rewrite);
        if non_streaming {
            features.push("NonStreamingOrderBy");
        }
        Ok(Info { query_info, hybrid_info: Json::Null, features })
    }

    /// TOP, OFFSET and LIMIT, parameters resolved.
    fn counts(&self) -> (Option<u64>, Option<u64>, Option<u64>) {
        let top = self.tree.select.top.as_ref().map(|_| self.top.unwrap_or_default());
        match self.tree.offset_limit {
            Some(_) => (top, Some(self.block.offset), self.take),
            None => (top, None, None),
        }
    }
}

/// For `SELECT [VALUE] COUNT(1) [AS alias] FROM (SELECT DISTINCT …)`: the alias and the subquery.
fn distinct_count(query: &Query) -> Option<(String, &Query)> {
    let from = query.from.as_ref()?;
    let Collection::Subquery(inner) = &from.first.collection else { return None };
    let plain = from.joins.is_empty() && query.filter.is_none() && query.group_by.is_empty();
    if !inner.select.distinct || !plain {
        return None;
    }
    let is_count = |expr: &Expr| aggregate_of(expr) == Some(AggregateFunction::Count);
    match &query.select.spec {
        SelectSpec::Value(expr) if is_count(expr) => Some((String::new(), inner)),
        SelectSpec::List(items) if items.len() == 1 && is_count(&items[0].expr) => {
            let names = column_names(items, query.select.span).ok()?;
            Some((names.into_iter().next()?, inner))
        }
        _ => None,
    }
}

/// Ordered if equal rows come one after the other, since the rows are what ORDER BY sorts by.
fn distinct_type(query: &Query) -> &'static str {
    if !query.select.distinct {
        return "None";
    }
    let keys: Vec<&Expr> = match &query.order_by {
        Some(OrderBy::Keys(keys)) => keys.iter().map(|key| &key.expr).collect(),
        _ => return "Unordered",
    };
    let ordered = match &query.select.spec {
        SelectSpec::Star => false,
        SelectSpec::Value(expr) => keys == [expr],
        SelectSpec::List(items) => items.iter().all(|item| keys.contains(&&item.expr)),
    };
    if ordered { "Ordered" } else { "Unordered" }
}

fn alias_types(rewrite: &Rewrite<'_>) -> Json {
    let types = rewrite.aliases.iter();
    let types =
        types.map(|(alias, f)| (alias.clone(), f.map_or(Json::Null, |f| json!(type_name(f)))));
    Json::Object(types.collect::<Map<String, Json>>())
}

/// The name that plans have for an aggregate.
fn type_name(function: AggregateFunction) -> &'static str {
    match function {
        AggregateFunction::Count => "Count",
        AggregateFunction::CountIf => "CountIf",
        AggregateFunction::Sum => "Sum",
        AggregateFunction::Average => "Average",
        AggregateFunction::Min => "Min",
        AggregateFunction::Max => "Max",
        AggregateFunction::MakeList => "MakeList",
        AggregateFunction::MakeSet => "MakeSet",
    }
}

/// The aggregate that an expression is the call of.
pub(super) fn aggregate_of(expr: &Expr) -> Option<AggregateFunction> {
    match &expr.kind {
        ExprKind::Call { name, udf: false, .. } => AggregateFunction::named(name),
        _ => None,
    }
}

fn is_distance(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call { name, .. } if name.eq_ignore_ascii_case("VECTORDISTANCE"))
}

fn features(query: &Query, rewrite: &Rewrite<'_>) -> Vec<&'static str> {
    let aggregates: Vec<AggregateFunction> = match rewrite.aliases.as_slice() {
        [] => rewrite.aggregates.clone(),
        aliases => aliases.iter().filter_map(|(_, function)| *function).collect(),
    };
    let sort_keys = match &query.order_by {
        Some(OrderBy::Keys(keys)) => keys.len(),
        _ => 0,
    };
    let is_list = |f: &AggregateFunction| {
        matches!(f, AggregateFunction::MakeList | AggregateFunction::MakeSet)
    };
    let non_value = matches!(&query.select.spec, SelectSpec::List(items)
        if items.iter().any(|item| is_aggregate(&item.expr)));
    let needed = [
        ("Aggregate", !aggregates.is_empty()),
        ("CountIf", aggregates.contains(&AggregateFunction::CountIf)),
        ("Distinct", query.select.distinct),
        ("GroupBy", !query.group_by.is_empty()),
        ("HybridSearch", matches!(query.order_by, Some(OrderBy::Rank(_)))),
        ("ListAndSetAggregate", aggregates.iter().any(is_list)),
        ("MultipleAggregates", aggregates.len() > 1),
        ("MultipleOrderBy", sort_keys > 1),
        ("NonValueAggregate", non_value && query.group_by.is_empty()),
        ("OffsetAndLimit", query.offset_limit.is_some()),
        ("OrderBy", sort_keys > 0),
        ("Top", query.select.top.is_some()),
    ];
    needed.iter().filter(|(_, needed)| *needed).map(|(feature, _)| *feature).collect()
}
