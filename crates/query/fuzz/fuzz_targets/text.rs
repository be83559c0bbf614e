//! Any text: parse, print, compile, plan and run it over a fixed item.

#![no_main]

use std::sync::Arc;

use query::{Compiled, Context, Options, Pipeline, sql};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(tree) = sql::parse(text) {
        let printed = sql::print::query(&tree);
        let again = sql::parse(&printed).expect("what is printed can be read");
        assert_eq!(sql::print::query(&again), printed);
    }
    Compiled::condition(text).ok();
    let Ok(query) = Compiled::new(text, &[], &Options::default()) else { return };
    query.plan();
    query.info().ok();
    let context = Context { steps_max: 10_000, held_bytes_max: 100_000, ..Context::default() };
    let mut pipeline = Pipeline::new(Arc::new(query), &context);
    let item = br#"{"id":"1","a":[1,{"b":"x"}],"c":{"d":null},"n":1.5,"s":"text","t":true}"#;
    if pipeline.push(item, 0).is_ok() {
        pipeline.finish().ok();
    }
});
