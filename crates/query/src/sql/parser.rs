//! Text to tree: the clauses of a query. Expressions are in [`expression`].
//!
//! A recursive descent with two bounds, so that no text can exhaust the stack: how deep the parser
//! itself may nest, and how deep a tree it may build (a chain such as `1+1+1…` is read in a loop but
//! walked by recursion later).

mod expression;

use crate::error::{Diagnostic, Diagnostics, Error, Result, Span};
use crate::sql::ast::{
    Collection, Expr, ExprKind, From, OrderBy, OrderKey, Query, Select, SelectItem, SelectSpec,
    Source, Step,
};
use crate::sql::lexer::{Kind, Token, tokenize};

/// The longest query text that is read.
pub const TEXT_BYTES_MAX: usize = 512 * 1024;

/// Reads a query.
pub fn parse(text: &str) -> Result<Query> {
    parse_with(text, |parser| {
        let query = parser.query()?;
        parser.expect_end()?;
        Ok(query)
    })
}

/// Reads the condition of a patch, `from c where …`: the alias and the expression.
pub fn parse_condition(text: &str) -> Result<(String, Expr)> {
    parse_with(text, |parser| {
        parser.expect_keyword("FROM")?;
        let alias = parser.name()?;
        parser.expect_keyword("WHERE")?;
        let condition = parser.expression()?;
        parser.expect_end()?;
        Ok((alias, condition))
    })
}

/// Reads a whole text by one rule, and says in the client's units where it went wrong.
fn parse_with<T>(text: &str, rule: impl FnOnce(&mut Parser) -> Parsed<T>) -> Result<T> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("The SQL query text exceeded the maximum limit of {TEXT_BYTES_MAX}.");
        return Err(Diagnostic { code: "SC1003", message, span: None }.into());
    }
    let parsed =
        tokenize(text).and_then(|tokens| rule(&mut Parser { text, tokens, at: 0, nesting: 0 }));
    parsed.map_err(|diagnostic| Error::Text(Diagnostics(vec![diagnostic]).locate(text)))
}

/// What a rule gives: a part of the tree, or the first complaint.
type Parsed<T> = std::result::Result<T, Diagnostic>;

/// Words that cannot be a name without brackets, since they begin or join clauses and expressions.
const RESERVED: [&str; 31] = [
    "ALL",
    "AND",
    "ARRAY",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "DESC",
    "DISTINCT",
    "ESCAPE",
    "EXISTS",
    "FALSE",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "JOIN",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "TOP",
    "TRUE",
    "UDF",
    "UNDEFINED",
    "VALUE",
    "WHERE",
];

/// How deep parentheses, arrays, objects and subqueries may nest.
const NESTING_MAX: u32 = 128;

/// How many levels a subquery counts for, since it takes that much more stack to run.
const SUBQUERY_LEVELS: u32 = 4;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    nesting: u32,
}

