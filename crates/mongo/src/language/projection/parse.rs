//! Reading projections.

use bson::{Bson, Document, RawDocument, RawDocumentBuf};

use super::{Child, Tree, field_name};
use crate::language::expression::Expression;
use crate::language::failure::{Failure, Result};
use crate::language::filter::Filter;
use crate::language::number::Number;
use crate::language::value::{owned_document, raw, shown, type_name};
use crate::language::vars::Vars;

/// One path of a projection and what is wanted of it.
struct Wish {
    path: String,
    child: Child,
}

/// Whether fields are chosen or left out; a projection does one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Include,
    Exclude,
}

struct Reader<'v> {
    vars: &'v Vars,
    /// `find` knows `$slice`, `$elemMatch` and `$`.
    find: bool,
    wishes: Vec<Wish>,
    mode: Option<Mode>,
    id: Option<bool>,
    positional: bool,
}

pub fn find(spec: &RawDocument, vars: &Vars) -> Result<(Tree, bool)> {
    let mut reader = Reader::new(vars, true);
    reader.document("", &owned_document(spec)?)?;
    let positional = reader.positional;
    Ok((reader.tree()?, positional))
}

pub fn project(spec: &RawDocument, vars: &Vars) -> Result<Tree> {
    let invalid = |failure: Failure| Failure {
        message: format!("Invalid $project :: caused by :: {}", failure.message),
        ..failure
    };
    if spec.is_empty() {
        return Err(invalid(Failure::coded(
            51272,
            "projection specification must have at least one field",
        )));
    }
    let mut reader = Reader::new(vars, false);
    reader.document("", &owned_document(spec)?).map_err(invalid)?;
    reader.tree().map_err(invalid)
}

pub fn add_fields(spec: &RawDocument, vars: &Vars, stage: &str) -> Result<Tree> {
    let invalid = |failure: Failure| Failure {
        message: format!("Invalid {stage} :: caused by :: {}", failure.message),
        ..failure
    };
    if spec.is_empty() {
        return Err(invalid(Failure::coded(
            40177,
            format!("{stage} specification must have at least one field"),
        )));
    }
    let mut tree = Tree { keep_rest: true, ..Tree::default() };
    for (path, value) in owned_document(spec)? {
        added(&mut tree, &path, &path, &value, vars).map_err(invalid)?;
    }
    Ok(tree)
}

/// A nested document without operators adds to what is there; everything else is computed.
fn added(tree: &mut Tree, path: &str, whole: &str, value: &Bson, vars: &Vars) -> Result<()> {
    match value {
        Bson::Document(document)
            if !document.is_empty() && !document.keys().any(|name| name.starts_with('$')) =>
        {
            for (name, value) in document {
                let longer = format!("{path}.{name}");
                added(tree, &longer, &longer, value, vars)?;
            }
            Ok(())
        }
        value => {
            let child = Child::Computed(Expression::parse(value, vars)?);
            insert(tree, path, whole, child)
        }
    }
}

pub fn unset(paths: &[&str]) -> Result<Tree> {
    let mut tree = Tree { keep_rest: true, ..Tree::default() };
    for path in paths {
        if path.starts_with('$') {
            return Err(Failure::coded(
                16410,
                format!(
                    "Invalid $unset :: caused by :: FieldPath field names may not start with '$'. Consider using $getField or $setField. Field: {path}"
                ),
            ));
        }
        insert(&mut tree, path, path, Child::Drop)?;
    }
    Ok(tree)
}

impl<'v> Reader<'v> {
    fn new(vars: &'v Vars, find: bool) -> Self {
        Self { vars, find, wishes: Vec::new(), mode: None, id: None, positional: false }
    }

    fn document(&mut self, prefix: &str, document: &Document) -> Result<()> {
        for (name, value) in document {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            self.field(&path, value)?;
        }
        Ok(())
    }

