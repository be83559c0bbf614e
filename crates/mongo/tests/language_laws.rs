//! Laws of the language, tried with random values: the order is one, its keys agree with it, bounds miss no match, an update that
//! sets is done the second time.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use std::cmp::Ordering;

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{Binary, Bson, DateTime, Decimal128, Document, RawBson, RawDocumentBuf, Timestamp, doc};
use fastrand::Rng;
use mongo::language::{Filter, Update, Vars, compare, keycode, value};

const ROUNDS: usize = 3_000;

fn number(rng: &mut Rng) -> Bson {
    const DOUBLES: [f64; 12] = [
        0.0,
        -0.0,
        0.1,
        -0.5,
        1.0,
        2.5,
        1e300,
        -1e-300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        9_223_372_036_854_775_807.0,
    ];
    const DECIMALS: [&str; 10] = [
        "0",
        "0.1",
        "1",
        "-1.50",
        "1E+400",
        "-Infinity",
        "NaN",
        "1E-400",
        "9223372036854775807",
        "2.5",
    ];
    match rng.u8(0..6) {
        0 => Bson::Int32(rng.i32(-3..4)),
        1 => Bson::Int64(rng.i64(-3..4)),
        2 => Bson::Int64(
            *rng.choice(&[i64::MAX, i64::MIN, i64::MAX - 1, 1 << 53, (1 << 53) + 1]).unwrap(),
        ),
        3 => Bson::Double(DOUBLES[rng.usize(0..DOUBLES.len())]),
        4 => Bson::Double(f64::from(rng.i32(-40..40)) / 10.0),
        _ => {
            Bson::Decimal128(DECIMALS[rng.usize(0..DECIMALS.len())].parse::<Decimal128>().unwrap())
        }
    }
}

fn text(rng: &mut Rng) -> String {
    (0..rng.usize(0..3)).map(|_| *rng.choice(&['a', 'b', '\0', 'é', 'Z']).unwrap()).collect()
}

fn any(rng: &mut Rng, depth: usize) -> Bson {
    let kinds = if depth == 0 { 12 } else { 15 };
    match rng.u8(0..kinds) {
        0..4 => number(rng),
        4 => Bson::String(text(rng)),
        5 => Bson::Null,
        6 => Bson::Boolean(rng.bool()),
        7 => Bson::DateTime(DateTime::from_millis(rng.i64(-2..3))),
        8 => Bson::ObjectId(ObjectId::from_bytes([rng.u8(0..2); 12])),
        9 => Bson::Timestamp(Timestamp { time: rng.u32(0..2), increment: rng.u32(0..2) }),
        10 => Bson::Binary(Binary {
            subtype: u8::into(*rng.choice(&[0u8, 128]).unwrap()),
            bytes: vec![rng.u8(0..2); rng.usize(0..3)],
        }),
        11 => {
            rng.choice(&[Bson::MinKey, Bson::MaxKey, Bson::Symbol("a".to_owned())]).unwrap().clone()
        }
        12 | 13 => Bson::Array((0..rng.usize(0..3)).map(|_| any(rng, depth - 1)).collect()),
        _ => {
            let mut document = Document::new();
            for _ in 0..rng.usize(0..3) {
                document.insert(*rng.choice(&["a", "b", "c"]).unwrap(), any(rng, depth - 1));
            }
            Bson::Document(document)
        }
    }
}

