//! One item while a query looks at it: its bytes, and where in them the named fields are.
//!
//! The query knows from the start which fields of the item it will ever name. The first question
//! about one of them reads the item only as far as that field, noting the others on the way; later
//! questions go on from there. So an item is passed over at most once, and often not to its end.

use crate::error::{Error, Result};
use crate::lazy;

/// An item's JSON text, read in place.
#[derive(Debug)]
pub struct Item<'a> {
    text: &'a [u8],
    names: &'a [String],
    found: Vec<Option<&'a [u8]>>,
    /// How far the item has been read; its length when there is no more to find.
    at: usize,
}

impl<'a> Item<'a> {
    /// The item with this text, of which the query names these fields.
    pub fn new(text: &'a [u8], names: &'a [String]) -> Self {
        let at = if text.first() == Some(&b'{') { 1 } else { text.len() };
        Self { text, names, found: vec![None; names.len()], at }
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
        if let Some(number) = self.names.iter().position(|wanted| lazy::is_named(name, wanted)) {
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
        let names = ["c".to_owned(), "a".to_owned(), "none".to_owned()];
        let mut item = Item::new(br#"{"a":1,"b":[2],"c":"x"}"#, &names);
        assert_eq!(item.field(0).unwrap(), Some(&b"\"x\""[..]));
        assert_eq!(item.field(1).unwrap(), Some(&b"1"[..]));
        assert_eq!(item.field(2).unwrap(), None);
        assert_eq!(Item::new(b"{}", &names).field(0).unwrap(), None);
        assert!(Item::new(b"{\"x\":1", &names).field(0).is_err());
        assert!(Item::new(b"{x}", &names).field(0).is_err());
    }
}
