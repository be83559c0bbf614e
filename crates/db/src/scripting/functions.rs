//! User-defined functions in queries.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::scripts::{Functions, Limits};
use model::clock::Clock;
use serde_json::Value;

use super::{place, work::TIME_MAX};
use crate::{Container, Db, Kind, Page, PageRequest, QueryRequest, ReadOptions, Reply};

/// The functions of a container, as one query calls them.
pub(crate) struct Calls {
    sources: HashMap<String, String>,
    now_millis: i64,
    clock: Arc<dyn Clock>,
    end: Duration,
}

thread_local! {
    /// The engine of the query that this thread runs, and whose it is. An engine stays on its thread; a query that moved to another would
    /// only make a new one.
    static ENGINE: RefCell<Option<(usize, Functions)>> = const { RefCell::new(None) };
}

impl ::query::Udfs for Calls {
    fn call(&self, name: &str, args: &[Option<Value>]) -> Result<Option<Value>, String> {
        if !self.sources.contains_key(name) {
            return Err(format!("The user defined function '{name}' does not exist."));
        }
        ENGINE.with_borrow_mut(|engine| {
            let own = std::ptr::from_ref(self).addr();
            if engine.as_ref().is_none_or(|(whose, _)| *whose != own) {
                let (clock, end) = (self.clock.clone(), self.end);
                let deadline = Box::new(move || clock.stopwatch() >= end);
                let functions = Functions::new(
                    self.sources.clone(),
                    self.now_millis,
                    Limits::default(),
                    deadline,
                );
                *engine = Some((own, functions.map_err(|error| error.to_string())?));
            }
            match engine {
                Some((_, functions)) => {
                    functions.call(name, args).map_err(|error| error.to_string())
                }
                None => Ok(None),
            }
        })
    }
}

impl Db {
    /// The functions of a container, if a query calls any.
    pub(crate) fn functions_for(
        &self,
        container: &Container,
        text: &str,
    ) -> Option<Arc<dyn ::query::Udfs>> {
        let mentioned = text.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"udf."));
        if !mentioned {
            return None;
        }
        let (_, all) = self.resources(place(container, Kind::Function)).ok()?;
        let source = |function: &Arc<crate::Resource>| {
            (function.id.clone(), function.text("body").to_owned())
        };
        Some(Arc::new(Calls {
            sources: all.iter().map(source).collect(),
            now_millis: self.now().0.cast_signed() * 1_000,
            clock: self.clock.clone(),
            end: self.clock.stopwatch() + TIME_MAX,
        }))
    }

    /// Runs a query that calls functions where these can keep nobody waiting.
    pub(crate) async fn query_apart(
        &self,
        functions: Arc<dyn ::query::Udfs>,
        container: &Container,
        (query, page): (&QueryRequest, &PageRequest),
        options: ReadOptions<'_>,
    ) -> Reply<Page> {
        let db = Self { functions: Some(functions), ..self.clone() };
        let (container, query, page) = (container.clone(), query.clone(), page.clone());
        let session = options.session.to_vec();
        let ran = self.apart(move || {
            let options = ReadOptions { session: &session };
            let reply = db.tasks.block_on(db.query_here(&container, &query, &page, options));
            ENGINE.take();
            reply
        });
        match ran.await {
            Ok(reply) => reply,
            Err(error) => Reply {
                result: Err(error),
                charge: crate::charge::MISS,
                session: None,
                other_sessions: Vec::new(),
            },
        }
    }
}
