//! Partition keys: their definition, their values, and the hash that places them.
//!
//! The hash ("effective partition key") follows the wire document, section 7.2, to the byte: SDKs compute it too.

use serde_json::Value;

use crate::path::Path;

/// How a container spreads its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    /// One path, or up to three of a hierarchical key.
    pub paths: Vec<Path>,
    /// How values are hashed.
    pub kind: Kind,
}

/// The hash of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The old hash: 32 bits, strings cut to 100 characters.
    V1,
    /// The current one: 128 bits over all components.
    V2,
    /// Hierarchical: each component hashed apart.
    MultiHash,
}

impl PartitionKeyDefinition {
    /// The key of an item, read from its body. An object or array counts as undefined, as clients take it.
    pub fn extract(&self, item: &Value) -> PartitionKey {
        let component =
            |path: &Path| path.find(item).and_then(|value| Component::from_json(value).ok());
        PartitionKey(
            self.paths.iter().map(|path| component(path).unwrap_or(Component::Undefined)).collect(),
        )
    }

    /// Where a key (or the prefix of a hierarchical one) lies, as upper-case hex.
    pub fn hash(&self, key: &PartitionKey) -> String {
        to_hex(&self.hash_bytes(key))
    }

    /// Where a key (or the prefix of a hierarchical one) lies. Bytes are in the order of their hex.
    pub fn hash_bytes(&self, key: &PartitionKey) -> Vec<u8> {
        if key.0.is_empty() {
            return Vec::new();
        }
        match self.kind {
            Kind::V1 => hash_v1(&key.0),
            Kind::V2 => hash_v2(&key.0).to_vec(),
            Kind::MultiHash => key
                .0
                .iter()
                .flat_map(|component| hash_v2(std::slice::from_ref(component)))
                .collect(),
        }
    }

    /// The hash at which the `part`th of so many equal parts of all hashes begins; the first begins at nothing.
    pub fn boundary(&self, part: u32, parts: u32) -> Vec<u8> {
        if part == 0 {
            return Vec::new();
        }
        match self.kind {
            Kind::V1 => prefix_v1(u32::MAX / parts * part),
            Kind::V2 | Kind::MultiHash => {
                (HASH_MAX_V2 / u128::from(parts) * u128::from(part)).to_be_bytes().to_vec()
            }
        }
    }

    /// A hash about halfway between two, neither of which it is; `None` where there is no room.
    pub fn middle(&self, min: &[u8], max: &[u8]) -> Option<Vec<u8>> {
        let middle = match self.kind {
            Kind::V1 => {
                let (low, high) = (first_v1(min), first_v1(max));
                prefix_v1(u32::try_from(low + (high - low) / 2).ok()?)
            }
            Kind::V2 | Kind::MultiHash => {
                let number = |bytes: &[u8]| {
                    let mut padded = [0; 16];
                    let length = bytes.len().min(16);
                    padded[..length].copy_from_slice(&bytes[..length]);
                    u128::from_be_bytes(padded).min(HASH_MAX_V2 + 1)
                };
                let (low, high) = (number(min), number(max));
                (low + high.saturating_sub(low) / 2).to_be_bytes().to_vec()
            }
        };
        (min < &middle[..] && &middle[..] < max).then_some(middle)
    }
}

/// The largest hash of version 2: the two highest bits are never set.
const HASH_MAX_V2: u128 = u128::MAX >> 2;

/// What the hashes of version 1 begin with whose number is this.
fn prefix_v1(hash: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    Component::Number(hash.into()).push_ordered(&mut bytes);
    bytes
}

/// The first number whose hashes of version 1 are at `bound` or beyond.
fn first_v1(bound: &[u8]) -> u64 {
    let (mut low, mut high) = (0, 1 << 32);
    while low < high {
        let middle = low + (high - low) / 2;
        match prefix_v1(middle as u32)[..] < *bound {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// Bytes as upper-case hex.
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02X}").expect("writing to a string cannot fail");
        text
    })
}