#[test]
fn the_order_is_total_and_keys_agree_with_it() {
    for seed in 0..ROUNDS as u64 {
        let mut rng = Rng::with_seed(seed);
        let [a, b, c] = [(); 3].map(|()| any(&mut rng, 2));
        let raw = |value: &Bson| value::raw(value.clone()).unwrap();
        let (x, y, z) = (raw(&a), raw(&b), raw(&c));
        let order =
            |p: &RawBson, q: &RawBson| compare::order(p.as_raw_bson_ref(), q.as_raw_bson_ref());
        assert_eq!(order(&x, &y), order(&y, &x).reverse(), "seed {seed}: {a} and {b}");
        assert_eq!(order(&x, &x), Ordering::Equal, "seed {seed}: {a}");
        if order(&x, &y).is_le() && order(&y, &z).is_le() {
            assert!(order(&x, &z).is_le(), "seed {seed}: {a}, {b}, {c}");
        }
        let keys = keycode::key(x.as_raw_bson_ref()).cmp(&keycode::key(y.as_raw_bson_ref()));
        assert_eq!(keys, order(&x, &y), "seed {seed}: the keys of {a} and {b}");
        assert_eq!(compare::order_values(&a, &b, None), order(&x, &y), "seed {seed}: {a} and {b}");
    }
}

/// What an index over `a` holds for a document: an array's elements, null for what is missing.
fn terms(document: &Document) -> Vec<Vec<u8>> {
    match document.get("a") {
        None => vec![keycode::key_of(&Bson::Null, None)],
        Some(Bson::Array(items)) if items.is_empty() => {
            vec![keycode::key_of(&Bson::Undefined, None)]
        }
        Some(Bson::Array(items)) => items.iter().map(|item| keycode::key_of(item, None)).collect(),
        Some(value) => vec![keycode::key_of(value, None)],
    }
}

#[test]
fn bounds_miss_no_match() {
    let vars = Vars::new(DateTime::from_millis(0));
    let (mut matched, mut bounded) = (0, 0);
    for seed in 0..ROUNDS as u64 * 3 {
        let mut rng = Rng::with_seed(seed);
        let operator = *rng.choice(&["$eq", "$lt", "$lte", "$gt", "$gte", "$in"]).unwrap();
        let operand = match operator {
            "$in" => Bson::Array(vec![any(&mut rng, 1), any(&mut rng, 1)]),
            _ => any(&mut rng, 1),
        };
        let filter = value::raw_document(&doc! { "a": { operator: operand } }).unwrap();
        let parsed = Filter::parse(&filter, &vars).unwrap();
        let mut document = doc! { "_id": 1 };
        if rng.u8(0..8) > 0 {
            document.insert("a", any(&mut rng, 2));
        }
        let raw = value::raw_document(&document).unwrap();
        if !parsed.matches(&raw).unwrap() {
            continue;
        }
        matched += 1;
        for bounds in parsed.bounds() {
            bounded += 1;
            let within = terms(&document).iter().any(|term| {
                bounds
                    .intervals
                    .iter()
                    .any(|interval| interval.from <= *term && *term < interval.to)
            });
            assert!(within, "seed {seed}: {filter:?} matches {document} outside of its bounds");
        }
    }
    assert!(matched > 300 && bounded > 200, "only {matched} matched, {bounded} were bounded");
}

#[test]
fn setting_twice_changes_once() {
    let vars = Vars::new(DateTime::from_millis(0));
    let mut changed = 0;
    for seed in 0..ROUNDS as u64 {
        let mut rng = Rng::with_seed(seed);
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), 1);
        document.append(cstr!("a"), value::raw(any(&mut rng, 2)).unwrap());
        document.append(cstr!("b"), value::raw(any(&mut rng, 2)).unwrap());
        let path = *rng.choice(&["a", "b", "a.b", "a.0", "b.c.a", "c"]).unwrap();
        let operator =
            *rng.choice(&["$set", "$min", "$max", "$addToSet", "$unset", "$pull"]).unwrap();
        let spec = doc! { operator: { path: number(&mut rng) } };
        let raw = value::raw_document(&spec).unwrap();
        let update = Update::parse((&raw).into(), &[], &vars).unwrap();
        // Some paths lead through what is no document: that is refused, not done halfway.
        let Ok(first) = update.apply(&document, None) else { continue };
        let Some(after) = first else { continue };
        changed += 1;
        let second = update.apply(&after, None).unwrap();
        assert!(second.is_none(), "seed {seed}: {spec} changes {after:?} again");
    }
    assert!(changed > 200, "only {changed} updates changed anything");
}