    fn field(&mut self, path: &str, value: &Bson) -> Result<()> {
        if path.is_empty() {
            return Err(Failure::coded(40352, "FieldPath cannot be constructed with empty string"));
        }
        if path.starts_with('$') {
            return Err(Failure::coded(
                16410,
                format!(
                    "FieldPath field names may not start with '$'. Consider using $getField or $setField. Field: {path}"
                ),
            ));
        }
        if let Some(parent) = path.strip_suffix(".$") {
            return self.positional(parent, value);
        }
        if path.contains(".$.") || (path.split('.').any(|part| part == "$")) {
            return Err(Failure::coded(
                31394,
                format!(
                    "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional projection may only be used at the end, for example: a.b.$. If the query previously used a form like a.b.$.d, remove the parts following the '$' and the results will be equivalent. Path: {path}"
                ),
            ));
        }
        match value {
            Bson::Document(document) if document.is_empty() => Err(Failure::coded(
                51270,
                "An empty sub-projection is not a valid value. Found empty object at path",
            )),
            Bson::Document(document) => match document.iter().next() {
                Some((operator, argument)) if operator.starts_with('$') => {
                    if document.len() > 1 {
                        return Err(Failure::coded(
                            15983,
                            format!(
                                "an object representing an expression must have exactly one field: {}",
                                shown(value)
                            ),
                        ));
                    }
                    self.operator(path, operator, argument, value)
                }
                _ => self.document(path, document),
            },
            Bson::Boolean(flag) => self.choose(path, *flag),
            value => match Number::of_bson(value) {
                Some(number) => self.choose(path, !number.is_zero()),
                None => self.compute(path, value),
            },
        }
    }

    fn choose(&mut self, path: &str, include: bool) -> Result<()> {
        if path == "_id" {
            self.id = Some(include);
            return Ok(());
        }
        self.set_mode(path, if include { Mode::Include } else { Mode::Exclude })?;
        let child = if include { Child::Keep } else { Child::Drop };
        self.wishes.push(Wish { path: path.to_owned(), child });
        Ok(())
    }

    fn set_mode(&mut self, path: &str, mode: Mode) -> Result<()> {
        match (self.mode, mode) {
            (Some(Mode::Include), Mode::Exclude) => Err(Failure::coded(
                31254,
                format!("Cannot do exclusion on field {path} in inclusion projection"),
            )),
            (Some(Mode::Exclude), Mode::Include) => Err(Failure::coded(
                31253,
                format!("Cannot do inclusion on field {path} in exclusion projection"),
            )),
            _ => {
                self.mode = Some(mode);
                Ok(())
            }
        }
    }

    fn compute(&mut self, path: &str, value: &Bson) -> Result<()> {
        if self.mode == Some(Mode::Exclude) {
            return Err(Failure::coded(
                31252,
                "Cannot use an expression in an exclusion projection".to_owned(),
            ));
        }
        self.mode = Some(Mode::Include);
        let child = Child::Computed(Expression::parse(value, self.vars)?);
        self.wishes.push(Wish { path: path.to_owned(), child });
        Ok(())
    }

    fn operator(
        &mut self,
        path: &str,
        operator: &str,
        argument: &Bson,
        whole: &Bson,
    ) -> Result<()> {
        match operator {
            "$slice" if self.find && !is_expression_slice(argument) => {
                let child = slice(argument)?;
                self.wishes.push(Wish { path: path.to_owned(), child });
                Ok(())
            }
            "$elemMatch" if self.find => {
                let Bson::Document(condition) = argument else {
                    return Err(Failure::coded(
                        31274,
                        format!(
                            "elemMatch: Invalid argument, object required, but got {}",
                            type_name(argument.element_type())
                        ),
                    ));
                };
                if path.contains('.') {
                    return Err(Failure::coded(
                        31275,
                        "Cannot use $elemMatch projection on a nested field",
                    ));
                }
                if self.mode == Some(Mode::Exclude) {
                    return Err(Failure::coded(
                        31252,
                        "Cannot use an expression in an exclusion projection",
                    ));
                }
                self.mode = Some(Mode::Include);
                let mut spec = RawDocumentBuf::new();
                let mut inner = RawDocumentBuf::new();
                inner.append(field_name("$elemMatch")?, raw(Bson::Document(condition.clone()))?);
                spec.append(field_name(path)?, inner);
                let child = Child::ElementMatch(Filter::parse(&spec, self.vars)?);
                self.wishes.push(Wish { path: path.to_owned(), child });
                Ok(())
            }
            "$elemMatch" => Err(Failure::coded(
                31395,
                "positional operators and the $elemMatch operator are not allowed in this context",
            )),
            _ => self.compute(path, whole),
        }
    }