impl Parser<'_> {
    fn query(&mut self) -> Parsed<Query> {
        self.expect_keyword("SELECT")?;
        let select = self.select()?;
        let from = if self.keyword("FROM") { Some(self.from()?) } else { None };
        let filter = if self.keyword("WHERE") { Some(self.expression()?) } else { None };
        let mut group_by = Vec::new();
        if self.keyword("GROUP") {
            self.expect_keyword("BY")?;
            group_by = self.list(Self::expression)?;
        }
        let order_by = if self.keyword("ORDER") { Some(self.order_by()?) } else { None };
        let offset_limit = if self.keyword("OFFSET") {
            let offset = self.count()?;
            self.expect_keyword("LIMIT")?;
            Some((offset, self.count()?))
        } else {
            None
        };
        Ok(Query { select, from, filter, group_by, order_by, offset_limit })
    }

    /// A query in parentheses whose opening one has been read.
    fn subquery(&mut self) -> Parsed<Box<Query>> {
        let query = self.nested(SUBQUERY_LEVELS, |parser| parser.query().map(Box::new))?;
        self.expect_symbol(")")?;
        Ok(query)
    }

    fn select(&mut self) -> Parsed<Select> {
        let start = self.span();
        let mut distinct = self.keyword("DISTINCT");
        let top = if self.keyword("TOP") { Some(self.count()?) } else { None };
        distinct |= self.keyword("DISTINCT");
        let spec = if self.symbol("*") {
            SelectSpec::Star
        } else if self.peek_keyword("VALUE") && !self.value_is_a_name() {
            self.at += 1;
            SelectSpec::Value(self.expression()?)
        } else {
            SelectSpec::List(self.list(Self::select_item)?)
        };
        Ok(Select { distinct, top, spec, span: start.to(self.last_span()) })
    }

    /// `SELECT value.x FROM value`: what follows shows that VALUE is an alias here.
    fn value_is_a_name(&self) -> bool {
        matches!(self.tokens.get(self.at + 1).map(|t| &t.kind), Some(Kind::Symbol("." | ",")))
            || self.tokens.get(self.at + 1).is_some_and(|t| t.kind == Kind::End)
    }

    fn select_item(&mut self) -> Parsed<SelectItem> {
        let expr = self.expression()?;
        let alias = self.alias()?;
        Ok(SelectItem { expr, alias })
    }

    /// `[AS] name`. After AS any word will do, and a quoted one too.
    fn alias(&mut self) -> Parsed<Option<String>> {
        if self.keyword("AS") {
            return match self.next() {
                Kind::Word(name) | Kind::String(name) => Ok(Some(name)),
                _ => Err(self.unexpected_last()),
            };
        }
        Ok(if self.peek_name() { Some(self.name()?) } else { None })
    }

    fn from(&mut self) -> Parsed<From> {
        let first = self.source()?;
        let mut joins = Vec::new();
        while self.keyword("JOIN") {
            joins.push(self.source()?);
        }
        Ok(From { first, joins })
    }

    fn source(&mut self) -> Parsed<Source> {
        let start = self.span();
        if let (true, Some(Kind::Word(word))) =
            (self.peek_name(), self.tokens.get(self.at + 1).map(|t| &t.kind))
            && word.eq_ignore_ascii_case("IN")
        {
            let alias = Some(self.name()?);
            self.expect_keyword("IN")?;
            let collection = self.collection()?;
            let span = start.to(self.last_span());
            return Ok(Source { iterate: true, alias, collection, span });
        }
        let collection = self.collection()?;
        let alias = self.alias()?;
        let span = start.to(self.last_span());
        Ok(Source { iterate: false, alias, collection, span })
    }

    fn collection(&mut self) -> Parsed<Collection> {
        if self.symbol("(") {
            return Ok(Collection::Subquery(self.subquery()?));
        }
        let root = self.name()?;
        let mut steps = Vec::new();
        loop {
            if self.symbol(".") {
                steps.push(Step::Name(self.property()?));
            } else if self.symbol("[") {
                steps.push(match self.next() {
                    Kind::String(name) => Step::Name(name),
                    Kind::Integer(index) if index >= 0 => Step::Index(index as u64),
                    _ => return Err(self.unexpected_last()),
                });
                self.expect_symbol("]")?;
            } else {
                return Ok(Collection::Path { root, steps });
            }
        }
    }

    fn order_by(&mut self) -> Parsed<OrderBy> {
        self.expect_keyword("BY")?;
        if self.peek_keyword("RANK") && self.peek_word_at(1) {
            self.at += 1;
            let score = self.at;
            let expr = self.expression()?;
            if !matches!(expr.kind, ExprKind::Call { .. }) {
                self.at = score;
                return Err(self.unexpected());
            }
            if self.peek_keyword("ASC") || self.peek_keyword("DESC") {
                let message = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.";
                return Err(Diagnostic::at(self.span(), "SC2244", message));
            }
            return Ok(OrderBy::Rank(expr));
        }
        Ok(OrderBy::Keys(self.list(|parser| {
            let expr = parser.expression()?;
            let descending = parser.keyword("DESC");
            if !descending {
                parser.keyword("ASC");
            }
            Ok(OrderKey { expr, descending })
        })?))
    }

    /// The number of TOP, OFFSET and LIMIT: a literal or a parameter.
    fn count(&mut self) -> Parsed<Expr> {
        match self.peek() {
            Kind::Integer(_) | Kind::Number(_) | Kind::Parameter(_) => self.primary(),
            _ => Err(self.unexpected()),
        }
    }

    /// `rule, rule, …`.
    fn list<T>(&mut self, mut rule: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![rule(self)?];
        while self.symbol(",") {
            items.push(rule(self)?);
        }
        Ok(items)
    }

    /// Runs a rule so many levels further in.
    fn nested<T>(&mut self, levels: u32, rule: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.nesting += levels;
        if self.nesting > NESTING_MAX {
            return Err(too_deep(self.span()));
        }
        let result = rule(self);
        self.nesting -= levels;
        result
    }

    fn peek(&self) -> &Kind {
        // The last token is End and is never passed.
        self.tokens.get(self.at).map_or(&Kind::End, |token| &token.kind)
    }

    fn next(&mut self) -> Kind {
        let kind = self.peek().clone();
        self.at += 1;
        kind
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).or(self.tokens.last()).map(|t| t.span).unwrap_or_default()
    }

    fn last_span(&self) -> Span {
        self.tokens[..self.at.min(self.tokens.len())].last().map(|t| t.span).unwrap_or_default()
    }

    fn peek_keyword(&self, word: &str) -> bool {
        matches!(self.peek(), Kind::Word(found) if found.eq_ignore_ascii_case(word))
    }

    fn peek_word_at(&self, ahead: usize) -> bool {
        matches!(self.tokens.get(self.at + ahead).map(|t| &t.kind), Some(Kind::Word(_)))
    }

    fn keyword(&mut self, word: &str) -> bool {
        let found = self.peek_keyword(word);
        self.at += usize::from(found);
        found
    }

    fn expect_keyword(&mut self, word: &str) -> Parsed<()> {
        if self.keyword(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn peek_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Kind::Symbol(found) if *found == symbol)
    }

    fn symbol(&mut self, symbol: &str) -> bool {
        let found = self.peek_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_end(&self) -> Parsed<()> {
        if *self.peek() == Kind::End { Ok(()) } else { Err(self.unexpected()) }
    }

    fn peek_name(&self) -> bool {
        matches!(self.peek(), Kind::Word(word) if !is_reserved(word))
    }

    fn name(&mut self) -> Parsed<String> {
        match self.next() {
            Kind::Word(word) if !is_reserved(&word) => Ok(word),
            _ => Err(self.unexpected_last()),
        }
    }

    /// A property after a dot, where no word is reserved.
    fn property(&mut self) -> Parsed<String> {
        match self.next() {
            Kind::Word(word) => Ok(word),
            _ => Err(self.unexpected_last()),
        }
    }

    /// The complaint about the token that comes next.
    fn unexpected(&self) -> Diagnostic {
        let span = self.span();
        let token = &self.text[span.start as usize..span.end as usize];
        let message = match token {
            "" => "Syntax error, unexpected end-of-file.".to_owned(),
            token => format!("Syntax error, incorrect syntax near '{token}'."),
        };
        Diagnostic::at(span, "SC1001", message)
    }

    /// The complaint about the token just taken.
    fn unexpected_last(&mut self) -> Diagnostic {
        self.at -= 1;
        self.unexpected()
    }
}

fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::at(span, "SC1002", "The query is nested too deeply.")
}
