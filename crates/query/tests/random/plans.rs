//! A plan never leaves out an item that belongs to the result, and an exact one lets no other pass.

use std::sync::Arc;

use query::plan::{Condition, Range};
use query::{Compiled, Context, Options};
use serde_json::{Value as Json, json};

use crate::generate::{items, rounds, value};

#[test]
fn plans_leave_nothing_out() {
    let mut random = fastrand::Rng::with_seed(3);
    let items = items(&mut random, 300);
    let trees: Vec<Json> = items.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
    let mut exact = 0;
    for _ in 0..rounds(600) {
        let text = format!("SELECT * FROM c WHERE {}", filter(&mut random, 0));
        let query = Arc::new(Compiled::new(&text, &[], &Options::default()).unwrap());
        let plan = query.plan();
        exact += usize::from(plan.exact);
        let pinned = plan.pinned(&["/pk/?"]);
        for (item, tree) in items.iter().zip(&trees) {
            let passes = query.matches(item.as_bytes(), &Context::default()).unwrap();
            let met = meets(&plan.condition, tree);
            assert!(met || !passes, "left out: {text}\n{item}\n{:?}", plan.condition);
            assert!(
                !plan.exact || met == passes,
                "not exact: {text}\n{item}\n{:?}",
                plan.condition
            );
            if let (true, Some(pinned)) = (passes, &pinned) {
                assert!(pinned.contains(&vec![tree["pk"].clone()]), "pinned: {text}\n{item}");
            }
        }
    }
    assert!(exact > rounds(600) / 10, "too few plans were exact: {exact}");
}

/// Whether an item meets a condition, decided the slow and plain way.
fn meets(condition: &Condition, item: &Json) -> bool {
    match condition {
        Condition::All => true,
        Condition::Nothing => false,
        Condition::And(all) => all.iter().all(|condition| meets(condition, item)),
        Condition::Or(any) => any.iter().any(|condition| meets(condition, item)),
        Condition::Defined(path) => !values(path, item).is_empty(),
        Condition::Cells(path, cells) => values(path, item).into_iter().any(|shape| {
            let kept = query::cells::of_shape(shape, false);
            kept.iter().any(|kept| {
                cells.iter().any(|cell| kept.starts_with(cell) || cell.starts_with(kept))
            })
        }),
        Condition::Path(path, ranges) => {
            let values = values(path.strip_suffix("/?").unwrap(), item);
            values.iter().any(|value| ranges.iter().any(|range| holds(range, value)))
        }
    }
}

fn holds(range: &Range, value: &Json) -> bool {
    let low = model::value::compare_defined(value, &range.low.value);
    let high = model::value::compare_defined(value, &range.high.value);
    (low.is_gt() || low.is_eq() && range.low.inclusive)
        && (high.is_lt() || high.is_eq() && range.high.inclusive)
}

fn values<'j>(path: &str, item: &'j Json) -> Vec<&'j Json> {
    let mut found = vec![item];
    for segment in path.split('/').skip(1) {
        let name = serde_json::from_str(segment).ok().filter(|_| segment.starts_with('"'));
        let name: String = name.unwrap_or_else(|| segment.to_owned());
        found = match segment {
            "[]" => found.into_iter().filter_map(Json::as_array).flatten().collect(),
            _ => found.into_iter().filter_map(|value| value.get(&name)).collect(),
        };
    }
    found
}

/// A filter made of comparisons on a few paths.
fn filter(random: &mut fastrand::Rng, depth: usize) -> String {
    const PATHS: [&str; 9] =
        ["c.a", "c.b", "c.n", "c.o.a", "c.tags[0]", "c.tags[1].a", "c[\"c d\"]", "c.id", "c.pk"];
    let path = *random.choice(&PATHS).unwrap();
    let constant = value(random, 3);
    match random.u8(0..if depth > 2 { 9 } else { 13 }) {
        0..3 => {
            let op = random.choice(&["=", "!=", "<", "<=", ">", ">="]).unwrap();
            format!("{path} {op} {constant}")
        }
        3 => format!("{constant} > {path}"),
        4 => format!("{path} IN ({constant}, {}, {})", value(random, 2), value(random, 3)),
        5 => format!("{path} BETWEEN {constant} AND {}", value(random, 3)),
        6 => {
            let call = random.choice(&[
                "IS_DEFINED",
                "IS_NULL",
                "IS_NUMBER",
                "IS_STRING",
                "IS_BOOL",
                "IS_ARRAY",
                "IS_INTEGER",
            ]);
            format!("{}({path})", call.unwrap())
        }
        7 => {
            let call =
                random.choice(&["STARTSWITH", "CONTAINS", "STRINGEQUALS", "ENDSWITH"]).unwrap();
            let blind = random.choice(&["", ", true", ", false"]).unwrap();
            format!("{call}({path}, {constant}{blind})")
        }
        8 => match random.u8(0..4) {
            0 => format!("ARRAY_CONTAINS(c.tags, {constant})"),
            1 => format!("ARRAY_CONTAINS({}, {path})", json!([constant, 1])),
            2 => format!(
                "{path} LIKE {}",
                random.choice(&["\"a%\"", "\"%b\"", "\"a\"", "\"_\""]).unwrap()
            ),
            _ => format!("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = {constant} OR t.a > 1)"),
        },
        9 => format!("NOT ({})", filter(random, depth + 1)),
        10 => path.to_owned(),
        11 => format!("({} AND {})", filter(random, depth + 1), filter(random, depth + 1)),
        _ => format!("({} OR {})", filter(random, depth + 1), filter(random, depth + 1)),
    }
}
