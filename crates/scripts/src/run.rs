//! Running a script to its end, and calling functions from queries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rquickjs::{Ctx, Function, Object, Persistent};
use serde_json::{Value as Json, json};

use crate::engine::{Engine, Natives};
use crate::{Answer, Call, Deadline, Error, Host, Kind, Limits, Refusal, Script, Verb};

/// What a script has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The body of the response, JSON.
    pub response: Option<String>,
    /// The body of the request, which a pre-trigger may have changed.
    pub request: Option<String>,
}

/// Runs a script to its end, callbacks included. Gives the host back, with what it has gathered, and the log.
pub fn run<H: Host>(
    script: &Script,
    host: H,
    limits: Limits,
    deadline: Deadline,
) -> (Result<Output, Error>, H, String) {
    let host = Arc::new(Mutex::new(host));
    let log = Arc::new(Mutex::new(String::new()));
    let result = run_in(script, &host, &log, limits, deadline);
    let log = std::mem::take(&mut *lock(&log));
    let host = Arc::into_inner(host).expect("the engine, and all that it held, has gone");
    (result, host.into_inner().unwrap_or_else(PoisonError::into_inner), log)
}

fn run_in<H: Host>(
    script: &Script,
    host: &Arc<Mutex<H>>,
    log: &Arc<Mutex<String>>,
    limits: Limits,
    deadline: Deadline,
) -> Result<Output, Error> {
    let settings = settings(script);
    let (host, log) = (host.clone(), log.clone());
    let engine = Engine::new(limits, Arc::new(deadline), &settings, move |ctx| {
        natives(&ctx, host, log, limits.log_bytes)
    })?;
    let function = engine.compile(&script.source)?;
    let arguments = script.arguments.clone();
    engine.with(|ctx, driver| {
        let function = function.restore(ctx)?;
        driver.get::<_, Function<'_>>("start")?.call::<_, ()>((function, arguments))
    })?;
    loop {
        let jobs = engine.run_jobs()?;
        let stepped =
            engine.with(|_, driver| driver.get::<_, Function<'_>>("step")?.call::<_, bool>(()))?;
        if !jobs && !stepped {
            break;
        }
    }
    let body = |side: &'static str| {
        engine.with(move |_, driver: Object<'_>| {
            driver.get::<_, Function<'_>>("body")?.call::<_, Option<String>>((side,))
        })
    };
    let output = Output { response: body("response")?, request: body("request")? };
    let size = |body: &Option<String>| body.as_ref().map_or(0, String::len);
    match size(&output.response).max(size(&output.request)) > limits.output_bytes {
        true => Err(Error::Output { bytes_max: limits.output_bytes }),
        false => Ok(output),
    }
}

fn settings(script: &Script) -> Json {
    let body = |body: &Option<String>| -> Option<Json> {
        body.as_ref().and_then(|body| serde_json::from_str(body).ok())
    };
    let kind = match script.kind {
        Kind::Procedure => "procedure",
        Kind::PreTrigger => "pre",
        Kind::PostTrigger => "post",
    };
    let mut settings = json!({
        "kind": kind,
        "operation": script.operation,
        "selfLink": script.self_link,
        "altLink": script.alt_link,
        "sizeMb": script.size_mb,
        "now": script.now_millis,
    });
    // Absent is undefined; null would be a body.
    for (name, body) in [("request", body(&script.request)), ("response", body(&script.response))] {
        if let Some(body) = body {
            settings[name] = body;
        }
    }
    settings
}

fn natives<'js, H: Host>(
    ctx: &Ctx<'js>,
    host: Arc<Mutex<H>>,
    log: Arc<Mutex<String>>,
    log_bytes: usize,
) -> rquickjs::Result<Natives<'js>> {
    let asked = host.clone();
    Ok(Natives {
        call: Function::new(
            ctx.clone(),
            move |verb: String, link: String, body: String, options: String| {
                answer(&mut *lock(&asked), &verb, &link, &body, &options)
            },
        )?,
        accepts: Function::new(ctx.clone(), move || lock(&host).accepts())?,
        log: Function::new(ctx.clone(), move |line: String| {
            let mut log = lock(&log);
            if log.len() < log_bytes {
                if !log.is_empty() {
                    log.push('\n');
                }
                log.push_str(&line);
                let mut end = log.len().min(log_bytes);
                while !log.is_char_boundary(end) {
                    end -= 1;
                }
                log.truncate(end);
            }
        })?,
    })
}

/// Asks the host; the answer as the prelude reads it.
fn answer(host: &mut dyn Host, verb: &str, link: &str, body: &str, options: &str) -> String {
    let verb = match verb {
        "create" => Verb::Create,
        "upsert" => Verb::Upsert,
        "read" => Verb::Read,
        "replace" => Verb::Replace,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "query" => Verb::Query,
        _ => Verb::Feed,
    };
    match host.call(Call { verb, link, body, options }) {
        Err(Refusal { number, text }) => {
            json!({"error": {"number": number, "text": text}}).to_string()
        }
        Ok(Answer { resource, continuation, not_modified }) => {
            let resource = if resource.is_empty() { "null" } else { &resource };
            let mut text = format!("{{\"resource\":{resource},\"notModified\":{not_modified}");
            if let Some(continuation) = continuation {
                text.push_str(&format!(",\"continuation\":{}", Json::String(continuation)));
            }
            text.push('}');
            text
        }
    }
}

/// User-defined functions of a container, ready to be called: compiled when first called, in one engine.
pub struct Functions {
    sources: HashMap<String, String>,
    // Before the engine: what lives in it must go before it does.
    compiled: HashMap<String, Persistent<Function<'static>>>,
    engine: Engine,
}

impl Functions {
    /// The functions with these names and sources.
    pub fn new(
        sources: HashMap<String, String>,
        now_millis: i64,
        limits: Limits,
        deadline: Deadline,
    ) -> Result<Self, Error> {
        let settings = json!({"kind": "function", "now": now_millis});
        let engine = Engine::new(limits, Arc::new(deadline), &settings, |ctx| {
            Ok(Natives {
                call: Function::new(ctx.clone(), String::new)?,
                accepts: Function::new(ctx.clone(), || false)?,
                log: Function::new(ctx.clone(), |_: String| ())?,
            })
        })?;
        Ok(Self { sources, engine, compiled: HashMap::new() })
    }

    /// Calls one; `None` stands for undefined.
    pub fn call(&mut self, name: &str, arguments: &[Option<Json>]) -> Result<Option<Json>, Error> {
        let function = match self.compiled.get(name) {
            Some(function) => function.clone(),
            None => {
                let source = self.sources.get(name).ok_or_else(|| Error::Compile {
                    text: format!("the user-defined function '{name}' does not exist"),
                })?;
                let function = self.engine.compile(source)?;
                self.compiled.insert(name.to_owned(), function.clone());
                function
            }
        };
        let wrapped: Vec<Json> =
            arguments.iter().map(|argument| argument.iter().cloned().collect()).collect();
        let wrapped = Json::Array(wrapped).to_string();
        let result: String = self.engine.with(|ctx, driver| {
            let function = function.restore(ctx)?;
            driver.get::<_, Function<'_>>("evaluate")?.call((function, wrapped))
        })?;
        let result: Vec<Json> = serde_json::from_str(&result).map_err(|error| Error::Thrown {
            text: format!("its result is not JSON: {error}"),
            stack: String::new(),
            number: 0,
        })?;
        Ok(result.into_iter().next())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
