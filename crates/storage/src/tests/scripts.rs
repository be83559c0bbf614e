//! Runs each script of `testscripts` on every engine: the same text must come out.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tempfile::TempDir;

use crate::embedded::{Embedded, Options};
use crate::keycode::prefix_end;
use crate::memory::Memory;
use crate::testing::{self, Forgetful, Mirror, Trace, block_on};
use crate::tests::postgres::open_all as open_postgres;
use crate::{Batch, Direction, Engine, Family, Snapshot};

#[derive(goldenscript::Command)]
enum Command {
    /// Commits a batch: `commit put:item:k=v delete:item:k check:catalog:k=v absent:catalog:k`, in that order.
    Commit(Vec<Step>),
    /// Prints values: `get item a b`.
    Get { family: String, keys: Vec<String> },
    /// Prints pairs: `scan item from=a to=c limit=2 backward=true`, or `scan item prefix=a`.
    Scan {
        family: String,
        #[arg(key)]
        from: Option<String>,
        #[arg(key)]
        to: Option<String>,
        #[arg(key)]
        prefix: Option<String>,
        #[arg(key)]
        limit: Option<usize>,
        #[arg(key, optional)]
        backward: bool,
    },
    /// Keeps a snapshot under a name; a later `get` or `scan` with that name as its prefix reads it.
    Snapshot(String),
    /// Drops the snapshot.
    Release(String),
    /// Puts a value of so many bytes, and says whether it comes back: `big item k 1000000`.
    Big { family: String, key: String, bytes: usize },
    /// Tries a key of so many bytes.
    LongKey { bytes: usize },
    /// Prints the batches since the last time.
    Trace,
    /// Closes the store.
    Close,
    /// Closes the store, drops it and opens it again. On a store in memory, nothing.
    Reopen,
    /// Drops the store without closing it, and opens it again. On a store in memory, nothing.
    Restart,
}

/// A check or write, as `verb:family:key=value`.
struct Step {
    verb: String,
    family: Family,
    key: String,
    value: String,
}

impl std::str::FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ' ');
        let (Some(verb), Some(family), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("'{text}' is not 'verb family key=value'"));
        };
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        Ok(Self {
            verb: verb.into(),
            family: family_named(family)?,
            key: key.into(),
            value: value.into(),
        })
    }
}

fn family_named(name: &str) -> Result<Family, String> {
    let family = Family::ALL.into_iter().find(|f| format!("{f:?}").to_lowercase() == name);
    family.ok_or_else(|| format!("no family {name}"))
}

/// Makes an engine in a directory, anew each time it is called.
type Open = fn(&Path) -> Arc<dyn Engine>;

struct Runner {
    open: Open,
    /// Whether the content outlives the engine.
    durable: bool,
    directory: TempDir,
    engine: Option<Arc<Trace>>,
    snapshots: BTreeMap<String, Box<dyn Snapshot>>,
}

impl Runner {
    fn new(open: Open, durable: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let engine = Some(Arc::new(Trace::new(open(directory.path()))));
        Self { open, durable, directory, engine, snapshots: BTreeMap::new() }
    }

    fn engine(&self) -> &Trace {
        self.engine.as_ref().expect("always there between commands")
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.engine = None;
        self.engine = Some(Arc::new(Trace::new((self.open)(self.directory.path()))));
    }

    fn snapshot(&self, name: Option<&str>) -> Result<Box<dyn Snapshot + '_>, Box<dyn Error>> {
        struct Borrowed<'a>(&'a dyn Snapshot);
        impl Snapshot for Borrowed<'_> {
            fn get(&self, family: Family, key: &[u8]) -> crate::Answer<'_, Option<Bytes>> {
                self.0.get(family, key)
            }
            fn scan(
                &self,
                family: Family,
                range: std::ops::Range<Bytes>,
                direction: Direction,
                limit: usize,
            ) -> crate::Answer<'_, Vec<crate::Pair>> {
                self.0.scan(family, range, direction, limit)
            }
        }
        match name {
            None => Ok(self.engine().snapshot()),
            Some(name) => {
                let snapshot = self.snapshots.get(name).ok_or(format!("no snapshot {name}"))?;
                Ok(Box::new(Borrowed(&**snapshot)))
            }
        }
    }
}

