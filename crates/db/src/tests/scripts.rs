//! Runs `testscripts`: a person's commands, and what the database answers.
//!
//! `container 20` (or `off`, `never`) creates the container `c` or replaces its default; `create a ttl=5 x=1` and its kin write
//! items; `read`, `list`, `changes` read; `advance 5` moves the clock; `purge` removes what is dead; `keys FAMILY` shows what is stored.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::sync::Arc;

use goldenscript::{Command, Context, Runner};
use model::partition_key::PartitionKey;
use serde_json::{Map, Value, json};
use storage::memory::Memory;
use storage::{Engine, Family};

use super::{START, World};
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{ChangesMode, ChangesRequest, Options, Result};

#[test]
fn scripts() {
    run_all(&mut || None);
}

/// Two servers on one store, each command to the other one: the same text must come out.
#[test]
fn scripts_on_two_servers() {
    run_all(&mut || Some(Arc::new(Memory::new())));
}

/// The same on a store of PostgreSQL in two parts.
#[test]
fn scripts_on_two_servers_and_postgres() {
    let Some(urls) = storage::testing::postgres::databases(2) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = super::empty_postgres(&runtime, &urls);
    run_all(&mut || {
        runtime.block_on(super::empty(&*engine));
        Some(engine.clone())
    });
}

/// What this says is about the memory of one server: where its readers begin.
const OF_ONE_SERVER: &str = "r22_readers_pass_the_dead_once";

/// Request units come with the time of the machine, which no script can move where `now` is the store's.
const OF_ONE_MACHINE: &str = "r20_only_left_over_request_units";

/// Makes the store that servers share; `None` for a server of its own.
type Store<'a> = &'a mut dyn FnMut() -> Option<Arc<dyn Engine>>;

fn run_all(store: Store<'_>) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/testscripts");
    let mut count = 0;
    for folder in std::fs::read_dir(root).unwrap() {
        for script in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let script = script.unwrap().path();
            println!("{}", script.display());
            let mut session = Session::new(store());
            if script.ends_with(OF_ONE_SERVER) {
                session.world.others.clear();
            }
            if script.ends_with(OF_ONE_MACHINE) && session.world.db.is_shared() {
                continue;
            }
            goldenscript::run(&mut session, script).unwrap();
            count += 1;
        }
    }
    assert!(count > 20, "only {count} scripts were found");
}

struct Session {
    runtime: tokio::runtime::Runtime,
    world: World,
    /// `_etag`s that a script has kept by name.
    etags: Map<String, Value>,
}

type Output = std::result::Result<String, Box<dyn StdError>>;

impl Session {
    fn new(store: Option<Arc<dyn Engine>>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = runtime.block_on(async {
            match store {
                Some(store) => World::shared(store, 2, Options::default()).await,
                None => World::in_memory(Options::default()).await,
            }
        });
        Self { runtime, world, etags: Map::new() }
    }
}

impl Runner for Session {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Output {
        let Self { runtime, world, etags } = self;
        runtime.block_on(async {
            world.take_turns().await;
            match command.name.as_str() {
                "container" => container(world, command).await,
                "replace-container" => replace_container(world, command).await,
                "drop-container" => {
                    world.db.delete_container("d", "c", None).await?;
                    Ok(String::new())
                }
                "throttle" => {
                    world.begin_again(Options { throttle: true, ..Options::default() }).await;
                    Ok(String::new())
                }
                "create" | "upsert" | "replace" | "delete" => write(world, etags, command).await,
                "raw" => raw(world, command).await,
                "patch" => patch(world, command).await,
                "batch" => batch(world, command).await,
                "query" => query(world, command).await,
                "read" => read(world, etags, command).await,
                "list" => list(world, command).await,
                "changes" | "versions" => changes(world, command).await,
                "partitions" => partitions(world, command).await,
                "ranges" => ranges(world, command),
                "delete-key" => delete_key(world, command).await,
                "split" => split(world, command).await,
                "plan" => plan(world, command),
                "advance" => {
                    let mut args = command.consume_args();
                    let secs = args.next_pos().ok_or("how many seconds?")?.parse()?;
                    world.clock.advance(secs);
                    Ok(String::new())
                }
                "restart" => restart(world, command).await,
                "purge" => purge(world, command).await,
                "lag" => lag(world).await,
                "timeline" => timeline(world).await,
                "dryrun" => dry_run(world, command).await,
                "explain" => explain(world, command).await,
                "keys" => keys(world, command).await,
                "ttl" => ttl_state(world),
                other => Err(format!("unknown command {other}").into()),
            }
        })
    }
}

