//! Scripts against a host that is a plain list of documents.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{
    Answer, Call, Error, Functions, Host, Kind, Limits, Output, Refusal, Script, Verb, run,
};

/// Documents by link; links are ids.
#[derive(Default)]
struct List(Vec<Value>);

impl Host for List {
    fn call(&mut self, call: Call<'_>) -> Result<Answer, Refusal> {
        let body: Value = serde_json::from_str(call.body).unwrap_or_default();
        let place = self.0.iter().position(|document| document["id"] == call.link);
        let missing = || Refusal { number: 404, text: "missing".into() };
        let resource = match call.verb {
            Verb::Create if self.0.iter().any(|document| document["id"] == body["id"]) => {
                return Err(Refusal { number: 409, text: "taken".into() });
            }
            Verb::Create | Verb::Upsert => {
                self.0.push(body.clone());
                body
            }
            Verb::Read => self.0[place.ok_or_else(missing)?].clone(),
            Verb::Replace | Verb::Patch => {
                self.0[place.ok_or_else(missing)?] = body.clone();
                body
            }
            Verb::Delete => self.0.remove(place.ok_or_else(missing)?),
            Verb::Query | Verb::Feed => json!(self.0),
        };
        Ok(Answer { resource: resource.to_string(), ..Answer::default() })
    }

    fn accepts(&self) -> bool {
        self.0.len() < 100
    }
}

fn script(source: &str, arguments: Value) -> Script {
    Script {
        kind: Kind::Procedure,
        source: source.into(),
        arguments: arguments.to_string(),
        request: None,
        response: None,
        operation: "Execute",
        self_link: "self".into(),
        alt_link: "alt".into(),
        size_mb: 1,
        now_millis: 1_700_000_000_000,
    }
}

/// Up after so many questions: about as many as the engine's loops ask in a tenth of a second.
fn patience() -> crate::Deadline {
    let asked = Arc::new(AtomicUsize::new(0));
    Box::new(move || asked.fetch_add(1, Ordering::Relaxed) > 100)
}

fn run_script(script: &Script) -> (Result<Output, Error>, Vec<Value>, String) {
    let limits = Limits { memory_bytes: 8 << 20, output_bytes: 1 << 20, log_bytes: 100 };
    let (result, list, log) = run(script, List::default(), limits, patience());
    (result, list.0, log)
}

