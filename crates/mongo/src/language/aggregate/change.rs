//! Stages that change one document at a time: `$project`, `$addFields`, `$unset`, `$replaceRoot`, `$redact`.

use bson::{Bson, Document, RawDocument, RawDocumentBuf};

use super::{Stage, Step, Up};
use crate::language::expression::Expression;
use crate::language::failure::{Failure, Result};
use crate::language::projection::Tree;
use crate::language::value::{owned_document, raw_document, shown, type_name};

/// What happens to a document.
#[derive(Debug)]
pub enum Change {
    Fields(Tree),
    Replace(Expression),
    Redact(Expression),
}

impl Change {
    /// The document after it; none if it is gone.
    pub fn apply(&self, document: &RawDocument) -> Result<Option<RawDocumentBuf>> {
        match self {
            Self::Fields(tree) => tree.apply(document).map(Some),
            Self::Replace(expression) => match expression.value(document)? {
                Bson::Document(next) => raw_document(&next).map(Some),
                other => Err(Failure::coded(
                    40228,
                    format!(
                        "'newRoot' expression must evaluate to an object, but resulting value was: {}. Type of resulting value: '{}'. Input document: {}",
                        if other == Bson::Undefined { "MISSING".to_owned() } else { shown(&other) },
                        if other == Bson::Undefined {
                            "missing"
                        } else {
                            type_name(other.element_type())
                        },
                        shown(&Bson::Document(owned_document(document)?))
                    ),
                )),
            },
            Self::Redact(expression) => {
                let found = redacted(expression, document, owned_document(document)?)?;
                found.map(|found| raw_document(&found)).transpose()
            }
        }
    }
}

/// A level of a document after `$redact`; none if it is pruned.
fn redacted(
    expression: &Expression,
    root: &RawDocument,
    level: Document,
) -> Result<Option<Document>> {
    let verdict = expression.value_with(root, &[("CURRENT", Bson::Document(level.clone()))])?;
    match verdict.as_str() {
        Some("$$KEEP") => Ok(Some(level)),
        Some("$$PRUNE") => Ok(None),
        Some("$$DESCEND") => {
            let mut out = Document::new();
            for (name, value) in level {
                if let Some(value) = redacted_value(expression, root, value)? {
                    out.insert(name, value);
                }
            }
            Ok(Some(out))
        }
        _ => Err(Failure::coded(
            17053,
            "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned ".to_owned()
                + &shown(&verdict),
        )),
    }
}

fn redacted_value(
    expression: &Expression,
    root: &RawDocument,
    value: Bson,
) -> Result<Option<Bson>> {
    Ok(match value {
        Bson::Document(inner) => redacted(expression, root, inner)?.map(Bson::Document),
        Bson::Array(items) => {
            let mut out = Vec::new();
            for item in items {
                out.extend(redacted_value(expression, root, item)?);
            }
            Some(Bson::Array(out))
        }
        other => Some(other),
    })
}

impl Stage for Change {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            match up()? {
                Step::Document(document) => {
                    if let Some(next) = self.apply(&document)? {
                        return Ok(Step::Document(next));
                    }
                }
                other => return Ok(other),
            }
        }
    }
}