/// `partitions 3`: containers are made with so many.
async fn partitions(world: &mut World, command: &Command) -> Output {
    let count = command.consume_args().next_pos().ok_or("how many?")?.parse()?;
    world.begin_again(Options { partitions: Some(count), ..Options::default() }).await;
    Ok(String::new())
}

/// `ranges [known=NAME] [keep=NAME]`: the partition key ranges, or those that came since an etag that was kept.
fn ranges(world: &mut World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let known = args.take_key("known").map(str::to_owned);
    let (ranges, etag) = world.container().partition_key_ranges(known.as_deref());
    let mut output = String::new();
    for range in ranges {
        let text = |name: &str| range[name].as_str().unwrap_or_default().to_owned();
        let bounds = (text("minInclusive"), text("maxExclusive"));
        writeln!(
            output,
            "{}: {:?} to {:?}, parents {}",
            text("id"),
            bounds.0,
            bounds.1,
            range["parents"]
        )?;
    }
    if args.take_key("etag").is_some() {
        writeln!(output, "{etag}")?;
    }
    Ok(output)
}

/// `delete-key p`: all items of a partition key.
async fn delete_key(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let values: Vec<Value> =
        std::iter::from_fn(|| args.next_pos()).map(|text| json!(text)).collect();
    let key = PartitionKey::from_values(&values).ok_or("not a key")?;
    world.db.delete_key(&world.container(), &key).await.result?;
    Ok(String::new())
}

/// `split 0`: two partitions in the place of one.
async fn split(world: &World, command: &Command) -> Output {
    let number = command.consume_args().next_pos().ok_or("which?")?.parse()?;
    let children = world.db.split("d", "c", number).await?;
    Ok(format!("{} and {}", children[0], children[1]))
}

/// `plan 'SELECT …'`: what an SDK is told of a query.
fn plan(world: &World, command: &Command) -> Output {
    let text = command.consume_args().next_pos().ok_or("a query")?.to_owned();
    let request = crate::QueryRequest {
        text,
        parameters: Vec::new(),
        cross_partition: true,
        scan: true,
        scope: Scope::Container,
        resume: None,
    };
    let plan = world.db.query_plan(&world.container(), &request)?;
    Ok(format!("{}\n{}", plan["queryInfo"]["rewrittenQuery"], plan["queryRanges"]))
}

async fn container(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let mut body =
        json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    if let Some(throughput) = args.take_key("throughput") {
        let throughput = crate::Throughput::Manual(throughput.parse()?);
        set_default(&mut body, args.next_pos());
        world.db.create_container("d", &body, Some(throughput)).await?;
        return Ok(String::new());
    }
    if let Some(paths) = args.take_key("unique") {
        body["uniqueKeyPolicy"] =
            json!({"uniqueKeys": [{"paths": paths.split(',').collect::<Vec<_>>()}]});
    }
    if let Some(minutes) = args.take_key("retention") {
        let bodies = args.take_key("bodies") == Some("true");
        body["changeFeedPolicy"] =
            json!({"retentionDuration": minutes.parse::<u64>()?, "expiredBodies": bodies});
    }
    if let Some(paths) = args.take_key("paths") {
        body["partitionKey"] = json!({"paths": paths.split(',').collect::<Vec<_>>(), "kind": "MultiHash", "version": 2});
    }
    if let Some(mode) = args.take_key("indexing") {
        body["indexingPolicy"] = json!({"indexingMode": mode});
    }
    if let Some(excluded) = args.take_key("excluded") {
        let included = if excluded == "/*" { json!([]) } else { json!([{"path": "/*"}]) };
        body["indexingPolicy"] =
            json!({"includedPaths": included, "excludedPaths": [{"path": excluded}]});
    }
    set_default(&mut body, args.next_pos());
    args.reject_next()?;
    match world.db.container("d", "c") {
        Ok(_) => world.db.replace_container("d", "c", &body, None).await?,
        Err(_) => world.db.create_container("d", &body, None).await?,
    };
    Ok(String::new())
}