fn response(source: &str, arguments: Value) -> String {
    let (result, _, _) = run_script(&script(source, arguments));
    match result {
        Ok(output) => output.response.unwrap_or_else(|| "undefined".into()),
        Err(Error::Thrown { text, number, .. }) => format!("thrown {number}: {text}"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn bodies_and_arguments() {
    let set = |expression: &str| {
        response(
            &format!("function(a, b) {{ getContext().getResponse().setBody({expression}); }}"),
            json!([1, {"x": [2]}]),
        )
    };
    assert_eq!(set("a + b.x[0]"), "3");
    assert_eq!(set("'text'"), "\"text\"");
    assert_eq!(set("null"), "null");
    assert_eq!(set("undefined"), "undefined");
    assert_eq!(set("new Date().toISOString()"), "\"2023-11-14T22:13:20.000Z\"");
    assert_eq!(set("Date.now()"), "1700000000000");
    assert_eq!(set("new Date(0).getTime() + (new Date() instanceof Date)"), "1");
    assert_eq!(set("ErrorCodes.Conflict"), "409");
    assert_eq!(set("__.getSelfLink() + getContext().getCollection().getAltLink()"), "\"selfalt\"");
    assert_eq!(
        response(
            "function f() { for (var i = 0; i < 3; i++) getContext().getResponse().appendValue('Body', i); }",
            json!([])
        ),
        "\"012\""
    );
    assert_eq!(response("function() {}", json!([])), "undefined");
    assert_eq!(
        response(
            "async function() { await 1; __.response.setBody(await Promise.resolve(7)); }",
            json!([])
        ),
        "7"
    );
    // Helpers beside the function; arrows; a trailing semicolon.
    assert_eq!(
        response(
            "function a() { __.response.setBody(b()); } function b() { return 5; }",
            json!([])
        ),
        "5"
    );
    assert_eq!(response("() => __.response.setBody(6);", json!([])), "6");
}

#[test]
fn callbacks_come_after_the_function_has_returned() {
    let source = "function() {
        var order = [], c = getContext().getCollection();
        var accepted = c.createDocument(c.getSelfLink(), {id: 'a'}, function(err, doc) {
            order.push('created ' + doc.id);
            c.readDocument('nobody', {}, function(err) {
                order.push(err.number + ' ' + err.message);
                c.replaceDocument('a', {id: 'a', n: 1}, {}, function(err, doc) {
                    order.push(doc.n);
                    getContext().getResponse().setBody(order);
                });
            });
        });
        order.push('returned ' + accepted);
    }";
    assert_eq!(response(source, json!([])), r#"["returned true","created a","404 missing",1]"#);
}

#[test]
fn errors_say_what_happened() {
    assert_eq!(response("function() { throw new Error('no'); }", json!([])), "thrown 0: Error: no");
    assert_eq!(
        response("function() { throw new Error(404, 'no'); }", json!([])),
        "thrown 404: Error: no"
    );
    assert_eq!(response("function() { throw 'no'; }", json!([])), "thrown 0: no");
    assert_eq!(
        response("function() { getContext().abort(new Error('stop')); }", json!([])),
        "thrown 0: Error: stop"
    );
    assert_eq!(
        response("function() { try { getContext().abort('stop'); } catch (e) {} }", json!([])),
        "thrown 0: stop"
    );
    // An operation without a callback throws; one with a callback that throws, too.
    assert_eq!(
        response("function() { __.deleteDocument('x'); }", json!([])),
        "thrown 404: Error: missing"
    );
    assert_eq!(
        response(
            "function() { __.readDocument('x', {}, function(err) { if (err) throw err; }); }",
            json!([])
        ),
        "thrown 404: Error: missing"
    );
    assert_eq!(
        response("async function() { throw new Error('late'); }", json!([])),
        "thrown 0: Error: late"
    );
    for source in ["function( {", "7", "", "function() { return 1", "import 'x'"] {
        let answer = response(source, json!([]));
        assert!(answer.starts_with("Compile"), "{source}: {answer}");
    }
}

#[test]
fn operations_are_refused_when_time_runs_out() {
    let source = "function() { var n = 0; while (__.createDocument('self', {id: String(n)})) n++; __.response.setBody(n); }";
    assert_eq!(response(source, json!([])), "100");
}

#[test]
fn the_log_is_formatted_and_cut() {
    let log = |source: &str| run_script(&script(source, json!([]))).2;
    assert_eq!(
        log(
            "function() { console.log('The value of %s is %d.', 'x', 1.5, [2]); console.log({a: 1}); }"
        ),
        "The value of x is 1. [2]\n{\"a\":1}"
    );
    assert_eq!(log("function() { for (;;) console.log('äöü'); }").len(), 100);
    // What was said before a failure is kept.
    assert_eq!(log("function() { console.log('so far'); throw 1; }"), "so far");
}

#[test]
fn the_chained_api() {
    let seeded = |body: &str| {
        let source = format!(
            "function() {{ [3, 1, 2].forEach(n => __.createDocument('self', {{id: String(n), n: n, l: [n, [n]]}})); {body} }}"
        );
        response(&source, json!([]))
    };
    assert_eq!(
        seeded("__.filter(d => d.n > 1, (err, docs) => __.response.setBody(docs.map(d => d.n)));"),
        "[3,2]"
    );
    assert_eq!(seeded("__.map(d => d.n);"), "[3,1,2]");
    assert_eq!(seeded("__.pluck('id');"), r#"["3","1","2"]"#);
    assert_eq!(
        seeded("__.chain().filter(d => d.n != 2).sortBy(d => d.n).pluck('n').value();"),
        "[1,3]"
    );
    assert_eq!(
        seeded(
            "__.chain().sortByDescending(d => d.n).map(d => d.n).value({pageSize: 5}, (e, r) => __.response.setBody(r));"
        ),
        "[3,2,1]"
    );
    assert_eq!(seeded("__.chain().pluck('l').flatten().value();"), "[3,3,1,1,2,2]");
    assert_eq!(seeded("__.chain().pluck('l').flatten(true).value();"), "[3,[3],1,[1],2,[2]]");
    assert_eq!(
        seeded("__.chain().filter(d => d.n == 1).unwind('l', (d, x) => [d.id, x]).value();"),
        r#"[["1",1],["1",[1]]]"#
    );
    assert_eq!(seeded("__.response.setBody(__.filter(d => true).isAccepted);"), "true");
}

#[test]
fn triggers_see_request_and_response() {
    let trigger = |kind, source: &str| {
        let script = Script {
            kind,
            request: Some(r#"{"id":"a"}"#.into()),
            response: (kind == Kind::PostTrigger).then(|| r#"{"id":"b"}"#.into()),
            operation: "Create",
            ..script(source, json!([]))
        };
        run_script(&script).0
    };
    let changed = trigger(
        Kind::PreTrigger,
        "function() { var r = getContext().getRequest(), b = r.getBody(); b.op = r.getOperationType(); r.setBody(b); }",
    );
    assert_eq!(changed.unwrap().request.unwrap(), r#"{"id":"a","op":"Create"}"#);
    let refused =
        |result: Result<Output, Error>| matches!(result, Err(Error::Thrown { number: 403, .. }));
    assert!(refused(trigger(Kind::PreTrigger, "function() { getContext().getResponse(); }")));
    assert!(refused(trigger(
        Kind::PostTrigger,
        "function() { getContext().getRequest().setBody({}); }"
    )));
    let seen = trigger(
        Kind::PostTrigger,
        "function() { if (__.request.getBody().id + __.response.getBody().id != 'ab') throw 1; }",
    );
    assert!(seen.is_ok());
}

/// A script can harm only itself: it ends, and it has nothing to take hold of.
#[test]
fn bombs() {
    let time = |source: &str| assert_eq!(response(source, json!([])), "Time", "{source}");
    time("function() { for (;;); }");
    time("function() { for (;;) try { for (;;); } catch (e) {} }");
    time("function() { (function f() { Promise.resolve().then(f); })(); }");
    time("function() { /(a+)+$/.test('a'.repeat(60) + 'b'); }");
    time("function() { var f = () => __.readDocument('x', {}, f); f(); }");
    for source in [
        "function() { var a = []; for (;;) a.push(new Array(1000).fill(1)); }",
        "function() { 'x'.repeat(1 << 28); }",
        "function() { var s = 'x'; for (;;) s += s; }",
        "function() { (function f() { f(); })(); }",
        "function() { var o = {}; o.o = o; __.response.setBody(o); }",
        "function() { var d = []; for (var i = 0; i < 1e5; i++) d = [d]; JSON.stringify(d); }",
        "function() { new Uint8Array(1 << 29); }",
    ] {
        let answer = response(source, json!([]));
        assert!(answer.starts_with("thrown"), "{source}: {answer}");
    }
    assert_eq!(
        response("function() { __.response.setBody('x'.repeat(1 << 20)); }", json!([])),
        "Output { bytes_max: 1048576 }"
    );
    let globals = response(
        "function() { __.response.setBody(['require', 'process', 'std', 'os', 'fetch', 'setTimeout', 'print', 'load', 'Worker'].filter(n => n in globalThis)); }",
        json!([]),
    );
    assert_eq!(globals, "[]");
}

#[test]
fn functions() {
    let sources = [
        ("add", "function(a, b) { return a + b; }"),
        ("nothing", "function() {}"),
        ("given", "function(a) { return [a === undefined, a === null, typeof getContext]; }"),
        ("throws", "function() { throw new Error('no'); }"),
        ("loops", "function() { for (;;); }"),
        ("broken", "function("),
    ];
    let sources: HashMap<String, String> =
        sources.into_iter().map(|(name, source)| (name.into(), source.into())).collect();
    let mut functions = Functions::new(sources, 0, Limits::default(), patience()).unwrap();
    let mut call = |name: &str, arguments: &[Option<Value>]| match functions.call(name, arguments) {
        Ok(Some(value)) => value.to_string(),
        Ok(None) => "undefined".into(),
        Err(error) => error.to_string(),
    };
    assert_eq!(call("add", &[Some(json!(1)), Some(json!(2))]), "3");
    assert_eq!(call("add", &[Some(json!("a")), Some(json!("ä"))]), "\"aä\"");
    assert_eq!(call("nothing", &[]), "undefined");
    assert_eq!(call("given", &[None]), r#"[true,false,"undefined"]"#);
    assert_eq!(call("given", &[Some(Value::Null)]), r#"[false,true,"undefined"]"#);
    assert!(call("throws", &[]).contains("Error: no"));
    assert!(call("broken", &[]).starts_with("Encountered exception while compiling"));
    assert!(call("missing", &[]).contains("'missing' does not exist"));
    assert_eq!(call("add", &[Some(json!(1)), Some(json!(1))]), "2");
    assert!(call("loops", &[]).contains("time"));
}
