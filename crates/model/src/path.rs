//! Paths into items: `/a/b`, `/"a-b"/c`, and in indexing policies `/a/[]/b/?` and `/a/*`.

use serde_json::Value;

/// A path of property names, as in a partition key definition or a unique key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    segments: Vec<String>,
}

impl Path {
    /// Reads `/a/b` or `/"a b"/c`. The error says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let segments = split(text)?;
        if segments.is_empty() {
            return Err(format!("The path '{text}' names no property."));
        }
        if let Some(bad) = segments.iter().find(|s| matches!(s.as_str(), "*" | "?" | "[]")) {
            return Err(format!("The path '{text}' contains '{bad}', which is not allowed here."));
        }
        Ok(Self { segments })
    }

    /// The property names from the root down.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The value at this path, if the item has one.
    pub fn find<'v>(&self, item: &'v Value) -> Option<&'v Value> {
        self.segments.iter().try_fold(item, |value, name| value.as_object()?.get(name))
    }
}

/// Splits a path at its slashes; quoted segments may contain anything and lose their quotes.
///
/// Wildcards (`*`, `?`, `[]`) come back as they are; a quoted `"*"` is indistinguishable, as in the service.
pub fn split(text: &str) -> Result<Vec<String>, String> {
    let mut rest = text;
    let mut segments = Vec::new();
    while !rest.is_empty() {
        rest = rest.strip_prefix('/').ok_or_else(|| {
            format!("The path '{text}' is invalid: every part must begin with '/'.")
        })?;
        if rest.is_empty() {
            break;
        }
        let (segment, tail) = match rest.strip_prefix(['"', '\'']) {
            Some(quoted) => {
                let quote = &rest[..1];
                quoted.split_once(quote).ok_or_else(|| {
                    format!("The path '{text}' is invalid: a quote is not closed.")
                })?
            }
            None => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        if segment.is_empty() {
            return Err(format!("The path '{text}' is invalid: a part is empty."));
        }
        segments.push(segment.to_owned());
        rest = tail;
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_values() {
        let item = json!({"a": {"b-c": 1}, "d": null});
        let find = |path: &str| Path::parse(path).unwrap().find(&item).cloned();
        assert_eq!(find("/a/\"b-c\""), Some(json!(1)));
        assert_eq!(find("/a/b-c"), Some(json!(1)));
        assert_eq!(find("/d"), Some(json!(null)));
        assert_eq!(find("/d/x"), None);
        assert_eq!(find("/x"), None);
    }

    #[test]
    fn bad_paths_are_refused() {
        for bad in ["", "/", "a", "/a//b", "/\"a", "/a/*", "/a/[]"] {
            assert!(Path::parse(bad).is_err(), "{bad}");
        }
    }
}
