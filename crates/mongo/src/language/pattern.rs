//! Regular expressions with MongoDB's options, over a crate that knows PCRE's look-around and back-references.

use fancy_regex::Regex;

use super::failure::{Failure, Result};

/// A compiled pattern and how it was written.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// What was asked for.
    pub source: String,
    /// The letters `imsx`, as given.
    pub options: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern; `operator` is who asks, for the message.
    pub fn compile(source: &str, options: &str, operator: &str) -> Result<Self> {
        if source.contains('\0') {
            return Err(Failure::bad_value(
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        let mut flags = String::new();
        for option in options.chars() {
            match option {
                'i' | 'm' | 's' | 'x' => flags.push(option),
                'u' => {}
                _ => {
                    return Err(Failure::coded(
                        51108,
                        format!("{operator} invalid flag in regex options: {options}"),
                    ));
                }
            }
        }
        let bare = source.strip_prefix("(*UTF8)").unwrap_or(source);
        let text = if flags.is_empty() { bare.to_owned() } else { format!("(?{flags}){bare}") };
        let regex = Regex::new(&text).map_err(|error| {
            Failure::coded(51091, format!("Regular expression is invalid: {error}"))
        })?;
        Ok(Self { source: source.to_owned(), options: options.to_owned(), regex })
    }

    /// Whether it is found in a text. A pattern that would need too long is refused rather than awaited.
    pub fn is_match(&self, text: &str) -> Result<bool> {
        self.regex.is_match(text).map_err(too_long)
    }

    /// The first match from a place on: where, and the groups.
    pub fn find_at(&self, text: &str, from: usize) -> Result<Option<Match>> {
        let found = self.regex.captures_from_pos(text, from).map_err(too_long)?;
        Ok(found.and_then(|captures| {
            let whole = captures.get(0)?;
            let groups = (1..captures.len())
                .map(|at| captures.get(at).map(|group| group.as_str().to_owned()))
                .collect();
            Some(Match { start: whole.start(), end: whole.end(), groups })
        }))
    }

    /// The text that every match begins with, where the pattern says so plainly (`^abc`).
    pub fn prefix(&self) -> Option<&str> {
        let rest = self.source.strip_prefix('^').filter(|_| self.options.is_empty())?;
        if self.source.contains('|') {
            return None;
        }
        let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '/' | ':' | ',');
        let mut end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
        // A quantifier makes the letter before it optional.
        if rest[end..].starts_with(['*', '?', '{']) {
            end -= rest[..end].chars().next_back().map_or(0, char::len_utf8);
        }
        Some(&rest[..end]).filter(|prefix| !prefix.is_empty())
    }
}

/// Where a pattern was found.
#[derive(Clone, Debug)]
pub struct Match {
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// What the groups hold.
    pub groups: Vec<Option<String>>,
}

fn too_long(error: fancy_regex::Error) -> Failure {
    Failure::coded(51156, format!("Error occurred while executing the regular expression: {error}"))
}
