//! Expressions: each node of the tree to what evaluates it.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::{Binding, Compiler, unresolved};
use crate::compile::clauses::is_aggregate;
use crate::error::{Diagnostic, Error, Result, Span};
use crate::expr::{Aggregate, AggregateFunction, Expr};
use crate::functions::like::{Pattern, single_char};
use crate::functions::{self, Function};
use crate::sql::ast::{self, ExprKind, Step, SubqueryKind, UnaryOp};
use crate::sql::print;
use crate::value::Value;

/// From how many constants on IN looks them up by key.
const IN_SET_MIN: usize = 8;

impl Compiler<'_> {
    /// Compiles an expression within the names in scope.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Result<Expr> {
        if let Some(group) = &self.group
            && let Some(key) = group.keys.iter().position(|key| key == expr)
        {
            return Ok(Expr::GroupKey(key));
        }
        let compiled = match &expr.kind {
            ExprKind::Undefined => Expr::UNDEFINED,
            ExprKind::Null => Expr::Constant(Some(Json::Null)),
            ExprKind::Bool(b) => Expr::Constant(Some(Json::Bool(*b))),
            ExprKind::Number(n) => Expr::Constant(Some(Json::Number(n.clone()))),
            ExprKind::String(s) => Expr::Constant(Some(Json::String(s.clone()))),
            ExprKind::Parameter(name) => self.parameter(name, expr.span)?,
            // JSON has no such numbers, so nothing can be equal to them or come out as them.
            ExprKind::Name(name) if matches!(name.as_str(), "NaN" | "Infinity") => Expr::UNDEFINED,
            ExprKind::Name(name) => {
                let binding = self.resolve_path(name, expr)?;
                self.bound(binding)
            }
            ExprKind::Member(base, name) => {
                let base = self.base(base, expr)?;
                self.step(base, &Step::Name(name.clone()))
            }
            ExprKind::Index(base, index) => {
                let base = self.base(base, expr)?;
                let index = self.expr(index)?;
                self.index(base, index)
            }
            ExprKind::Array(items) => Expr::Array(self.all(items)?),
            ExprKind::Object(members) => {
                let values = members.iter().map(|(name, v)| Ok((name.clone(), self.expr(v)?)));
                Expr::Object(values.collect::<Result<_>>()?)
            }
            ExprKind::Unary(op, operand) => Expr::Unary(*op, self.boxed(operand)?),
            ExprKind::Binary(op, a, b) => Expr::Binary(*op, self.boxed(a)?, self.boxed(b)?),
            ExprKind::And(all) => Expr::And(self.all(all)?),
            ExprKind::Or(all) => Expr::Or(self.all(all)?),
            ExprKind::Coalesce(a, b) => Expr::Coalesce(self.boxed(a)?, self.boxed(b)?),
            ExprKind::Conditional(a, b, c) => {
                Expr::Conditional(self.boxed(a)?, self.boxed(b)?, self.boxed(c)?)
            }
            ExprKind::In { needle, list, negated } => {
                let is_in = in_list(self.boxed(needle)?, self.all(list)?);
                negate(*negated, self.fold(is_in))
            }
            ExprKind::Between { value, low, high, negated } => {
                let (value, low, high) = (self.boxed(value)?, self.boxed(low)?, self.boxed(high)?);
                negate(*negated, self.fold(Expr::Between(value, low, high)))
            }
            ExprKind::Like { value, pattern, escape, negated } => {
                let escape = escape.as_ref().map(|escape| self.boxed(escape)).transpose()?;
                let like = like(self.boxed(value)?, self.boxed(pattern)?, escape);
                negate(*negated, self.fold(like))
            }
            ExprKind::Call { name, udf: true, args } => Expr::Udf(name.clone(), self.all(args)?),
            ExprKind::Call { name, udf: false, args } => self.call(expr, name, args)?,
            ExprKind::Subquery(kind, query) => self.subquery(*kind, query)?,
        };
        Ok(self.fold(compiled))
    }

    fn boxed(&mut self, expr: &ast::Expr) -> Result<Box<Expr>> {
        self.expr(expr).map(Box::new)
    }

    fn all(&mut self, exprs: &[ast::Expr]) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn parameter(&self, name: &str, span: Span) -> Result<Expr> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        let (_, value) = found.ok_or_else(|| unresolved(name, span))?;
        Ok(Expr::Constant(Some(value.clone())))
    }

    /// The base of a path; what is said of its root is said of the whole path.
    fn base(&mut self, base: &ast::Expr, whole: &ast::Expr) -> Result<Expr> {
        match &base.kind {
            ExprKind::Name(name) if !self.is_group_key(base) => {
                let binding = self.resolve_path(name, whole).map_err(|error| {
                    // An unknown name is shown alone, not with the path behind it.
                    if self.resolve(name, base.span).is_err() {
                        unresolved(name, base.span)
                    } else {
                        error
                    }
                })?;
                Ok(self.bound(binding))
            }
            ExprKind::Member(inner, name) if !self.is_group_key(base) => {
                let inner = self.base(inner, whole)?;
                Ok(self.step(inner, &Step::Name(name.clone())))
            }
            _ => self.expr(base),
        }
    }

    fn is_group_key(&self, expr: &ast::Expr) -> bool {
        self.group.as_ref().is_some_and(|group| group.keys.contains(expr))
    }

    /// What a path starts from; refused if it is a row that the group no longer has.
    fn resolve_path(&self, name: &str, path: &ast::Expr) -> Result<Binding> {
        let binding = self.resolve(name, path.span)?;
        if self.is_hidden(name) {
            let message = format!(
                "Property reference '{}' is invalid in the select list because it is not contained \
                 in either an aggregate function or the GROUP BY clause.",
                print::expr(path)
            );
            return Err(Diagnostic::at(path.span, "SC2102", message).into());
        }
        Ok(binding)
    }

    /// What a source starts from.
    pub(super) fn resolve_row(&self, name: &str, span: Span) -> Result<Binding> {
        let end = span.start + name.len() as u32;
        let span = Span { end: end.min(span.end), ..span };
        if self.is_hidden(name) {
            return Err(unresolved(name, span));
        }
        self.resolve(name, span)
    }

    fn is_hidden(&self, name: &str) -> bool {
        let Some(group) = &self.group else { return false };
        let visible = self.scopes.iter().skip(group.scopes_hidden);
        !visible.flatten().any(|(known, _)| known == name)
    }

    /// The value that a name stands for.
    pub(super) fn bound(&self, binding: Binding) -> Expr {
        match binding {
            Binding::Item => Expr::Item,
            Binding::Slot(slot) => Expr::Slot(slot),
        }
    }

    /// One step into a value; steps into the item are gathered into one node.
    pub(super) fn step(&mut self, base: Expr, step: &Step) -> Expr {
        match (base, step) {
            (Expr::Item, Step::Name(name)) => {
                let field = Expr::Field(self.fields.add(name), Vec::new());
                match self.computed.iter().find(|(computed, _)| computed == name) {
                    Some((_, text)) => self.computed_property(field, &text.clone()),
                    None => field,
                }
            }
            (Expr::Field(field, mut steps), step) => {
                steps.push(step.clone());
                Expr::Field(field, steps)
            }
            (base, Step::Name(name)) => Expr::Member(base.into(), name.clone()),
            (base, Step::Index(index)) => {
                Expr::Index(base.into(), Expr::Constant(Some((*index).into())).into())
            }
        }
    }

    /// A computed property: the item's own field of that name wins. One that no longer compiles is
    /// as good as absent, since the query that names it did nothing wrong.
    fn computed_property(&mut self, field: Expr, text: &str) -> Expr {
        let Ok(query) = crate::sql::parse(text) else { return field };
        // Its text stands alone: it sees the container, no names of this query, no other
        // computed property.
        let computed = std::mem::take(&mut self.computed);
        let scopes = std::mem::take(&mut self.scopes);
        let group = self.group.take();
        let block = self.block(&query);
        (self.computed, self.scopes, self.group) = (computed, scopes, group);
        match block {
            Ok(block) => {
                let value = Expr::Subquery(SubqueryKind::Scalar, Box::new(block));
                Expr::Coalesce(field.into(), value.into())
            }
            Err(_) => field,
        }
    }

    fn index(&mut self, base: Expr, index: Expr) -> Expr {
        match &index {
            Expr::Constant(Some(Json::String(name))) => self.step(base, &Step::Name(name.clone())),
            Expr::Constant(Some(Json::Number(n))) if matches!(base, Expr::Field(..)) => {
                match n.as_u64() {
                    Some(n) => self.step(base, &Step::Index(n)),
                    None => Expr::Index(base.into(), index.into()),
                }
            }
            _ => Expr::Index(base.into(), index.into()),
        }
    }

    fn call(&mut self, call: &ast::Expr, name: &str, args: &[ast::Expr]) -> Result<Expr> {
        let name_span = Span { end: call.span.start + name.len() as u32, ..call.span };
        if let Some(function) = AggregateFunction::named(name) {
            return self.aggregate(call, function, args);
        }
        let upper = name.to_ascii_uppercase();
        if upper == "FULLTEXTSCORE" || upper == "RRF" {
            let message = format!("The {upper} function is only allowed in ORDER BY RANK.");
            return Err(Diagnostic::at(name_span, "SC2240", message).into());
        }
        let find = if self.flat { functions::find_on_plane } else { functions::find };
        let Some(function) = find(name) else {
            let message = format!("'{name}' is not a recognized built-in function name.");
            return Err(Diagnostic::at(name_span, "SC2005", message).into());
        };
        check_count(&upper, (function.args_min, function.args_max), args.len(), call.span)?;
        let args = self.all(args)?;
        Ok(match function.name {
            "IIF" => conditional(function, args),
            "VECTORDISTANCE" | "_VECTORSCORE" => Expr::Call(function, self.with_policy(args)),
            _ => Expr::Call(function, args),
        })
    }

    fn aggregate(
        &mut self,
        call: &ast::Expr,
        function: AggregateFunction,
        args: &[ast::Expr],
    ) -> Result<Expr> {
        let ExprKind::Call { name, .. } = &call.kind else { return Ok(Expr::UNDEFINED) };
        let upper = name.to_ascii_uppercase();
        check_count(&upper, (1, 1), args.len(), call.span)?;
        let nested =
            |expr: &ast::Expr| is_aggregate(expr) || matches!(expr.kind, ExprKind::Subquery(..));
        if args.iter().any(|arg| arg.any(&nested)) {
            let message = "Cannot perform an aggregate function on an expression containing an \
                           aggregate or a subquery.";
            return Err(Diagnostic::at(call.span, "SC2101", message).into());
        }
        let Some(mut group) = self.group.take() else {
            let message = format!("The aggregate function {upper} is not allowed in this clause.");
            return Err(Diagnostic::at(call.span, "SC2103", message).into());
        };
        // The argument is about single rows, so it is compiled as if there were no group.
        let argument = args.iter().map(|arg| self.expr(arg)).next();
        let number = group.aggregates.len();
        let argument = argument.unwrap_or(Ok(Expr::UNDEFINED));
        if let Ok(argument) = &argument {
            group.aggregates.push(Aggregate { function, argument: argument.clone() });
        }
        self.group = Some(group);
        argument.map(|_| Expr::Aggregate(number))
    }

    fn subquery(&mut self, kind: SubqueryKind, query: &ast::Query) -> Result<Expr> {
        let block = self.block(query)?;
        Ok(Expr::Subquery(kind, Box::new(block)))
    }
}