fn batch(steps: &[Step]) -> Result<Batch, Box<dyn Error>> {
    let mut batch = Batch::default();
    for Step { verb, family, key, value } in steps {
        let (key, value) = (key.clone(), value.clone());
        match verb.as_str() {
            "put" => batch.put(*family, key, value),
            "delete" => batch.delete(*family, key),
            "check" => batch.check(*family, key, Some(value.into())),
            "absent" => batch.check(*family, key, None),
            verb => return Err(format!("no verb {verb}").into()),
        }
    }
    Ok(batch)
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(
        &mut self,
        command: &Command,
        context: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let mut output = String::new();
        match command {
            Command::Commit(steps) => block_on(self.engine().commit(batch(steps)?))?,
            Command::Get { family, keys } => {
                let snapshot = self.snapshot(context.prefix.as_deref())?;
                for key in keys {
                    match block_on(snapshot.get(family_named(family)?, key.as_bytes()))? {
                        Some(value) => writeln!(output, "{key} = \"{}\"", value.escape_ascii())?,
                        None => writeln!(output, "{key} is absent")?,
                    }
                }
            }
            Command::Scan { family, from, to, prefix, limit, backward } => {
                let prefix = prefix.clone().unwrap_or_default();
                let start = from.clone().unwrap_or_else(|| prefix.clone());
                let end = to.clone().map_or_else(|| prefix_end(prefix.as_bytes()), Bytes::from);
                let direction = if *backward { Direction::Backward } else { Direction::Forward };
                let snapshot = self.snapshot(context.prefix.as_deref())?;
                let limit = limit.unwrap_or(usize::MAX);
                let pairs = block_on(snapshot.scan(
                    family_named(family)?,
                    start.into()..end,
                    direction,
                    limit,
                ))?;
                for (key, value) in &pairs {
                    writeln!(output, "{} = \"{}\"", key.escape_ascii(), value.escape_ascii())?;
                }
                if pairs.is_empty() {
                    writeln!(output, "nothing")?;
                }
            }
            Command::Snapshot(name) => {
                let snapshot = self.engine().snapshot();
                // The first read says which state it is of, in each place.
                let all = Bytes::new()..prefix_end(b"");
                block_on(snapshot.scan(Family::Item, all, Direction::Forward, 1))?;
                self.snapshots.insert(name.clone(), snapshot);
            }
            Command::Release(name) => drop(self.snapshots.remove(name)),
            Command::Big { family, key, bytes } => {
                let family = family_named(family)?;
                let value: Bytes = (0..*bytes).map(|i| (i % 251) as u8).collect();
                let mut batch = Batch::default();
                batch.put(family, key.clone(), value.clone());
                block_on(self.engine().commit(batch))?;
                self.engine().take();
                let read = block_on(self.engine().snapshot().get(family, key.as_bytes()))?;
                writeln!(output, "{}", if read == Some(value) { "the same" } else { "different" })?;
            }
            Command::LongKey { bytes } => {
                let mut batch = Batch::default();
                batch.put(Family::Index, vec![b'x'; *bytes], "");
                block_on(self.engine().commit(batch))?;
                self.engine().take();
            }
            Command::Trace => output = self.engine().take(),
            Command::Close => block_on(self.engine().close())?,
            Command::Reopen if self.durable => {
                block_on(self.engine().close())?;
                self.reopen();
            }
            Command::Restart if self.durable => self.reopen(),
            Command::Reopen | Command::Restart => {}
        }
        Ok(output)
    }
}

fn memory(_: &Path) -> Arc<dyn Engine> {
    Arc::new(Memory::new())
}

fn forgetful(_: &Path) -> Arc<dyn Engine> {
    Arc::new(Forgetful::new())
}

fn embedded(path: &Path) -> Arc<dyn Engine> {
    Arc::new(Embedded::open(path, Options::default()).unwrap())
}

fn postgres(path: &Path) -> Arc<dyn Engine> {
    postgres_of(1, path)
}

fn postgres_of_three_parts(path: &Path) -> Arc<dyn Engine> {
    postgres_of(3, path)
}

/// A directory stands for a store: the addresses are in it.
fn postgres_of(parts: usize, path: &Path) -> Arc<dyn Engine> {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let file = path.join("addresses");
    let urls = std::fs::read_to_string(&file).ok();
    let urls = urls.or_else(|| Some(testing::postgres::databases(parts)?.join(" ")));
    let urls = urls.expect("whoever runs the scripts has looked whether there is one");
    std::fs::write(file, &urls).unwrap();
    let urls: Vec<_> = urls.split(' ').collect();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Runtime::new().unwrap());
    Arc::new(runtime.block_on(open_postgres(&urls)).unwrap())
}

fn mirror(path: &Path) -> Arc<dyn Engine> {
    Arc::new(Mirror::new(memory(path), embedded(path)))
}

fn run(open: Open, durable: bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts");
    let mut scripts: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut Runner::new(open, durable), script).unwrap();
    }
}

#[test]
fn scripts_on_memory() {
    run(memory, false);
}

#[test]
fn scripts_on_forgetful() {
    run(forgetful, false);
}

#[test]
fn scripts_on_embedded() {
    run(embedded, true);
}

#[test]
fn scripts_on_postgres() {
    if testing::postgres::database().is_some() {
        run(postgres, true);
    }
}

#[test]
fn scripts_on_postgres_of_three_parts() {
    if testing::postgres::database().is_some() {
        run(postgres_of_three_parts, true);
    }
}

#[test]
fn scripts_on_a_mirror_of_both() {
    run(mirror, false);
}