/// Replaces the container by what a client sends that read it and changed some properties: `name=json`, `name=` removes.
async fn replace_container(world: &World, command: &Command) -> Output {
    let mut body = world.container().to_json();
    let mut args = command.consume_args();
    while let Some((name, text)) = args.next_key() {
        match text {
            "" => drop(body.as_object_mut().ok_or("an object")?.remove(name)),
            text => body[name] = serde_json::from_str(text)?,
        }
    }
    world.db.replace_container("d", "c", &body, None).await?;
    Ok(String::new())
}

fn set_default(body: &mut Value, text: Option<&str>) {
    match text {
        None | Some("off") => {}
        Some("null") => body["defaultTtl"] = Value::Null,
        Some("never") => body["defaultTtl"] = json!(-1),
        Some(text) => {
            body["defaultTtl"] = serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        }
    }
}

/// `create a b ttl=5 x=1 pk=k if-match=NAME keep=NAME`
async fn write(world: &World, etags: &mut Map<String, Value>, command: &Command) -> Output {
    let mut args = command.consume_args();
    let if_match = args.take_key("if-match").map(|name| match etags.get(name) {
        Some(etag) => etag.as_str().unwrap_or_default().to_owned(),
        None => name.to_owned(),
    });
    let if_none_match = args.take_key("if-none-match").map(str::to_owned);
    let keep = args.take_key("keep");
    let mut members = Map::new();
    while let Some((name, text)) = args.next_key() {
        let value = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        members.insert(name.to_owned(), value);
    }
    let key = members.get("pk").cloned().unwrap_or_else(|| json!("p"));
    let mut output = String::new();
    let hierarchy = world.container().settings.partition_key.paths.len();
    while let Some(id) = args.next_pos() {
        let mut body = Map::new();
        body.insert("id".into(), id.into());
        body.insert("pk".into(), key.clone());
        body.extend(members.clone());
        let verb = match command.name.as_str() {
            "create" => Verb::Create,
            "upsert" => Verb::Upsert,
            "replace" => Verb::Replace(id.to_owned()),
            _ => Verb::Delete(id.to_owned()),
        };
        let write = Write {
            verb,
            // That of a hierarchical key is in the item.
            partition_key: (hierarchy == 1).then(|| key_of(&key)),
            body: Value::Object(body).to_string().into(),
            if_match: if_match.clone(),
            if_none_match: if_none_match.clone(),
        };
        let reply = world.db.write(&world.container(), write).await;
        let text = match reply.result {
            Ok(written) => {
                if let (Some(keep), Some(item)) = (&keep, &written.item) {
                    etags.insert(keep.to_string(), item.etag.to_string().into());
                }
                match (written.created, written.item.is_some()) {
                    (true, _) => "created".to_owned(),
                    (false, true) => "replaced".to_owned(),
                    (false, false) => "deleted".to_owned(),
                }
            }
            Err(error) => error.to_string(),
        };
        writeln!(output, "{id}: {text}")?;
    }
    Ok(output)
}