/// Whether the number of arguments is one that the function takes.
pub(super) fn check_count(
    name: &str,
    takes: (usize, usize),
    given: usize,
    span: Span,
) -> Result<()> {
    let (min, max) = takes;
    if (min..=max).contains(&given) {
        return Ok(());
    }
    let wanted = match max {
        usize::MAX => format!("at least {min}"),
        max if max == min => min.to_string(),
        max => format!("{min} to {max}"),
    };
    let message = format!("The {name} function requires {wanted} argument(s).");
    Err(Error::from(Diagnostic::at(span, "SC2050", message)))
}

/// IIF is a conditional in the clothes of a function: what is not chosen is not computed.
fn conditional(function: &'static Function, args: Vec<Expr>) -> Expr {
    match <[Expr; 3]>::try_from(args) {
        Ok([condition, then, otherwise]) => {
            Expr::Conditional(condition.into(), then.into(), otherwise.into())
        }
        Err(args) => Expr::Call(function, args),
    }
}

fn in_list(needle: Box<Expr>, list: Vec<Expr>) -> Expr {
    let constants: Option<Vec<Json>> = list
        .iter()
        .map(|item| if let Expr::Constant(Some(value)) = item { Some(value.clone()) } else { None })
        .collect();
    match constants {
        Some(constants) if constants.len() >= IN_SET_MIN => {
            let keys: HashSet<Vec<u8>> = constants
                .iter()
                .map(|value| {
                    let mut key = Vec::new();
                    Value::literal(value).write_key(&mut key);
                    key
                })
                .collect();
            Expr::InSet(needle, keys, constants)
        }
        _ => Expr::In(needle, list),
    }
}

/// LIKE, with its pattern read now if it is known now.
fn like(value: Box<Expr>, pattern: Box<Expr>, escape: Option<Box<Expr>>) -> Expr {
    let known = match (&*pattern, escape.as_deref()) {
        (Expr::Constant(Some(Json::String(text))), None) => Some(Pattern::new(text, None)),
        (Expr::Constant(Some(Json::String(text))), Some(Expr::Constant(Some(escape)))) => {
            let escape = single_char(&Value::literal(escape));
            escape.map(|escape| Pattern::new(text, Some(escape)))
        }
        _ => None,
    };
    match known {
        Some(known) => Expr::Like(value, known),
        None => Expr::LikeComputed(value, pattern, escape),
    }
}

fn negate(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Unary(UnaryOp::Not, expr.into()) } else { expr }
}