/// The bytes of such a text, in upper or lower case.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// A partition key value: as many components as the definition has paths, or fewer for a prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionKey(pub Vec<Component>);

impl PartitionKey {
    /// Reads the header form: a JSON array of the components.
    pub fn parse(header: &str) -> Result<Self, BadKey> {
        if let Some(text) = plain_string(header) {
            return Ok(Self(vec![Component::String(text.to_owned())]));
        }
        let value: Value =
            serde_json::from_str(header).map_err(|_| BadKey::Unreadable(header.to_owned()))?;
        let Value::Array(values) = value else { return Err(BadKey::Unreadable(header.to_owned())) };
        if values.is_empty() {
            // What clients send where there is no key: in containers that were made without one.
            return Ok(Self(vec![Component::Undefined]));
        }
        let components = values.iter().map(Component::from_header).collect::<Result<_, _>>();
        Ok(Self(components.map_err(BadKey::Component)?))
    }
}

impl PartitionKey {
    /// A key of these values, if each can be part of one.
    pub fn from_values(values: &[Value]) -> Option<Self> {
        values.iter().map(|value| Component::from_json(value).ok()).collect::<Option<_>>().map(Self)
    }
}

/// The string of `["text"]`, the form that almost every request has, if nothing in it is escaped.
fn plain_string(header: &str) -> Option<&str> {
    let text = header.strip_prefix("[\"")?.strip_suffix("\"]")?;
    text.bytes().all(|byte| !matches!(byte, b'"' | b'\\' | 0..=31)).then_some(text)
}

/// One component of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Component {
    /// The item does not have the property.
    Undefined,
    /// JSON null.
    Null,
    /// A boolean.
    Bool(bool),
    /// Any number, as a double.
    Number(f64),
    /// A string.
    String(String),
}

/// The JSON text of a value that cannot be part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadComponent(pub String);

/// Why a partition key header cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// Not a JSON array.
    Unreadable(String),
    /// A component of an unsupported type.
    Component(BadComponent),
}

impl Component {
    fn from_json(value: &Value) -> Result<Self, BadComponent> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            // Adding zero folds -0 into 0, which are one key.
            Value::Number(number) => Self::Number(number.as_f64().unwrap_or_default() + 0.0),
            Value::String(text) => Self::String(text.clone()),
            Value::Array(_) | Value::Object(_) => return Err(BadComponent(value.to_string())),
        })
    }

    /// In the header `{}` stands for undefined.
    fn from_header(value: &Value) -> Result<Self, BadComponent> {
        match value.as_object() {
            Some(object) if object.is_empty() => Ok(Self::Undefined),
            _ => Self::from_json(value),
        }
    }

    /// The component as JSON; undefined is `{}`, as in the header.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Undefined => Value::Object(serde_json::Map::new()),
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::from(*number),
            Self::String(text) => Value::String(text.clone()),
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Undefined => 0x00,
            Self::Null => 0x01,
            Self::Bool(false) => 0x02,
            Self::Bool(true) => 0x03,
            Self::Number(_) => 0x05,
            Self::String(_) => 0x08,
        }
    }

    /// Appends the bytes that are hashed; V1 and V2 end strings differently.
    fn push_hashed(&self, string_end: u8, bytes: &mut Vec<u8>) {
        bytes.push(self.tag());
        match self {
            Self::Number(number) => bytes.extend(number.to_le_bytes()),
            Self::String(text) => {
                bytes.extend(text.as_bytes());
                bytes.push(string_end);
            }
            _ => {}
        }
    }

    /// Appends the order-preserving form that V1 keys end with.
    fn push_ordered(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.tag());
        match self {
            Self::Number(number) => push_ordered_number(*number, bytes),
            Self::String(text) => {
                let cut = &text.as_bytes()[..text.len().min(STRING_BYTES_MAX_V1 + 1)];
                bytes.extend(cut.iter().map(|byte| byte.wrapping_add(1)));
                if text.len() <= STRING_BYTES_MAX_V1 {
                    bytes.push(0);
                }
            }
            _ => {}
        }
    }

    fn cut_to_v1(&self) -> Self {
        match self {
            Self::String(text) => Self::String(text.chars().take(STRING_BYTES_MAX_V1).collect()),
            other => other.clone(),
        }
    }
}

