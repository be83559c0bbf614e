//! Scripts in a container: stored procedures, triggers around a write, functions in queries.
//!
//! A script runs on a thread of its own, never on one that serves others, with limits on time and memory ([`::scripts`]). It sees one snapshot
//! and what it has itself changed ([`Work`]); the store sees nothing until it has ended. Then its changes go to the partition's writer as one
//! transaction, each on the version that the script saw: all are made, or none. If somebody else was faster, the script is run again.

mod functions;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::scripts::{Kind as ScriptKind, Script};
use model::partition_key::PartitionKey;
use serde_json::{Value, json};

use crate::charge::{self, RequestCharge};
use crate::{
    Container, Db, Error, Kind, Parent, Place, Reply, Resource, Result, Verb, Write, Written,
};
use work::{Commit, Made, Work};

/// How often a script is run when others keep changing what it changes.
const ATTEMPTS_MAX: usize = 10;

/// Scripts that may wait for others to end; beyond that clients are told to come again.
const WAITING_MAX: usize = 256;

/// How many scripts run at a time: they are not to take all processors.
pub(crate) fn running_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    processors.saturating_sub(1).clamp(1, 8)
}

/// What a stored procedure has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// The body of its response, JSON.
    pub response: Option<String>,
    /// What it has said with `console.log`.
    pub log: String,
}

/// The triggers around a write, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    /// Before it.
    pub pre: Vec<String>,
    /// After it.
    pub post: Vec<String>,
}

impl Db {
    /// Runs a stored procedure on a partition key.
    pub async fn execute(
        &self,
        container: &Container,
        procedure: &str,
        key: &PartitionKey,
        arguments: &Value,
    ) -> Reply<Executed> {
        let result = async {
            let procedure = self.resource(place(container, Kind::Procedure), procedure)?;
            let arguments = match arguments {
                Value::Array(_) => arguments.to_string(),
                Value::Null => "[]".to_owned(),
                one => json!([one]).to_string(),
            };
            let run = move |work: Work| {
                let script = Script {
                    source: procedure.text("body").to_owned(),
                    arguments: arguments.clone(),
                    ..work.script(ScriptKind::Procedure, "Execute")
                };
                let (output, log, work) = work.run(&script)?;
                Ok((Executed { response: output.response, log }, work))
            };
            let (executed, commit) = self.in_transaction(container, key, Arc::new(run)).await?;
            let response = executed.response.map(|body| commit.with_final_names(body));
            Ok((Executed { response, ..executed }, commit))
        };
        self.scripted(container, key, result.await)
    }

    /// Writes one item, with triggers before and after, all or nothing.
    pub async fn write_with_triggers(
        &self,
        container: &Container,
        write: Write,
        triggers: &Triggers,
    ) -> Reply<Written> {
        let key = match (&write.partition_key, serde_json::from_slice::<Value>(&write.body)) {
            (Some(key), _) => key.clone(),
            (None, Ok(body)) => container.settings.partition_key.extract(&body),
            (None, Err(_)) => PartitionKey(Vec::new()),
        };
        let result = async {
            let operation = operation_of(&write.verb);
            let pre = self.triggers(container, &triggers.pre, ("Pre", operation))?;
            let post = self.triggers(container, &triggers.post, ("Post", operation))?;
            let run = move |work| triggered(work, write.clone(), &pre, &post);
            let (made, commit) = self.in_transaction(container, &key, Arc::new(run)).await?;
            let item = made.id.as_ref().and_then(|id| commit.item(id));
            Ok((Written { created: made.created, item }, commit))
        };
        self.scripted(container, &key, result.await)
    }