/// `raw '{"id": 1}' [pk='["p"]']`: a create with this very body.
async fn raw(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let key = args.take_key("pk").unwrap_or(r#"["p"]"#);
    let body = args.next_pos().ok_or("a body")?.to_owned();
    let write = Write {
        verb: Verb::Create,
        partition_key: Some(PartitionKey::parse(key).map_err(|bad| format!("{bad:?}"))?),
        body: body.into(),
        if_match: None,
        if_none_match: None,
    };
    match world.db.write(&world.container(), write).await.result {
        Ok(_) => Ok("created".into()),
        Err(error) => Ok(error.to_string()),
    }
}

/// `patch a '[{"op": …}]' [if='from c where …']`
async fn patch(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let condition = args.take_key("if");
    let id = args.next_pos().ok_or("an id")?;
    let operations: Value = serde_json::from_str(args.next_pos().ok_or("operations")?)?;
    let body = json!({"operations": operations, "condition": condition});
    let write = new_write(Verb::Patch(id.to_owned()), body.to_string());
    match world.db.write(&world.container(), write).await.result {
        Ok(_) => Ok("patched".into()),
        Err(error) => Ok(error.to_string()),
    }
}

/// `batch "create a x=1" "delete b" …`: all or none, with `verb id [json body]` each.
async fn batch(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let mut writes = Vec::new();
    while let Some(text) = args.next_pos() {
        let mut words = text.splitn(3, ' ');
        let (verb, id) = (words.next().ok_or("a verb")?, words.next().ok_or("an id")?.to_owned());
        let mut body = json!({"id": id, "pk": "p"});
        let rest: Value = serde_json::from_str(words.next().unwrap_or("{}"))?;
        let verb = match verb {
            "create" => Verb::Create,
            "upsert" => Verb::Upsert,
            "replace" => Verb::Replace(id),
            "delete" => Verb::Delete(id),
            "read" => Verb::Read(id),
            "patch" => Verb::Patch(id),
            other => return Err(format!("unknown verb {other}").into()),
        };
        match &rest {
            Value::Object(members) => {
                body.as_object_mut().ok_or("an object")?.extend(members.clone())
            }
            operations => body = operations.clone(),
        }
        writes.push(new_write(verb, body.to_string()));
    }
    let outcomes = world.db.transact(&world.container(), writes).await.result?;
    let mut output = String::new();
    for outcome in outcomes {
        match outcome.result {
            Ok(written) => writeln!(
                output,
                "{}, lsn {:?}",
                written.created,
                written.item.map(|item| item.lsn)
            )?,
            Err(error) => writeln!(output, "{error}")?,
        }
    }
    Ok(output)
}

fn new_write(verb: Verb, body: String) -> Write {
    let partition_key = Some(key_of(&json!("p")));
    Write { verb, partition_key, body: body.into(), if_match: None, if_none_match: None }
}

/// `query 'SELECT …' [page=n] [advance=s]`: rows, a line each, `--` between pages. With `advance` the server restarts between pages, so
/// many seconds later.
async fn query(world: &mut World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let items_max = args.take_key("page").map_or(Ok(100), str::parse)?;
    let advance: u64 = args.take_key("advance").map_or(Ok(0), str::parse)?;
    let text = args.next_pos().ok_or("a query")?.to_owned();
    let request = crate::QueryRequest {
        text,
        parameters: Vec::new(),
        cross_partition: true,
        scan: true,
        scope: Scope::Container,
        resume: None,
    };
    let (mut output, mut continuation) = (String::new(), None);
    loop {
        let page = PageRequest { items_max, continuation };
        let options = ReadOptions::default();
        let reply = world.db.query(&world.container(), &request, &page, options).await;
        let page = reply.result?;
        for row in &page.rows {
            writeln!(output, "{}", String::from_utf8_lossy(row))?;
        }
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(output);
        }
        writeln!(output, "--")?;
        if advance > 0 {
            world.restart(START.plus(world.secs() + advance)).await;
        }
    }
}

/// `read a b [pk=k] [full=true] [keep=NAME]`
async fn read(world: &World, etags: &mut Map<String, Value>, command: &Command) -> Output {
    let mut args = command.consume_args();
    let key = args.take_key("pk").map_or_else(|| json!("p"), |text| json!(text));
    let full = args.take_key("full").is_some();
    let keep = args.take_key("keep");
    let mut output = String::new();
    while let Some(id) = args.next_pos() {
        let reply =
            world.db.read(&world.container(), &key_of(&key), id, ReadOptions::default()).await;
        let text = match reply.result {
            Ok(item) => {
                if let Some(keep) = &keep {
                    etags.insert(keep.to_string(), item.etag.to_string().into());
                }
                let value: Value = serde_json::from_slice(&item.body)?;
                match full {
                    true => String::from_utf8(item.body.to_vec())?,
                    false => {
                        format!("live, _ts {}", value["_ts"].as_u64().unwrap_or_default() - START.0)
                    }
                }
            }
            Err(crate::Error::NotFound) => "not found".to_owned(),
            Err(error) => error.to_string(),
        };
        writeln!(output, "{id}: {text}")?;
    }
    Ok(output)
}

