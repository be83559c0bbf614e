//! Reads JSON text in place: finds a member or an element by passing over what stands before it.
//!
//! The text is compact (no blanks between tokens) and was checked when it was written, so nothing
//! is checked again. On other bytes the functions end early; they never panic.

use memchr::memchr2;

/// One past the end of the value that starts at `at`; `None` if the text ends before the value does.
pub fn skip(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => skip_string(text, at),
        b'{' | b'[' => skip_container(text, at),
        _ => {
            let rest = &text[at..];
            let end = rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b':'));
            Some(at + end.unwrap_or(rest.len())).filter(|end| *end > at)
        }
    }
}

/// One past the closing quote of the string that starts at `at`.
fn skip_string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// One past the closing bracket of the array or object that starts at `at`.
fn skip_container(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = skip_string(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The members of an object: the name as it is written between its quotes, and the value.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Members<'a> {
    /// Starts at the first member of the object `text`, which begins with `{`.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 1 }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (text, start) = (self.text, self.at);
        if *text.get(start)? != b'"' {
            return None;
        }
        let name_end = skip_string(text, start)?;
        let value_end = skip(text, name_end + 1)?;
        self.at = value_end + 1;
        Some((&text[start + 1..name_end - 1], &text[name_end + 1..value_end]))
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Elements<'a> {
    /// Starts at the first element of the array `text`, which begins with `[`.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 1 }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<Self::Item> {
        if self.text.get(self.at).is_none_or(|b| *b == b']') {
            return None;
        }
        let start = self.at;
        let end = skip(self.text, start)?;
        self.at = end + 1;
        Some(&self.text[start..end])
    }
}

/// Whether a name as written (escapes and all) is this name.
pub fn is_named(written: &[u8], name: &str) -> bool {
    written == name.as_bytes()
        || (written.contains(&b'\\') && unescape(written).is_some_and(|found| found == name))
}

/// The text of a string without its quotes, escapes resolved; `None` if it is not valid.
pub fn unescape(written: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(written.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(written);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_are_found_in_place() {
        let text = br#"{"a":"x\"}","b":{"c":[1,{"d":"]"}]},"e\u0041":-1.5e3,"n":null}"#;
        let members: Vec<_> = Members::new(text)
            .map(|(name, value)| (str::from_utf8(name).unwrap(), str::from_utf8(value).unwrap()))
            .collect();
        assert_eq!(
            members,
            [
                ("a", r#""x\"}""#),
                ("b", r#"{"c":[1,{"d":"]"}]}"#),
                (r"e\u0041", "-1.5e3"),
                ("n", "null")
            ]
        );
        assert!(is_named(br"e\u0041", "eA"));
        let elements: Vec<_> = Elements::new(br#"[1,"a,b",[],{}]"#).collect();
        assert_eq!(elements, [&b"1"[..], br#""a,b""#, b"[]", b"{}"]);
        assert_eq!(Elements::new(b"[]").count() + Members::new(b"{}").count(), 0);
    }

    #[test]
    fn broken_text_ends_early() {
        for text in
            ["{", "{\"a", "{\"a\":", "{\"a\":[", "[\"\\", "[[", "[1,", "{\"a\"}", "{,}", "]"]
        {
            let _ = Members::new(text.as_bytes()).count();
            let _ = Elements::new(text.as_bytes()).count();
            let _ = skip(text.as_bytes(), 0);
        }
    }
}
