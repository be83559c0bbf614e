//! ORDER BY RANK and vector distances: what is scored, and which way is better.

use serde_json::Value as Json;

use super::Compiler;
use super::expressions::check_count;
use crate::error::{Diagnostic, Error, Result, Span};
use crate::expr::{Expr, Rank, Score};
use crate::functions::full_text::words;
use crate::functions::vector::Metric;
use crate::sql::ast::{self, ExprKind};
use crate::value::Value;

impl Compiler<'_> {
    /// One score, or several fused by RRF with or without weights.
    pub(super) fn rank(&mut self, expr: &ast::Expr) -> Result<Rank> {
        if self.scopes.len() > 1 {
            return Err(misplaced(expr.span));
        }
        match &expr.kind {
            ExprKind::Call { name, udf: false, args } if name.eq_ignore_ascii_case("RRF") => {
                let (calls, weights) = match args.split_last() {
                    Some((last, calls)) if !matches!(last.kind, ExprKind::Call { .. }) => {
                        (calls, self.weights(last, calls.len())?)
                    }
                    _ => (args.as_slice(), vec![1.0; args.len()]),
                };
                check_count("RRF", (2, usize::MAX), calls.len(), expr.span)?;
                let scores = calls.iter().map(|call| self.score(call)).collect::<Result<_>>()?;
                Ok(Rank { scores, weights })
            }
            _ => Ok(Rank { scores: vec![self.score(expr)?], weights: vec![1.0] }),
        }
    }

    fn weights(&mut self, expr: &ast::Expr, count: usize) -> Result<Vec<f64>> {
        let weights = match self.expr(expr)? {
            Expr::Constant(Some(Json::Array(weights))) => {
                weights.iter().map(Json::as_f64).collect::<Option<Vec<f64>>>()
            }
            _ => None,
        };
        weights.filter(|weights| weights.len() == count).ok_or_else(|| {
            let message = "The weights of RRF must be an array of numbers, one for each function.";
            Diagnostic::at(expr.span, "SC2242", message).into()
        })
    }

    fn score(&mut self, expr: &ast::Expr) -> Result<Score> {
        let ExprKind::Call { name, udf: false, args } = &expr.kind else {
            return Err(misplaced(expr.span));
        };
        match name.to_ascii_uppercase().as_str() {
            "FULLTEXTSCORE" => {
                check_count("FULLTEXTSCORE", (2, usize::MAX), args.len(), expr.span)?;
                let text = self.expr(&args[0])?;
                let terms = args[1..].iter().map(|term| self.terms(term));
                let terms = terms.collect::<Result<Vec<_>>>()?.concat();
                Ok(Score::FullText { text, terms })
            }
            "VECTORDISTANCE" => {
                let call = self.expr(expr)?;
                let smaller_is_better = nearest_first(&call) == Some(false);
                Ok(Score::Vector { call, smaller_is_better })
            }
            _ => Err(misplaced(expr.span)),
        }
    }

    /// The search terms that an argument stands for: one, or an array of them.
    fn terms(&mut self, expr: &ast::Expr) -> Result<Vec<Vec<String>>> {
        let refuse = || {
            let message = "The search terms of FULLTEXTSCORE must be strings.";
            Error::from(Diagnostic::at(expr.span, "SC2243", message))
        };
        let texts = match self.expr(expr)? {
            Expr::Constant(Some(Json::Array(terms))) => terms,
            Expr::Constant(Some(term)) => vec![term],
            _ => return Err(refuse()),
        };
        texts.iter().map(|text| text.as_str().map(words).ok_or_else(refuse)).collect()
    }

    /// The arguments of VECTORDISTANCE, with what the container's policy says of the path unless they
    /// say otherwise.
    pub(super) fn with_policy(&self, mut args: Vec<Expr>) -> Vec<Expr> {
        let paths = args.iter().take(2).filter_map(|arg| arg.path(&self.fields));
        let policy = paths.into_iter().find_map(|path| {
            self.vectors.iter().find(|(known, _)| *known == path).map(|(_, policy)| policy.clone())
        });
        let Some(Json::Object(mut options)) = policy else { return args };
        match args.get(3) {
            None => {}
            Some(Expr::Constant(Some(Json::Object(own)))) => {
                options.extend(own.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            Some(_) => return args,
        }
        args.truncate(3);
        args.resize(3, Expr::Constant(Some(Json::Bool(false))));
        args.push(Expr::Constant(Some(Json::Object(options))));
        args
    }
}

/// For a call of VECTORDISTANCE, whether descending order puts the nearest first.
pub(super) fn nearest_first(expr: &Expr) -> Option<bool> {
    let Expr::Call(function, args) = expr else { return None };
    if function.name != "VECTORDISTANCE" {
        return None;
    }
    let options = match args.get(3) {
        Some(Expr::Constant(Some(options))) => Some(Value::literal(options)),
        _ => None,
    };
    let metric = Metric::of_options(options.as_ref()).unwrap_or(Metric::Cosine);
    Some(!metric.smaller_is_nearer())
}

fn misplaced(span: Span) -> Error {
    let message = "ORDER BY RANK takes FULLTEXTSCORE, VECTORDISTANCE or RRF, and only at the top \
                   of a query.";
    Diagnostic::at(span, "SC2241", message).into()
}
