//! How an item is stored: a small header, its name, and its bytes exactly as they go to the client.
//!
//! ```text
//!  0 version (1)   1 own ttl: 0 absent, 1 never, 2 seconds, 3 instant; +128 alone   2 seq (u16)   4 its seconds (u32)
//!  8 lsn (u64)    16 _ts (u64)    24 length of the name (u32)   28 CRC-32C of all the rest (u32)
//! 32 name (partition key, id)     … body
//! ```
//! Numbers are little-endian. Bytes that do not add up are [`storage::Error::Corrupt`], never a guess.

use bytes::Bytes;
use model::clock::Timestamp;
use model::resource::Etag;
use model::ttl::Ttl;

const VERSION: u8 = 1;
const HEADER: usize = 32;
const CRC_AT: usize = 28;
const ALONE: u8 = 128;

/// A decoded record. The name and body are slices of the stored bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The change that wrote it.
    pub lsn: u64,
    /// Which write of that change.
    pub seq: u16,
    /// Whether it is known to be the only one.
    pub alone: bool,
    /// When.
    pub ts: Timestamp,
    /// The item's own ttl.
    pub own_ttl: Ttl,
    /// Partition key and id, as in the `id` family.
    pub name: Bytes,
    /// The item.
    pub body: Bytes,
}

impl Record {
    /// The item's version.
    pub fn etag(&self) -> Etag {
        Etag { lsn: self.lsn, seq: self.seq, ts: self.ts }
    }

    /// The bytes to store. `body` is the record's own body, already at the end of `room`'s worth of bytes.
    pub fn encode(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(HEADER + self.name.len() + self.body.len());
        let (kind, secs) = match self.own_ttl {
            Ttl::Absent => (0, 0),
            Ttl::Never => (1, 0),
            Ttl::Secs(secs) => (2, secs),
            Ttl::At(secs) => (3, secs),
        };
        bytes.extend_from_slice(&[VERSION, if self.alone { kind | ALONE } else { kind }]);
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        bytes.extend_from_slice(&secs.to_le_bytes());
        bytes.extend_from_slice(&self.lsn.to_le_bytes());
        bytes.extend_from_slice(&self.ts.0.to_le_bytes());
        bytes.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.name);
        bytes.extend_from_slice(&self.body);
        let crc = checksum(&bytes);
        bytes[CRC_AT..HEADER].copy_from_slice(&crc.to_le_bytes());
        bytes.into()
    }

    /// Reads stored bytes; `key` is named in the error.
    pub fn decode(key: &[u8], bytes: Bytes) -> storage::Result<Self> {
        Self::read(bytes)
            .map_err(|what| storage::Error::Corrupt(format!("the item at key {key:02x?}: {what}")))
    }

    fn read(bytes: Bytes) -> Result<Self, &'static str> {
        let header = bytes.first_chunk::<HEADER>().ok_or("it is cut short")?;
        if header[0] != VERSION {
            return Err("its version is unknown");
        }
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if u32_at(CRC_AT) != checksum(&bytes) {
            return Err("its checksum is wrong");
        }
        let own_ttl = match (header[1] & !ALONE, u32_at(4)) {
            (0, _) => Ttl::Absent,
            (1, _) => Ttl::Never,
            (2, secs) => Ttl::Secs(secs),
            (3, secs) => Ttl::At(secs),
            _ => return Err("its ttl is unknown"),
        };
        let name_end = HEADER + u32_at(24) as usize;
        if name_end > bytes.len() {
            return Err("its name is cut short");
        }
        Ok(Self {
            lsn: u64_at(8),
            seq: u16::from_le_bytes([header[2], header[3]]),
            alone: header[1] & ALONE != 0,
            ts: Timestamp(u64_at(16)),
            own_ttl,
            name: bytes.slice(HEADER..name_end),
            body: bytes.slice(name_end..),
        })
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CRC_AT]), &bytes[HEADER..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            lsn: 42,
            seq: 3,
            alone: false,
            ts: Timestamp(1_700_000_000),
            own_ttl: Ttl::Secs(20),
            name: Bytes::from_static(b"name"),
            body: Bytes::from_static(b"{}"),
        }
    }

    #[test]
    fn a_record_comes_back() {
        for own_ttl in [Ttl::Absent, Ttl::Never, Ttl::Secs(1), Ttl::At(1)] {
            for alone in [false, true] {
                let record = Record { own_ttl, alone, ..record() };
                assert_eq!(Record::decode(b"k", record.encode()).unwrap(), record);
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let good = record().encode();
        for i in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(Record::decode(b"k", bad.into()).is_err(), "bit {i}");
        }
        for length in 0..good.len() {
            assert!(Record::decode(b"k", good.slice(..length)).is_err(), "length {length}");
        }
    }
}
