//! How resources are named on the wire: `_rid`, `_self`, `_etag`, session tokens.
//!
//! A rid is standard base64 with padding, with `/` written as `-`. Databases have 4 bytes, containers 8 with the top bit of
//! byte 4 set, items 16: the container's, then the partition and ordinal as a little-endian `u64`, in the order of creation.

use std::fmt::Write;

use crate::clock::Timestamp;

/// The number of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseRid(pub u32);

impl DatabaseRid {
    /// Reads a wire rid; `None` if this is not one, and so must be a name.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 4] = bytes_of(text)?.try_into().ok()?;
        Some(Self(u32::from_be_bytes(bytes)))
    }

    fn bytes(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

impl std::fmt::Display for DatabaseRid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        encode(&self.bytes(), f)
    }
}

/// The numbers of a container and of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerRid {
    /// The database's.
    pub database: DatabaseRid,
    /// The container's own, unique in the whole account; below 2^31.
    pub number: u32,
}

impl ContainerRid {
    /// Reads a wire rid.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = bytes_of(text)?;
        if bytes.len() != 8 || bytes[4] & 0x80 == 0 {
            return None;
        }
        let (database, number) = bytes.split_at(4);
        Some(Self {
            database: DatabaseRid(u32::from_be_bytes(database.try_into().ok()?)),
            number: u32::from_be_bytes(number.try_into().ok()?) & 0x7FFF_FFFF,
        })
    }

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.database.bytes());
        bytes[4..].copy_from_slice(&(self.number | 0x8000_0000).to_be_bytes());
        bytes
    }
}

impl std::fmt::Display for ContainerRid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        encode(&self.bytes(), f)
    }
}

/// What the last eight bytes of a child of a container name: the top nibble of a little-endian `u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// An item.
    Item = 0,
    /// A partition key range.
    PartitionKeyRange = 5,
    /// A user-defined function.
    Udf = 6,
    /// A trigger.
    Trigger = 7,
    /// A stored procedure.
    Procedure = 8,
}

/// The rid of something that lives in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildRid {
    /// The container.
    pub container: ContainerRid,
    /// What it is.
    pub kind: ChildKind,
    /// Its number among its kind; below 2^60.
    pub number: u64,
}

/// Bits of an item's number that hold its ordinal; the partition stands above them.
const ORDINAL_BITS: u32 = 40;

impl ChildRid {
    /// The rid of item number `ordinal` of a partition.
    pub fn item(container: ContainerRid, partition: u32, ordinal: u64) -> Self {
        Self { container, kind: ChildKind::Item, number: Self::number(partition, ordinal) }
    }

    /// The number that an item's rid ends with: rows that are otherwise equal are in its order.
    pub fn number(partition: u32, ordinal: u64) -> u64 {
        (u64::from(partition) << ORDINAL_BITS) | ordinal
    }

    /// The ordinal in a number that [`ChildRid::number`] has made.
    pub fn ordinal(number: u64) -> u64 {
        number & ((1 << ORDINAL_BITS) - 1)
    }

    /// Reads the rid of an item: its container, partition and ordinal.
    pub fn parse_item(text: &str) -> Option<(ContainerRid, u32, u64)> {
        let bytes = bytes_of(text)?;
        if bytes.len() != 16 {
            return None;
        }
        let container = ContainerRid::parse(text_of(&bytes[..8]).as_str())?;
        let number = u64::from_le_bytes(bytes[8..].try_into().ok()?);
        if number >> 60 != 0 {
            return None;
        }
        Some((container, (number >> ORDINAL_BITS) as u32, number & ((1 << ORDINAL_BITS) - 1)))
    }

    /// Appends the rid's text.
    pub fn push_to(self, out: &mut Vec<u8>) {
        self.bytes().chunks(3).for_each(|chunk| out.extend_from_slice(&quartet(chunk)));
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.container.bytes());
        bytes[8..].copy_from_slice(&(self.number | ((self.kind as u64) << 60)).to_le_bytes());
        bytes
    }
}

impl std::fmt::Display for ChildRid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        encode(&self.bytes(), f)
    }
}