/// `list [pk=k] [page=n] [charge=shown]`: ids, a line a page.
async fn list(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let scope = match args.take_key("pk") {
        Some(key) => Scope::Key(key_of(&json!(key))),
        None => Scope::Container,
    };
    let items_max = args.take_key("page").map_or(Ok(100), str::parse)?;
    let charge_shown = args.take_key("charge").is_some();
    let mut output = String::new();
    let mut continuation = None;
    loop {
        let page = PageRequest { items_max, continuation };
        let reply = world.db.list(&world.container(), &scope, &page, ReadOptions::default()).await;
        let page = reply.result?;
        let charge =
            if charge_shown { format!(", {:.2} RU", reply.charge.0) } else { String::new() };
        writeln!(output, "{}{charge}", ids(&page.rows)?)?;
        continuation = page.continuation;
        if continuation.is_none() {
            return Ok(output);
        }
    }
}

/// `changes [from=beginning|now|SECONDS|ETAG] [page=n] [charge=shown]`
async fn changes(world: &World, command: &Command) -> Output {
    let mut args = command.consume_args();
    let items_max = args.take_key("page").map_or(Ok(100), str::parse)?;
    let from = match args.take_key("from") {
        None | Some("beginning") => ChangesRequest::Beginning,
        Some("now") => ChangesRequest::Now,
        Some(text) if text.starts_with('+') => {
            ChangesRequest::Since(START.plus(text[1..].parse()?))
        }
        Some(etag) => ChangesRequest::After(etag.to_owned()),
    };
    let (container, scope) =
        (world.container(), scope(args.take_key("pk"), args.take_key("range"))?);
    if command.name == "versions" {
        let mode = (ChangesMode::All, &from);
        let page = world.db.changes(&container, &scope, mode, items_max).await.result?;
        let rows = page.rows.iter().map(|change| version(&change.json));
        let rows: Vec<String> = rows.collect::<std::result::Result<_, _>>()?;
        return Ok(format!("{}\nthen {}", rows.join("\n"), page.etag));
    }
    let mode = (ChangesMode::Latest, &from);
    let reply = world.db.changes(&container, &scope, mode, items_max).await;
    let (page, charge) = (reply.result?, reply.charge.0);
    let charge = args.take_key("charge").map_or(String::new(), |_| format!(", {charge:.2} RU"));
    let rows: Vec<_> = page.rows.into_iter().map(|change| change.json).collect();
    Ok(format!("{} then {}{charge}", ids(&rows)?, page.etag))
}

/// `pk=p`: one key; `range=1`: one partition; else the whole container.
fn scope(key: Option<&str>, range: Option<&str>) -> std::result::Result<Scope, Box<dyn StdError>> {
    Ok(match (key, range) {
        (Some(key), _) => Scope::Key(key_of(&json!(key))),
        (None, Some(number)) => Scope::Partition(number.parse()?),
        (None, None) => Scope::Container,
    })
}

/// A version in a line: system properties would only say what the rest does.
fn version(row: &[u8]) -> std::result::Result<String, Box<dyn StdError>> {
    let mut row: Value = serde_json::from_slice(row)?;
    for image in ["current", "previous"] {
        if let Some(image) = row.get_mut(image).and_then(Value::as_object_mut) {
            image.retain(|name, _| !name.starts_with('_'));
        }
    }
    let crts = row["metadata"]["crts"].as_u64().ok_or("no crts")?;
    row["metadata"]["crts"] = format!("+{}", crts - START.0).into();
    Ok(row.to_string())
}

/// `restart [back=SECONDS]`: a new process, whose machine's clock may have stepped back.
async fn restart(world: &mut World, command: &Command) -> Output {
    let back = command.consume_args().take_key("back").map_or(Ok(0), str::parse)?;
    let now = START.plus(world.secs()).minus(back).ok_or("too far back")?;
    world.restart(now).await;
    Ok(format!("now +{}", world.secs()))
}

/// `purge [budget=true]`: all that is dead, or one round within what clients have left over.
async fn purge(world: &World, command: &Command) -> Output {
    let report = match command.consume_args().take_key("budget") {
        Some(_) => world.db.purge().await?,
        None => world.db.purge_all().await?,
    };
    let due = report.next_due.map_or("never".to_owned(), |at| format!("+{}", at.since(START)));
    let more = if report.more { ", more" } else { "" };
    let waits = if report.throttled { ", waits for request units" } else { "" };
    Ok(format!("purged {}{more}{waits}, next due {due}", report.purged))
}

