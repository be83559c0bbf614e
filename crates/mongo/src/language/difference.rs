//! What an update has changed, as a change stream tells it: fields that have another value now, and fields that are gone.

use bson::{Document, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::failure::Result;

/// `{updatedFields, removedFields, truncatedArrays}`. Embedded documents are compared field by field, and arrays that have not become shorter
/// element by element; a shorter one is told as a whole.
pub fn difference(before: &RawDocument, after: &RawDocument) -> Result<RawDocumentBuf> {
    let (mut updated, mut removed) = (Document::new(), RawArrayBuf::new());
    compare("", before, after, &mut updated, &mut removed)?;
    let updated = RawDocumentBuf::try_from(&updated)?;
    Ok(rawdoc! {"updatedFields": updated, "removedFields": removed, "truncatedArrays": []})
}

fn compare(
    path: &str,
    before: &RawDocument,
    after: &RawDocument,
    updated: &mut Document,
    removed: &mut RawArrayBuf,
) -> Result<()> {
    let inner = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    for element in after.iter() {
        let (name, new) = element?;
        match (before.get(name.as_str())?, new) {
            (Some(old), new) if old == new => {}
            (Some(RawBsonRef::Document(old)), RawBsonRef::Document(new)) => {
                compare(&inner(name.as_str()), old, new, updated, removed)?;
            }
            (Some(RawBsonRef::Array(old)), RawBsonRef::Array(new))
                if old.into_iter().count() <= new.into_iter().count() =>
            {
                let list = inner(name.as_str());
                compare(&list, as_document(old)?, as_document(new)?, updated, removed)?;
            }
            (_, new) => drop(updated.insert(inner(name.as_str()), bson::Bson::try_from(new)?)),
        }
    }
    for element in before.iter() {
        let (name, _) = element?;
        if after.get(name.as_str())?.is_none() {
            removed.push(inner(name.as_str()));
        }
    }
    Ok(())
}

/// An array is stored as a document whose names are positions.
fn as_document(array: &bson::RawArray) -> Result<&RawDocument> {
    Ok(RawDocument::from_bytes(array.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_elements_and_removals_are_told_by_their_paths() {
        let told = |before: RawDocumentBuf, after: RawDocumentBuf| {
            let told = Document::try_from(difference(&before, &after).unwrap()).unwrap();
            (
                told.get_document("updatedFields").unwrap().clone(),
                told.get_array("removedFields").unwrap().clone(),
            )
        };
        let before = rawdoc! {"_id": 1, "a": 1, "b": {"c": 1, "d": 2}, "e": [1, 2], "f": [1, 2]};
        let after =
            rawdoc! {"_id": 1, "a": 1, "b": {"c": 3}, "e": [1, 5, 6], "f": [1], "g": {"h": 1}};
        let (updated, removed) = told(before.clone(), after);
        assert_eq!(updated, bson::doc! {"b.c": 3, "e.1": 5, "e.2": 6, "f": [1], "g": {"h": 1}});
        assert_eq!(removed, ["b.d".into()]);
        let (updated, removed) = told(before, rawdoc! {"_id": 1, "a": [1], "b": 1});
        assert_eq!(updated, bson::doc! {"a": [1], "b": 1});
        assert_eq!(removed, ["e".into(), "f".into()]);
    }
}