    fn positional(&mut self, parent: &str, value: &Bson) -> Result<()> {
        if !self.find {
            return Err(Failure::coded(
                31324,
                "Cannot use positional projection in aggregation projection",
            ));
        }
        if !crate::language::expression::truth(value) {
            return Err(Failure::coded(
                31395,
                "positional projection cannot be used with exclusion",
            ));
        }
        if self.positional {
            return Err(Failure::coded(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        self.set_mode(parent, Mode::Include)?;
        self.positional = true;
        self.wishes.push(Wish { path: parent.to_owned(), child: Child::Positional });
        Ok(())
    }

    fn tree(self) -> Result<Tree> {
        let include = match (self.mode, self.id) {
            (Some(mode), _) => mode == Mode::Include,
            (None, Some(true)) => self.wishes.is_empty(),
            (None, _) => false,
        };
        let mut tree = Tree { keep_rest: !include, ..Tree::default() };
        let id = self.id.unwrap_or(true);
        let id_wished =
            self.wishes.iter().any(|wish| wish.path == "_id" || wish.path.starts_with("_id."));
        if include && id && !id_wished {
            insert(&mut tree, "_id", "_id", Child::Keep)?;
        } else if !id {
            insert(&mut tree, "_id", "_id", Child::Drop)?;
        }
        for wish in self.wishes {
            insert(&mut tree, &wish.path, &wish.path, wish.child)?;
        }
        Ok(tree)
    }
}

/// `[array, …]` is the expression, `n` and `[skip, limit]` the projection.
fn is_expression_slice(argument: &Bson) -> bool {
    match argument {
        Bson::Array(items) => items.first().is_some_and(|first| Number::of_bson(first).is_none()),
        other => Number::of_bson(other).is_none(),
    }
}

fn slice(argument: &Bson) -> Result<Child> {
    let whole = |value: &Bson| {
        Number::of_bson(value)
            .map(|number| number.to_i64_clamped().clamp(-i64::from(i32::MAX), i64::from(i32::MAX)))
            .ok_or_else(|| {
                Failure::coded(28725, format!("Invalid $slice syntax. The given syntax {{ $slice: {} }} did not match the find() syntax because :: Location31273: $slice only supports numbers and [x, y] arrays", shown(argument)))
            })
    };
    match argument {
        Bson::Array(items) => match &items[..] {
            [skip, limit] => {
                let (skip, limit) = (whole(skip)?, whole(limit)?);
                if limit <= 0 {
                    return Err(Failure::coded(
                        28724,
                        format!(
                            "Invalid $slice syntax. The given syntax {{ $slice: {} }} did not match the find() syntax because :: Location31272: $slice limit must be positive",
                            shown(argument)
                        ),
                    ));
                }
                Ok(Child::Slice { skip: Some(skip), limit })
            }
            _ => {
                Err(Failure::coded(28667, "$slice array argument should be of form [skip, limit]"))
            }
        },
        other => Ok(Child::Slice { skip: None, limit: whole(other)? }),
    }
}

/// Puts a child at a path; two paths must not be in each other's way.
fn insert(tree: &mut Tree, path: &str, whole: &str, child: Child) -> Result<()> {
    let computes = matches!(child, Child::Computed(_));
    tree.computes |= computes;
    let Some((first, rest)) = path.split_once('.') else {
        if path.is_empty() {
            return Err(Failure::coded(15998, "FieldPath field names may not be empty strings."));
        }
        if tree.child(path).is_some() {
            return Err(Failure::coded(31250, format!("Path collision at {whole}")));
        }
        tree.children.push((path.to_owned(), child));
        return Ok(());
    };
    if first.is_empty() {
        return Err(Failure::coded(15998, "FieldPath field names may not be empty strings."));
    }
    if tree.child(first).is_none() {
        let inner = Tree { keep_rest: tree.keep_rest, ..Tree::default() };
        tree.children.push((first.to_owned(), Child::Inner(inner)));
    }
    match tree.children.iter_mut().find(|(name, _)| name == first) {
        Some((_, Child::Inner(inner))) => insert(inner, rest, whole, child),
        _ => Err(Failure::coded(
            31249,
            format!("Path collision at {whole} remaining portion {rest}"),
        )),
    }
}