    /// The triggers with these names, which must be of this kind and fit the operation.
    fn triggers(
        &self,
        container: &Container,
        names: &[String],
        (kind, operation): (&str, &str),
    ) -> Result<Vec<Arc<Resource>>> {
        let find = |name: &String| {
            let trigger = self.resource(place(container, Kind::Trigger), name).map_err(|_| {
                Error::Invalid(format!("The trigger '{name}' does not exist in the container."))
            })?;
            let (is, on) = (trigger.text("triggerType"), trigger.text("triggerOperation"));
            // Clients write these words in any case.
            let on_one_of = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(on));
            let fits = on_one_of(&["All", operation])
                || (operation == "Upsert" && on_one_of(&["Create", "Replace", "Update"]))
                || (["Replace", "Patch"].contains(&operation) && on_one_of(&["Update", "Replace"]));
            match is.eq_ignore_ascii_case(kind) && fits {
                true => Ok(trigger),
                false => Err(Error::Invalid(format!(
                    "The trigger '{name}' is a {is}-trigger of the operation {on}; it cannot run as a {kind}-trigger of \
                     {operation}."
                ))),
            }
        };
        names.iter().map(find).collect()
    }

    /// Runs `work` on a thread for scripts, then makes its changes, as often as others come between.
    async fn in_transaction<T: Send + 'static>(
        &self,
        container: &Container,
        key: &PartitionKey,
        work: Arc<impl Fn(Work) -> Result<(T, Work)> + Send + Sync + 'static>,
    ) -> Result<(T, Commit)> {
        if key.0.len() != container.settings.partition_key.paths.len() {
            return Err(Error::BadPartitionKey(
                "PartitionKey has fewer components than defined the collection resource.",
            ));
        }
        self.admit(container.partition_of(key))?;
        for _ in 0..ATTEMPTS_MAX {
            let (begun, work) = (Work::new(self, container, key), work.clone());
            let (made, ended) = self.apart(move || work(begun)).await??;
            match ended.commit().await {
                Ok(commit) => return Ok((made, commit)),
                Err(Error::PreconditionFailed | Error::Exists | Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contention)
    }

    /// Runs what may take long on a thread that nobody else waits for.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        static WAITING: AtomicUsize = AtomicUsize::new(0);
        struct Waiting;
        impl Drop for Waiting {
            fn drop(&mut self) {
                WAITING.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = WAITING.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting;
        if before >= WAITING_MAX {
            return Err(Error::Overloaded);
        }
        let permit = self.script_permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Error::Stopping)?;
        drop(waiting);
        // The permit goes with the work: a client that gives up does not make room while its script still runs.
        let task = self.tasks.spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        task.await.map_err(|_| Error::Storage("a script's thread has ended in a panic".into()))
    }

    fn scripted<T>(
        &self,
        container: &Container,
        key: &PartitionKey,
        result: Result<(T, Commit)>,
    ) -> Reply<T> {
        let whole = key.0.len() == container.settings.partition_key.paths.len();
        let partition =
            if whole { container.partition_of(key) } else { &container.partitions.all[0] };
        let (result, own, writes) = match result {
            Ok((made, commit)) => (Ok(made), commit.own_charge, commit.writes_charge),
            Err(error) => (Err(error), charge::MISS, RequestCharge::default()),
        };
        // The writes have been settled when they were made.
        self.settle(partition, own);
        let session = Some(partition.session());
        let charge = RequestCharge(own.0 + writes.0);
        Reply { result, charge, session, other_sessions: Vec::new() }
    }
}

/// A client's write between its triggers.
fn triggered(
    mut work: Work,
    mut write: Write,
    pre: &[Arc<Resource>],
    post: &[Arc<Resource>],
) -> Result<(Made, Work)> {
    let operation = operation_of(&write.verb);
    let text = |body: &[u8]| (!body.is_empty()).then(|| String::from_utf8_lossy(body).into_owned());
    for trigger in pre {
        let script = Script {
            source: trigger.text("body").to_owned(),
            request: text(&write.body),
            ..work.script(ScriptKind::PreTrigger, operation)
        };
        let (output, _, after) = work.run(&script)?;
        work = after;
        if let Some(body) = output.request {
            write.body = body.into();
        }
    }
    let request = text(&write.body);
    let (made, response) = work.write(write)?;
    for trigger in post {
        let script = Script {
            source: trigger.text("body").to_owned(),
            request: request.clone(),
            response: text(&response),
            ..work.script(ScriptKind::PostTrigger, operation)
        };
        work = work.run(&script)?.2;
    }
    Ok((made, work))
}

/// The scripts of a kind of a container.
fn place(container: &Container, kind: Kind) -> Place<'_> {
    Place { parent: Parent::Container(&container.database_id, container.id()), kind }
}

fn operation_of(verb: &Verb) -> &'static str {
    match verb {
        Verb::Create => "Create",
        Verb::Upsert => "Upsert",
        Verb::Replace(_) => "Replace",
        Verb::Delete(_) => "Delete",
        Verb::Patch(_) => "Patch",
        Verb::Read(_) => "Read",
    }
}

impl From<::scripts::Error> for Error {
    fn from(error: ::scripts::Error) -> Self {
        let text = error.to_string();
        match error {
            ::scripts::Error::Time => Self::ScriptTime,
            ::scripts::Error::Thrown { number, .. } => Self::Script { text, number },
            // What the service says for a script that is not one.
            ::scripts::Error::Compile { .. } => Self::Script { text, number: u16::MAX },
            ::scripts::Error::Output { .. } => Self::TooLarge(text),
            ::scripts::Error::Engine(_) => Self::Script { text, number: 0 },
        }
    }
}