/// How much of a string the old hash looks at.
const STRING_BYTES_MAX_V1: usize = 100;

fn hash_v1(components: &[Component]) -> Vec<u8> {
    let cut: Vec<Component> = components.iter().map(Component::cut_to_v1).collect();
    let mut hashed = Vec::new();
    cut.iter().for_each(|component| component.push_hashed(0x00, &mut hashed));
    let mut bytes = Vec::new();
    Component::Number(murmur3_32(&hashed).into()).push_ordered(&mut bytes);
    cut.iter().for_each(|component| component.push_ordered(&mut bytes));
    bytes
}

fn hash_v2(components: &[Component]) -> [u8; 16] {
    let mut hashed = Vec::new();
    components.iter().for_each(|component| component.push_hashed(0xFF, &mut hashed));
    let (low, high) = murmur3_128(&hashed);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    bytes[0] &= 0x3F;
    bytes
}

/// The top byte, then groups of seven bits with a low bit that says "more".
fn push_ordered_number(number: f64, bytes: &mut Vec<u8>) {
    let bits = number.to_bits();
    let ordered = if bits >> 63 == 1 { bits.wrapping_neg() } else { bits ^ (1 << 63) };
    bytes.push((ordered >> 56) as u8);
    let mut rest = ordered << 8;
    let mut group = 0;
    let mut first = true;
    while first || rest != 0 {
        if !first {
            bytes.push(group | 1);
        }
        group = (rest >> 56) as u8 & 0xFE;
        rest <<= 7;
        first = false;
    }
    bytes.push(group);
}