/// The rid of something that lives in a database beside its containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnderDatabase {
    /// A user: eight bytes, the top bit of byte 4 clear.
    User {
        /// The database.
        database: DatabaseRid,
        /// The user's number; below 2^31.
        number: u32,
    },
    /// A permission: its user's, then eight bytes.
    Permission {
        /// The database.
        database: DatabaseRid,
        /// The user's number.
        user: u32,
        /// The permission's number.
        number: u32,
    },
    /// A client encryption key: sixteen bytes with 2 as the last word.
    EncryptionKey {
        /// The database.
        database: DatabaseRid,
        /// The key's number.
        number: u32,
    },
}

impl UnderDatabase {
    /// Reads the rid of a permission: its database, its user's number and its own.
    pub fn parse_permission(text: &str) -> Option<(DatabaseRid, u32, u32)> {
        let bytes: [u8; 16] = bytes_of(text)?.try_into().ok()?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let database = DatabaseRid(u32::from_be_bytes(word(0)));
        (word(12) == [0; 4])
            .then(|| (database, u32::from_be_bytes(word(4)), u32::from_le_bytes(word(8))))
    }
}

impl std::fmt::Display for UnderDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let database = |database: &DatabaseRid| database.bytes();
        match self {
            Self::User { database: owner, number } => {
                encode(&[database(owner), number.to_be_bytes()].concat(), f)
            }
            Self::Permission { database: owner, user, number } => {
                let parts = [database(owner), user.to_be_bytes(), number.to_le_bytes(), [0; 4]];
                encode(&parts.concat(), f)
            }
            Self::EncryptionKey { database: owner, number } => {
                let parts = [database(owner), [0; 4], number.to_le_bytes(), 2u32.to_le_bytes()];
                encode(&parts.concat(), f)
            }
        }
    }
}

/// The rid of an offer: three bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferRid(pub u32);

impl OfferRid {
    /// Reads a wire rid.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = bytes_of(text).filter(|bytes| bytes.len() == 3)?;
        Some(Self(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0])))
    }
}

impl std::fmt::Display for OfferRid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        encode(&self.0.to_le_bytes()[..3], f)
    }
}

/// The version of a resource: changes with every write, and only then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Etag {
    /// The change that wrote it.
    pub lsn: u64,
    /// Which write of that change.
    pub seq: u16,
    /// When.
    pub ts: Timestamp,
}

impl Etag {
    /// The length of the text, quotes included.
    pub const LENGTH: usize = 38;

    /// The text with the quotes that belong to it: `"002a0000-0000-0000-0000-61b1a4a40000"`.
    pub fn text(&self) -> [u8; Self::LENGTH] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (lsn, ts) = (self.lsn, self.ts.0 as u32);
        let groups = [
            (u64::from((lsn as u32).rotate_left(16)), 8),
            (u64::from((lsn >> 32) as u16), 4),
            (lsn >> 48, 4),
            (u64::from(self.seq), 4),
            (u64::from(ts) << 16, 12),
        ];
        let mut text = [b'-'; Self::LENGTH];
        text[0] = b'"';
        text[Self::LENGTH - 1] = b'"';
        let mut at = 1;
        for (value, digits) in groups {
            for digit in 0..digits {
                text[at + digit] = DIGITS[(value >> (4 * (digits - 1 - digit))) as usize & 15];
            }
            at += digits + 1;
        }
        text
    }
}

impl std::fmt::Display for Etag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).expect("hexadecimal is text"))
    }
}

/// A session token of one partition: `0:-1#42`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionToken {
    /// The partition.
    pub partition: u32,
    /// Its last change.
    pub lsn: u64,
}

impl std::fmt::Display for SessionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:-1#{}", self.partition, self.lsn)
    }
}

