//! A look at fjall's journals before fjall opens them.
//!
//! Its replay stops silently at the first batch that it cannot read, and drops all that comes after; if a batch reads well
//! but its checksum is wrong, it does not open at all. Both are wrong for us. Since a group is synced before the next one is
//! written, there are only two cases:
//!
//! - **A torn end**: the last batch of the newest journal is incomplete or has holes, because the machine stopped
//!   while it was written. Nobody was told that it is there, so it is cut off.
//! - **Damage**: a batch that does not read, with whole ones after it, or at the end of a journal that is not
//!   the newest. Opening would lose what was acknowledged, so it is refused, with a text that says where.
//!
//! ```text
//! journal = batch* hole?              start = 01, count u32, seqno u64
//! batch   = start entry{count} end    item  = 02, type u8, compression u8, keyspace u64,
//!                                             key length u16, value length u32, stored length u32, key, value
//! integers: little endian             clear = 04, keyspace u64
//!                                     end   = 03, xxh3 of all entries u64, magic
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Result};

const MAGIC: [u8; 4] = *b"FJL\x03";
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;

/// Cuts a torn end off the newest journal, and refuses damaged ones. `journals` are in their order.
pub(super) fn check(journals: &[impl AsRef<Path>]) -> Result<()> {
    for (i, path) in journals.iter().enumerate() {
        let (path, is_newest) = (path.as_ref(), i + 1 == journals.len());
        let end = find_end(path).map_err(|error| {
            Error::Open(format!("cannot read the journal {}: {error}", path.display()))
        })?;
        match end {
            End::Clean => {}
            End::Torn { at } if is_newest => cut(path, at).map_err(|error| {
                Error::Open(format!("cannot write the journal {}: {error}", path.display()))
            })?,
            End::Torn { at } | End::Damaged { at } => {
                return Err(Error::Open(format!(
                    "the journal {} is damaged at byte {at}, before its end: opening it would lose what comes after. \
                     Restore a copy of the data directory",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

/// What comes after the last whole batch.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Nothing, or zeros.
    Clean,
    /// Something else.
    Torn { at: u64 },
    /// Something else, and then whole batches.
    Damaged { at: u64 },
}

fn find_end(path: &Path) -> io::Result<End> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut at = 0;
    let mut last_seqno = None;
    while let Some((seqno, length)) = read_batch(&mut reader)? {
        at += length;
        last_seqno = Some(seqno);
    }
    reader.seek(SeekFrom::Start(at))?;
    let (is_hole, magics) = search(&mut reader, at)?;
    if is_hole {
        return Ok(End::Clean);
    }
    for magic in magics {
        reader.seek(SeekFrom::Start(magic + MAGIC.len() as u64))?;
        if read_batch(&mut reader)?.is_some_and(|(seqno, _)| Some(seqno) > last_seqno) {
            return Ok(End::Damaged { at });
        }
    }
    Ok(End::Torn { at })
}

fn cut(path: &Path, at: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(at)?;
    file.sync_all()
}

/// Reads one batch, and gives its sequence number and length; none if there is no whole one.
fn read_batch(reader: &mut impl Read) -> io::Result<Option<(u64, u64)>> {
    match try_read_batch(reader) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        other => other,
    }
}

fn try_read_batch(reader: &mut impl Read) -> io::Result<Option<(u64, u64)>> {
    let [tag, header @ ..] = read::<13>(reader)?;
    if tag != START {
        return Ok(None);
    }
    let (count, seqno) = (number(&header[..4]), number(&header[4..]));
    let mut length = 13;
    let mut hash = Xxh3::new();
    for _ in 0..count {
        let Some(entry_bytes) = read_entry(reader, &mut hash)? else { return Ok(None) };
        length += entry_bytes;
    }
    let [tag, end @ ..] = read::<13>(reader)?;
    let is_whole = tag == END && number(&end[..8]) == hash.digest() && end[8..] == MAGIC;
    Ok(is_whole.then_some((seqno, length + 13)))
}

/// Reads one entry of a batch, and gives its length; none if it is not one.
fn read_entry(reader: &mut impl Read, hash: &mut Xxh3) -> io::Result<Option<u64>> {
    let [tag] = read::<1>(reader)?;
    hash.update(&[tag]);
    match tag {
        ITEM => {
            let header = read::<20>(reader)?;
            hash.update(&header);
            let (key_bytes, stored_bytes) = (number(&header[10..12]), number(&header[16..20]));
            hash_bytes(reader, key_bytes + stored_bytes, hash)?;
            Ok(Some(21 + key_bytes + stored_bytes))
        }
        CLEAR => {
            hash.update(&read::<8>(reader)?);
            Ok(Some(9))
        }
        _ => Ok(None),
    }
}

fn hash_bytes(reader: &mut impl Read, mut bytes: u64, hash: &mut Xxh3) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    while bytes > 0 {
        let chunk = bytes.min(buffer.len() as u64);
        let part = &mut buffer[..chunk as usize];
        reader.read_exact(part)?;
        hash.update(part);
        bytes -= chunk;
    }
    Ok(())
}

fn read<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Reads all that is left: whether it is zeros only, and where the magic stands in it. `at` is where the reader is.
fn search(reader: &mut impl Read, mut at: u64) -> io::Result<(bool, Vec<u64>)> {
    // Compared as a whole: a new journal is a hole of 64 MiB.
    static HOLE: [u8; 1 << 16] = [0; 1 << 16];
    let mut is_hole = true;
    let mut magics = Vec::new();
    let mut chunk = vec![0; HOLE.len()];
    // The end of the chunk before, in which the magic may begin.
    let mut kept = 0;
    loop {
        let read = reader.read(&mut chunk[kept..])?;
        if read == 0 {
            return Ok((is_hole, magics));
        }
        let known = &chunk[..kept + read];
        if known != &HOLE[..known.len()] {
            is_hole = false;
            let found = known.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC);
            magics.extend(found.map(|(i, _)| at + i as u64));
        }
        let next_kept = known.len().min(MAGIC.len() - 1);
        at += (known.len() - next_kept) as u64;
        let start = known.len() - next_kept;
        chunk.copy_within(start..start + next_kept, 0);
        kept = next_kept;
    }
}
