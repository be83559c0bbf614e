//! Any bytes in place of an item, under queries that read it in every way there is.

#![no_main]

use std::sync::{Arc, LazyLock};

use query::{Compiled, Context, Options, Pipeline};

static QUERIES: LazyLock<Vec<Arc<Compiled>>> = LazyLock::new(|| {
    let texts = [
        "SELECT * FROM c WHERE c.a.b[0].c = 1 OR c[\"d\"] = [1] OR c.e != {}",
        "SELECT c.a, t, ARRAY_LENGTH(c.b) FROM c JOIN t IN c.a WHERE IS_DEFINED(t.x)",
        "SELECT DISTINCT VALUE c.a FROM c ORDER BY c.b DESC, c.a",
        "SELECT c.a, COUNT(1) AS n, MAX(c.b) AS m, MAKESET(c) AS s FROM c GROUP BY c.a",
        "SELECT VALUE OBJECTTOARRAY(c) FROM c WHERE c.s LIKE '%x%' AND LENGTH(c.s) > 1",
        "SELECT VALUE ST_DISTANCE(c.a, c.b) FROM c",
    ];
    let compile = |text| Compiled::new(text, &[], &Options::default()).expect("a valid query");
    texts.into_iter().map(compile).map(Arc::new).collect()
});

libfuzzer_sys::fuzz_target!(|item: &[u8]| {
    for query in QUERIES.iter() {
        let mut pipeline = Pipeline::new(query.clone(), &Context::default());
        if pipeline.push(item, 0).is_ok() {
            pipeline.finish().ok();
        }
    }
});