impl SessionToken {
    /// Reads the tokens of a header: `0:-1#42`, with regions `0:1#42#3=40`, the legacy `0:42`, or several with commas.
    /// The error is the part that cannot be read.
    pub fn parse_all(header: &str) -> Result<Vec<Self>, String> {
        header
            .split(',')
            .map(|part| Self::parse(part.trim()).ok_or_else(|| part.to_owned()))
            .collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let (partition, rest) = text.split_once(':')?;
        let lsn = match rest.split_once('#') {
            None => rest,
            Some((version, rest)) => {
                version.parse::<i64>().ok()?;
                rest.split('#').next()?
            }
        };
        Some(Self {
            partition: partition.parse().ok()?,
            lsn: lsn.parse::<i64>().ok()?.max(0) as u64,
        })
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

fn encode(bytes: &[u8], out: &mut impl Write) -> std::fmt::Result {
    for chunk in bytes.chunks(3) {
        out.write_str(std::str::from_utf8(&quartet(chunk)).expect("the alphabet is text"))?;
    }
    Ok(())
}

/// One to three bytes as four symbols.
fn quartet(chunk: &[u8]) -> [u8; 4] {
    let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
    let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    std::array::from_fn(|place| match place <= chunk.len() {
        true => ALPHABET[(bits >> (18 - 6 * place)) as usize & 63],
        false => b'=',
    })
}

/// Bytes as text in the alphabet of rids, which needs no escaping in headers and paths.
pub fn text_of(bytes: &[u8]) -> String {
    let mut text = String::new();
    encode(bytes, &mut text).expect("writing to a string cannot fail");
    text
}

/// The bytes of such a text.
pub fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let symbols = text.trim_end_matches('=');
    if text.is_empty() || !text.len().is_multiple_of(4) || text.len() - symbols.len() > 2 {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(16), 0u32, 0);
    for symbol in symbols.bytes() {
        let value = ALPHABET.iter().position(|&known| known == symbol)?;
        bits = (bits << 6) | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: ContainerRid =
        ContainerRid { database: DatabaseRid(0xD5F22B00), number: 0x59AC4DFE };

    #[test]
    fn rids_have_the_layout_of_the_wire() {
        assert_eq!(CONTAINER.database.to_string(), "1fIrAA==");
        assert_eq!(CONTAINER.to_string(), "1fIrANmsTf4=");
        let item = ChildRid::item(CONTAINER, 3, 7);
        let text = item.to_string();
        assert_eq!(text.len(), 24);
        assert_eq!(ChildRid::parse_item(&text), Some((CONTAINER, 3, 7)));
        assert_eq!(ContainerRid::parse("1fIrANmsTf4="), Some(CONTAINER));
        assert_eq!(DatabaseRid::parse("1fIrAA=="), Some(CONTAINER.database));
        assert_eq!(OfferRid(77).to_string().len(), 4);
        assert_eq!(OfferRid::parse(&OfferRid(77).to_string()), Some(OfferRid(77)));
    }

    #[test]
    fn names_are_not_rids() {
        for name in ["", "db", "my-database", "a/b=", "====", "abc="] {
            assert_eq!(DatabaseRid::parse(name), None, "{name}");
        }
    }

    #[test]
    fn etags_differ_with_every_write() {
        let etag = |lsn, seq, ts| Etag { lsn, seq, ts: Timestamp(ts) }.to_string();
        assert_eq!(etag(42, 0, 1639032996).len(), 38);
        assert_ne!(etag(42, 0, 5), etag(43, 0, 5));
        assert_ne!(etag(42, 0, 5), etag(42, 1, 5));
        assert_ne!(etag(1, 0, 5), etag(1 << 40, 0, 5));
    }

    #[test]
    fn session_tokens_of_every_form_are_read() {
        let lsn = |text| SessionToken::parse_all(text).map(|all| all[0].lsn);
        assert_eq!(lsn("0:-1#42"), Ok(42));
        assert_eq!(lsn("0:1#42#3=40"), Ok(42));
        assert_eq!(lsn("0:42"), Ok(42));
        assert_eq!(SessionToken::parse_all("0:-1#1,1:-1#2").unwrap().len(), 2);
        assert!(lsn("nonsense").is_err());
        assert_eq!(SessionToken { partition: 0, lsn: 42 }.to_string(), "0:-1#42");
    }
}
