//! ORDER BY RANK for SDKs that merge partitions themselves: the `hybridSearchQueryInfo` of a plan.
//!
//! The client first asks every partition for statistics (how many texts, words and hits), puts them
//! into the text of one query for each score, and fuses the ranks of what comes back.

use serde_json::{Value as Json, json};

use crate::compile::Compiled;
use crate::expr::Score;
use crate::sql::ast::{Expr, ExprKind, OrderBy};
use crate::sql::print;

use super::rewrite::Rewrite;

/// How many rows each score gives for each row that is wanted.
const CANDIDATES: u64 = 12;

/// What the client puts in place of this, followed by the name of a number.
const PLACEHOLDER: &str = "documentdb-formattablehybridsearchquery";

/// One score: the text that computes it, and which way is better.
struct Component {
    text: String,
    descending: bool,
    /// What to gather for it beforehand.
    statistics: Option<String>,
}

impl Compiled {
    /// The `hybridSearchQueryInfo` object; `None` without ORDER BY RANK.
    pub(super) fn hybrid_info(&self, rewrite: &Rewrite<'_>) -> Option<Json> {
        let (Some(OrderBy::Rank(expr)), Some(rank)) = (&self.tree.order_by, &self.block.rank)
        else {
            return None;
        };
        let components = components(calls(expr), &rank.scores);
        let skip = self.block.offset;
        let take = self.block.limit;
        let top = take.map(|take| (skip + take) * CANDIDATES);
        let infos = |with_payload: bool| -> Vec<Json> {
            let info =
                |component| component_info(rewrite, &components, component, (top, with_payload));
            components.iter().map(info).collect()
        };
        let statistics: Vec<&str> =
            components.iter().filter_map(|component| component.statistics.as_deref()).collect();
        let from = self.tree.from.as_ref().map(print::from).unwrap_or_default();
        Some(json!({
            "globalStatisticsQuery": format!(
                "SELECT COUNT(1) AS documentCount, [{}] AS fullTextStatistics FROM {from}",
                statistics.join(", "),
            ),
            "componentQueryInfos": infos(true),
            "componentWithoutPayloadQueryInfos": infos(false),
            "projectionQueryInfo": null,
            "componentWeights": rank.weights,
            "skip": skip,
            "take": take,
            "requiresGlobalStatistics": !statistics.is_empty(),
        }))
    }
}

/// The calls that are fused, or the only one.
fn calls(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Call { name, args, .. } if name.eq_ignore_ascii_case("RRF") => {
            args.iter().filter(|arg| matches!(arg.kind, ExprKind::Call { .. })).collect()
        }
        _ => vec![expr],
    }
}

fn components(calls: Vec<&Expr>, scores: &[Score]) -> Vec<Component> {
    let mut texts = 0;
    let mut component = |(call, score): (&Expr, &Score)| {
        let ExprKind::Call { args, .. } = &call.kind else { return None };
        let args: Vec<String> = args.iter().map(print::expr).collect();
        match score {
            Score::Vector { smaller_is_better, .. } => Some(Component {
                text: format!("_VectorScore({})", args.join(", ")),
                descending: !smaller_is_better,
                statistics: None,
            }),
            Score::FullText { .. } => {
                let (path, terms) = args.split_first()?;
                let number = texts;
                texts += 1;
                Some(full_text(path, terms, number))
            }
        }
    };
    calls.into_iter().zip(scores).filter_map(&mut component).collect()
}

fn full_text(path: &str, terms: &[String], number: usize) -> Component {
    let hits: Vec<String> =
        terms.iter().map(|term| format!("COUNTIF(FullTextContains({path}, {term}))")).collect();
    Component {
        text: format!(
            "_FullTextScore({path}, [{}], {{{PLACEHOLDER}-totaldocumentcount}}, \
             {{{PLACEHOLDER}-totalwordcount-{number}}}, {{{PLACEHOLDER}-hitcountsarray-{number}}})",
            terms.join(", "),
        ),
        descending: true,
        statistics: Some(format!(
            "{{\"totalWordCount\": SUM(_FullTextWordCount({path})), \"hitCounts\": [{}]}}",
            hits.join(", "),
        )),
    }
}

/// The query of one score, as if it were sorted by.
fn component_info(
    rewrite: &Rewrite<'_>,
    all: &[Component],
    component: &Component,
    (top, with_payload): (Option<u64>, bool),
) -> Json {
    let scores: Vec<&str> = all.iter().map(|component| component.text.as_str()).collect();
    let scores = format!("\"componentScores\": [{}]", scores.join(", "));
    let parts = rewrite.sorted_parts();
    let payload = if with_payload {
        format!("{{\"payload\": {}, {scores}}}", parts.payload)
    } else {
        format!("{{{scores}}}")
    };
    let (root, from, filter, score) = (&parts.root, &parts.from, &parts.filter, &component.text);
    let direction = if component.descending { "DESC" } else { "ASC" };
    let first = top.map_or(String::new(), |top| format!("TOP {top} "));
    json!({
        "distinctType": "None",
        "top": top,
        "offset": null,
        "limit": null,
        "orderBy": [if component.descending { "Descending" } else { "Ascending" }],
        "orderByExpressions": [score],
        "groupByExpressions": [],
        "groupByAliases": [],
        "aggregates": [],
        "groupByAliasToAggregateType": {},
        "rewrittenQuery": format!(
            "SELECT {first}{root}._rid, [{{\"item\": {score}}}] AS orderByItems, {payload} AS \
             payload FROM {from} WHERE {filter} ORDER BY {score} {direction}",
        ),
        "hasSelectValue": false,
        "dCountInfo": null,
        "hasNonStreamingOrderBy": true,
    })
}