fn murmur3_32(data: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |block: u32| block.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let (blocks, tail) = data.as_chunks::<4>();
    let mut hash = 0u32;
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    hash ^= scramble(read_tail(tail) as u32);
    hash ^= data.len() as u32;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

fn murmur3_128(data: &[u8]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let scramble1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let (blocks, tail) = data.as_chunks::<16>();
    let (mut h1, mut h2) = (0u64, 0u64);
    for block in blocks {
        h1 ^= scramble1(read_tail(&block[..8]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= scramble2(read_tail(&block[8..]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    h1 ^= scramble1(read_tail(&tail[..tail.len().min(8)]));
    h2 ^= scramble2(read_tail(&tail[tail.len().min(8)..]));
    h1 ^= data.len() as u64;
    h2 ^= data.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish_64(h1);
    h2 = finish_64(h2);
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

fn finish_64(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

/// Up to eight bytes, little-endian.
fn read_tail(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the service cuts containers of 2 and of 5 partitions.
    #[test]
    fn hashes_are_cut_as_the_service_cuts_them() {
        let of = |kind| PartitionKeyDefinition { paths: Vec::new(), kind };
        let cuts = |kind, parts| {
            (1..parts).map(|part| to_hex(&of(kind).boundary(part, parts))).collect::<Vec<_>>()
        };
        assert_eq!(cuts(Kind::V2, 2), ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]);
        assert_eq!(cuts(Kind::V2, 5)[1], "19999999999999999999999999999998");
        assert_eq!(cuts(Kind::V1, 2), ["05C1DFFFFFFFFC"]);
        assert!(of(Kind::V2).boundary(0, 2).is_empty());
    }

    #[test]
    fn a_range_is_halved_until_there_is_no_room() {
        for kind in [Kind::V1, Kind::V2, Kind::MultiHash] {
            let definition = PartitionKeyDefinition { paths: Vec::new(), kind };
            let (mut min, mut halvings) = (Vec::new(), 0);
            while let Some(middle) = definition.middle(&min, &[0xFF]) {
                assert!(min < middle, "{kind:?}");
                min = middle;
                halvings += 1;
            }
            assert!(halvings > 30, "{kind:?}: {halvings}");
        }
        let half =
            PartitionKeyDefinition { paths: Vec::new(), kind: Kind::V2 }.middle(&[], &[0xFF]);
        assert_eq!(to_hex(&half.unwrap()), "20000000000000000000000000000000");
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(from_hex("05C1ff"), Some(vec![0x05, 0xC1, 0xFF]));
        assert_eq!(to_hex(&[0x05, 0xC1, 0xFF]), "05C1FF");
        assert_eq!((from_hex("5"), from_hex("0x"), from_hex("é")), (None, None, None));
    }

    fn hash(kind: Kind, header: &str) -> String {
        let paths = vec![Path::parse("/pk").unwrap()];
        PartitionKeyDefinition { paths, kind }.hash(&PartitionKey::parse(header).unwrap())
    }

    /// The vectors of the wire document, section 7.2.
    #[test]
    fn hashes_agree_with_the_wire_document() {
        for (value, v1, v2) in [
            (r#"[""]"#, "05C1CF33970FF80800", "32E9366E637A71B4E710384B2F4970A0"),
            (
                r#"["partitionKey"]"#,
                "05C1E1B3D9CD2608716273756A756A706F4C667A00",
                "013AEFCF77FA271571CF665A58C933F1",
            ),
            (
                r#"["redmond"]"#,
                "05C1EFE313830C087366656E706F6500",
                "22E342F38A486A088463DFF7838A5963",
            ),
            ("[null]", "05C1ED45D7475601", "378867E4430E67857ACE5C908374FE16"),
            ("[{}]", "05C1D529E345DC00", "11622DAA78F835834610ABE56EFF5CB5"),
            ("[true]", "05C1D7C5A903D803", "0E711127C5B5A8E4726AC6DD306A3E59"),
            ("[false]", "05C1DB857D857C02", "2FE1BE91E90A3439635E0E9E37361EF2"),
            ("[0]", "05C1BF6DA11560058000", "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"),
            ("[5]", "05C1D9C1C5517C05C014", "19C08621B135968252FB34B4CF66F811"),
            ("[-1]", "05C1D1A5BDDF9C054010", "19938E7A936C1C5B9E3AE842BBC16839"),
        ] {
            assert_eq!(hash(Kind::V1, value), v1, "V1 of {value}");
            assert_eq!(hash(Kind::V2, value), v2, "V2 of {value}");
        }
        let multi = "3A5381E1114EB8D3FCC90795045B49B7195644569A78B1E22D200348AF9416CE";
        assert_eq!(hash(Kind::MultiHash, r#"["a","b"]"#), multi);
        assert_eq!(hash(Kind::MultiHash, r#"["a"]"#), multi[..32]);
        assert_eq!(
            hash(Kind::V2, "[]"),
            hash(Kind::V2, "[{}]"),
            "no key, as older clients write it"
        );
    }

    #[test]
    fn undefined_null_and_absent_are_told_apart() {
        let definition =
            PartitionKeyDefinition { paths: vec![Path::parse("/a/b").unwrap()], kind: Kind::V2 };
        let key = |item: &str| definition.extract(&serde_json::from_str(item).unwrap());
        assert_eq!(key("{}").0, [Component::Undefined]);
        assert_eq!(key(r#"{"a":{"b":null}}"#).0, [Component::Null]);
        assert_eq!(key(r#"{"a":{"b":-0.0}}"#).0, [Component::Number(0.0)]);
        assert_eq!(key(r#"{"a":{"b":[1]}}"#).0, [Component::Undefined]);
    }
}
