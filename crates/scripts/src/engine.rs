//! One JavaScript engine: QuickJS with limits, the prelude, and a script compiled in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rquickjs::context::EvalOptions;
use rquickjs::{Context, Ctx, Function, Object, Persistent, Runtime, Value};
use serde_json::Value as Json;

use crate::{Deadline, Error, Limits};

/// The most bytes of JavaScript's stack: well below that of the threads it runs on.
const STACK_BYTES: usize = 512 << 10;

const PRELUDE: &str = include_str!("prelude.js");

/// An engine with the globals that scripts see.
pub(crate) struct Engine {
    // Before the context: what they hold must go first.
    pub(crate) driver: Persistent<Object<'static>>,
    pub(crate) context: Context,
    runtime: Runtime,
    /// Whether the deadline has stopped it.
    stopped: Arc<AtomicBool>,
}

/// The native functions of the prelude.
pub(crate) struct Natives<'js> {
    pub call: Function<'js>,
    pub accepts: Function<'js>,
    pub log: Function<'js>,
}

impl Engine {
    /// Sets up an engine; `natives` makes the functions that the prelude calls.
    pub(crate) fn new(
        limits: Limits,
        deadline: Arc<Deadline>,
        settings: &Json,
        natives: impl for<'js> FnOnce(Ctx<'js>) -> rquickjs::Result<Natives<'js>>,
    ) -> Result<Self, Error> {
        let broken = |error: rquickjs::Error| Error::Engine(error.to_string());
        let runtime = Runtime::new().map_err(broken)?;
        runtime.set_memory_limit(limits.memory_bytes);
        runtime.set_max_stack_size(STACK_BYTES);
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = stopped.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || {
            let stop = deadline();
            flag.fetch_or(stop, Ordering::Relaxed);
            stop
        })));
        let context = Context::full(&runtime).map_err(broken)?;
        let settings = settings.to_string();
        let driver = context.with(|ctx| -> rquickjs::Result<_> {
            let natives = natives(ctx.clone())?;
            let boot: Function<'_> = ctx.eval(PRELUDE)?;
            let settings: Value<'_> = ctx.json_parse(settings)?;
            let driver: Object<'_> =
                boot.call((natives.call, natives.accepts, natives.log, settings))?;
            Ok(Persistent::save(&ctx, driver))
        });
        let driver = driver.map_err(broken)?;
        Ok(Self { driver, context, runtime, stopped })
    }

    /// Runs `work` with the driver; what it throws becomes an [`Error`].
    pub(crate) fn with<T>(
        &self,
        work: impl for<'js> FnOnce(&Ctx<'js>, Object<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, Error> {
        self.context.with(|ctx| {
            let driver = self.driver.clone().restore(&ctx);
            let driver = driver.map_err(|error| Error::Engine(error.to_string()))?;
            let result = work(&ctx, driver.clone());
            result.map_err(|error| self.thrown(&ctx, &driver, &error))
        })
    }

    /// Compiles a source to the function that it is.
    pub(crate) fn compile(&self, source: &str) -> Result<Persistent<Function<'static>>, Error> {
        self.context.with(|ctx| {
            let driver = self.driver.clone().restore(&ctx);
            let driver = driver.map_err(|error| Error::Engine(error.to_string()))?;
            let function = function_of(&ctx, source).map_err(|error| {
                match self.thrown(&ctx, &driver, &error) {
                    Error::Thrown { text, .. } => Error::Compile { text },
                    other => other,
                }
            })?;
            Ok(Persistent::save(&ctx, function))
        })
    }

    /// Runs what promises have left to do.
    pub(crate) fn run_jobs(&self) -> Result<bool, Error> {
        let mut any = false;
        while self.runtime.is_job_pending() {
            any = true;
            // What a job throws is the business of its promise, which the prelude watches.
            let threw = self.runtime.execute_pending_job().is_err();
            if threw && self.stopped.load(Ordering::Relaxed) {
                return Err(Error::Time);
            }
        }
        Ok(any)
    }

    fn thrown<'js>(&self, ctx: &Ctx<'js>, driver: &Object<'js>, error: &rquickjs::Error) -> Error {
        let caught = ctx.catch();
        if self.stopped.load(Ordering::Relaxed) {
            return Error::Time;
        }
        if !matches!(error, rquickjs::Error::Exception) {
            return Error::Thrown { text: error.to_string(), stack: String::new(), number: 0 };
        }
        let describe = || -> rquickjs::Result<String> {
            let describe: Function<'js> = driver.get("describe")?;
            describe.call((caught,))
        };
        let described = describe().ok().and_then(|text| serde_json::from_str::<Json>(&text).ok());
        // A description that throws, too, would be a script's joke, or the end of its memory.
        drop(ctx.catch());
        let described = described.unwrap_or_default();
        let text = |name: &str| described[name].as_str().unwrap_or_default().to_owned();
        let number = described["number"].as_u64().and_then(|number| u16::try_from(number).ok());
        let what = match text("text") {
            what if what.is_empty() => "an error that cannot be described".to_owned(),
            what => what,
        };
        Error::Thrown { text: what, stack: text("stack"), number: number.unwrap_or(0) }
    }
}

/// A function expression; or a text with declarations, of which the first function counts.
fn function_of<'js>(ctx: &Ctx<'js>, source: &str) -> rquickjs::Result<Function<'js>> {
    let expression = format!("({}\n)", source.trim().trim_end_matches(';'));
    let sloppy = || {
        let mut options = EvalOptions::default();
        options.strict = false;
        options
    };
    match ctx.eval_with_options::<Value<'js>, _>(expression, sloppy()) {
        Ok(value) => value.into_function().ok_or_else(|| not_a_function(ctx)),
        Err(rquickjs::Error::Exception) => {
            let first = ctx.catch();
            let name = declared_name(source);
            ctx.eval_with_options::<(), _>(source, sloppy())?;
            match name.map(|name| ctx.globals().get::<_, Value<'js>>(name)).transpose()? {
                Some(value) => value.into_function().ok_or_else(|| not_a_function(ctx)),
                None => Err(ctx.throw(first)),
            }
        }
        Err(error) => Err(error),
    }
}

fn not_a_function(ctx: &Ctx<'_>) -> rquickjs::Error {
    let message = "SyntaxError: the script must be a function";
    match rquickjs::String::from_str(ctx.clone(), message) {
        Ok(message) => ctx.throw(message.into_value()),
        Err(error) => error,
    }
}

/// The name of the first function that a text declares.
fn declared_name(source: &str) -> Option<&str> {
    let after = source.split("function").nth(1)?.trim_start();
    let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))?;
    (end > 0).then(|| &after[..end])
}
