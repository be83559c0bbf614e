//! One item while a query looks at it: its bytes, and where in them the named fields are.
//!
//! The query knows from the start which fields of the item it will ever name. The first question
//! about one of them reads the item only as far as that field, noting the others on the way; later
//! questions go on from there. So an item is passed over at most once, and often not to its end.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::lazy;

/// The fields that a query names, each with a number.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Fields {
    /// The number of a field, which it gets when it is first asked for.
    pub fn add(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.numbers.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    /// The name of a field.
    pub fn name(&self, number: usize) -> Option<&str> {
        self.names.get(number).map(String::as_str)
    }

    /// The number of the field with this name as written in an item, escapes and all.
    fn find(&self, written: &[u8]) -> Option<usize> {
        // Up to a few names, comparing is quicker than hashing.
        const COMPARED_MAX: usize = 16;
        if self.names.len() <= COMPARED_MAX {
            return self.names.iter().position(|name| lazy::is_named(written, name));
        }
        match written.contains(&b'\\') {
            true => self.numbers.get(&lazy::unescape(written)?).copied(),
            false => self.numbers.get(str::from_utf8(written).ok()?).copied(),
        }
    }
}

/// An item's JSON text, read in place.
#[derive(Debug)]
pub struct Item<'a> {
    text: &'a [u8],
    fields: &'a Fields,
    found: Vec<Option<&'a [u8]>>,
    /// How far the item has been read; its length when there is no more to find.
    at: usize,
}

impl<'a> Item<'a> {
    /// The item with this text, of which the query names these fields.
    pub fn new(text: &'a [u8], fields: &'a Fields) -> Self {
        let at = if text.first() == Some(&b'{') { 1 } else { text.len() };
        Self { text, fields, found: vec![None; fields.names.len()], at }
    }

    /// The whole text.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The text of the field with this number, if the item has it.
    pub fn field(&mut self, number: usize) -> Result<Option<&'a [u8]>> {
        while self.found[number].is_none() && self.at < self.text.len() {
            self.advance()?;
        }
        Ok(self.found[number])
    }

    /// Reads one more member.
    fn advance(&mut self) -> Result<()> {
        let start = self.at;
        match self.text.get(start) {
            Some(b'"') => {}
            Some(b'}') if start == 1 => {
                self.at = self.text.len();
                return Ok(());
            }
            _ => return Err(Error::Item),
        }
        let name_end = lazy::skip(self.text, start).ok_or(Error::Item)?;
        let value_end = lazy::skip(self.text, name_end + 1).ok_or(Error::Item)?;
        let name = &self.text[start + 1..name_end - 1];
        if let Some(number) = self.fields.find(name) {
            self.found[number].get_or_insert(&self.text[name_end + 1..value_end]);
        }
        self.at = match self.text.get(value_end) {
            Some(b',') => value_end + 1,
            Some(b'}') => self.text.len(),
            _ => return Err(Error::Item),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_order() {
        let mut names = Fields::default();
        let [c, a, none] = ["c", "a", "none"].map(|name| names.add(name));
        let mut item = Item::new(br#"{"a":1,"b":[2],"c":"x"}"#, &names);
        assert_eq!(item.field(c).unwrap(), Some(&b"\"x\""[..]));
        assert_eq!(item.field(a).unwrap(), Some(&b"1"[..]));
        assert_eq!(item.field(none).unwrap(), None);
        assert_eq!(Item::new(b"{}", &names).field(0).unwrap(), None);
        assert!(Item::new(b"{\"x\":1", &names).field(0).is_err());
        assert!(Item::new(b"{x}", &names).field(0).is_err());
    }

    #[test]
    fn many_fields_are_found_too() {
        let mut names = Fields::default();
        (0..100).for_each(|n| _ = names.add(&format!("f{n}")));
        let mut item = Item::new(br#"{"f7":7,"f\u0039":9}"#, &names);
        assert_eq!(item.field(9).unwrap(), Some(&b"9"[..]));
        assert_eq!(item.field(7).unwrap(), Some(&b"7"[..]));
        assert_eq!(item.field(99).unwrap(), None);
    }
}