async fn lag(world: &World) -> Output {
    let mut output = String::new();
    for mut lag in world.db.lag().await? {
        // Each server counts what it has purged itself.
        for other in &world.others {
            let own = other.lag().await?;
            lag.purged += own.iter().map(|own| own.purged).sum::<u64>();
        }
        writeln!(
            output,
            "{}: {} items, {} s behind, {} purged",
            lag.container, lag.items, lag.secs, lag.purged
        )?;
    }
    Ok(output)
}

/// What expires when: expired already, and each second of the next hundred in which something does.
async fn timeline(world: &World) -> Output {
    let timeline = world.db.timeline(&world.container()).await?;
    let mut output = String::new();
    let mut line = |name: String, due: crate::Due| match due.total().items {
        0 => Ok(()),
        _ => writeln!(
            output,
            "{name}: {} by default, {} by own ttl",
            due.inherited.items, due.own.items
        ),
    };
    line("expired".into(), timeline.expired())?;
    for secs in 0..100 {
        let due = timeline.due(timeline.now.plus(secs), timeline.now.plus(secs + 1));
        line(format!("in {} s", secs + 1), due)?;
    }
    assert!(timeline.is_exact());
    Ok(output)
}

async fn dry_run(world: &World, command: &Command) -> Output {
    let mut body = json!({});
    set_default(&mut body, command.consume_args().next_pos());
    let default = model::ttl::DefaultTtl::from_json(body.get("defaultTtl"))?;
    let forecast = world.db.timeline(&world.container()).await?.forecast(default);
    let items = |due: crate::Due| due.total().items;
    Ok(format!(
        "{} at once, {} within an hour, {} within a day, {} later",
        items(forecast.at_once),
        items(forecast.hour),
        items(forecast.day),
        items(forecast.later)
    ))
}

async fn explain(world: &World, command: &Command) -> Output {
    let mut output = String::new();
    let mut args = command.consume_args();
    while let Some(id) = args.next_pos() {
        match world.db.explain(&world.container(), &super::key("p"), id).await {
            Ok(found) => writeln!(
                output,
                "{id}: own {:?}, default {:?}, expires {:?}",
                found.own,
                found.default,
                found.expires_at.map(|at| at.since(START))
            )?,
            Err(error) => writeln!(output, "{id}: {error}")?,
        }
    }
    Ok(output)
}

/// What is stored in a family: counts, or for `keys` of the catalog nothing, because its rows are not a matter of rules.
async fn keys(world: &World, command: &Command) -> Output {
    let snapshot = world.engine.snapshot();
    let mut output = String::new();
    let mut args = command.consume_args();
    while let Some(name) = args.next_pos() {
        let family = match name {
            "item" => Family::Item,
            "id" => Family::Id,
            "index" => Family::Index,
            "expiry" => Family::Expiry,
            "feed" => Family::Feed,
            other => return Err(format!("unknown family {other}").into()),
        };
        let all = bytes::Bytes::new()..storage::keycode::prefix_end(&[]);
        let pairs = snapshot.scan(family, all, storage::Direction::Forward, 1_000).await?;
        writeln!(output, "{name}: {}", pairs.len())?;
    }
    Ok(output)
}

fn ttl_state(world: &World) -> Output {
    let state = world.container().ttl();
    let mark = |mark: Option<model::clock::Timestamp>| {
        mark.map_or("none".to_owned(), |mark| {
            (mark.0.cast_signed() - START.0.cast_signed()).to_string()
        })
    };
    let (inherited, own) = (mark(state.inherited_mark), mark(state.own_mark));
    Ok(format!("default {:?}, inherited mark {inherited}, own mark {own}", state.default))
}

fn ids(rows: &[bytes::Bytes]) -> Result<String> {
    let id = |row: &bytes::Bytes| {
        let value: Value = serde_json::from_slice(row).unwrap();
        value["id"].as_str().unwrap_or_default().to_owned()
    };
    Ok(format!("[{}]", rows.iter().map(id).collect::<Vec<_>>().join(" ")))
}

fn key_of(value: &Value) -> PartitionKey {
    PartitionKey::parse(&json!([value]).to_string()).unwrap()
}
