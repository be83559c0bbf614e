//! Whatever a client sends, the language answers or refuses: it never panics and never goes on for ever. Operators and values are
//! put together at random, sensibly only in that operators get about as many arguments as they take.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Decimal128, Document, RawBson, RawDocumentBuf, doc};
use fastrand::Rng;
use mongo::language::aggregate::{Pipeline, Step};
use mongo::language::expression::Expression;
use mongo::language::{Filter, Projection, Sort, Update, Vars, value};

const ROUNDS: u64 = 12_000;

const FILTERS: [&str; 29] = [
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$and",
    "$or",
    "$nor",
    "$not",
    "$exists",
    "$type",
    "$expr",
    "$jsonSchema",
    "$mod",
    "$regex",
    "$options",
    "$all",
    "$elemMatch",
    "$size",
    "$bitsAllSet",
    "$bitsAnyClear",
    "$geoWithin",
    "$geoIntersects",
    "$near",
    "$nearSphere",
    "$comment",
];

const UPDATES: [&str; 19] = [
    "$set",
    "$unset",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$rename",
    "$setOnInsert",
    "$currentDate",
    "$bit",
    "$addToSet",
    "$push",
    "$pop",
    "$pull",
    "$pullAll",
    "$each",
    "$slice",
    "$sort",
    "$position",
];

const EXPRESSIONS: &str = "$abs $add $ceil $divide $exp $floor $ln $log $log10 $mod $multiply $pow $round $sqrt \
 $subtract $trunc $bitAnd $bitOr $bitXor $bitNot $arrayElemAt $arrayToObject $concatArrays $filter $firstN $first $last \
 $in $indexOfArray $isArray $map $objectToArray $range $reduce $reverseArray $size $slice $sortArray $zip $and $or $not \
 $cmp $eq $gt $gte $lt $lte $ne $cond $ifNull $switch $binarySize $bsonSize $dateAdd $dateDiff $dateFromParts \
 $dateFromString $dateSubtract $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $hour \
 $isoDayOfWeek $isoWeek $isoWeekYear $millisecond $minute $month $second $week $year $literal $getField $setField \
 $unsetField $mergeObjects $allElementsTrue $anyElementTrue $setDifference $setEquals $setIntersection $setIsSubset \
 $setUnion $concat $indexOfBytes $indexOfCP $ltrim $regexFind $regexFindAll $regexMatch $replaceOne $replaceAll $rtrim \
 $split $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP $toLower $toUpper $trim $sin $cos $tan $asin \
 $acos $atan $atan2 $asinh $acosh $atanh $sinh $cosh $tanh $degreesToRadians $radiansToDegrees $convert $isNumber \
 $toBool $toDate $toDecimal $toDouble $toInt $toLong $toObjectId $toString $type $sum $avg $min $max $stdDevPop \
 $stdDevSamp $median $percentile $let $rand $tsSecond $maxN $minN $lastN";

/// Names that the arguments of some operator have.
const NAMES: [&str; 54] = [
    "input",
    "in",
    "as",
    "cond",
    "n",
    "date",
    "timezone",
    "format",
    "unit",
    "amount",
    "startDate",
    "endDate",
    "binSize",
    "dateString",
    "onError",
    "onNull",
    "to",
    "year",
    "month",
    "day",
    "hour",
    "isoWeekYear",
    "isoWeek",
    "chars",
    "find",
    "replacement",
    "regex",
    "options",
    "field",
    "value",
    "sortBy",
    "inputs",
    "initialValue",
    "if",
    "then",
    "else",
    "branches",
    "default",
    "vars",
    "p",
    "method",
    "a",
    "b",
    "a.b",
    "a.0",
    "a.$",
    "a.$[]",
    "_id",
    "$geometry",
    "type",
    "coordinates",
    "$maxDistance",
    "x",
    "iso8601",
];

const STAGES: [&str; 25] = [
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$group",
    "$sort",
    "$limit",
    "$skip",
    "$unwind",
    "$lookup",
    "$graphLookup",
    "$facet",
    "$bucket",
    "$bucketAuto",
    "$sortByCount",
    "$count",
    "$replaceRoot",
    "$replaceWith",
    "$sample",
    "$redact",
    "$geoNear",
    "$unionWith",
    "$densify",
    "$fill",
];

const STAGE_NAMES: [&str; 30] = [
    "_id",
    "n",
    "path",
    "from",
    "localField",
    "foreignField",
    "as",
    "let",
    "pipeline",
    "groupBy",
    "boundaries",
    "buckets",
    "output",
    "newRoot",
    "size",
    "near",
    "distanceField",
    "key",
    "coll",
    "field",
    "range",
    "step",
    "bounds",
    "sortBy",
    "partitionBy",
    "startWith",
    "connectFromField",
    "connectToField",
    "window",
    "documents",
];

fn scalar(rng: &mut Rng) -> Bson {
    const TEXTS: [&str; 22] = [
        "",
        "a",
        "$a",
        "$a.b",
        "$$ROOT",
        "$$NOW",
        "$$this",
        "é(",
        "^a",
        "UTC",
        "Europe/Berlin",
        "+02:00",
        "month",
        "day",
        "%Y-%m-%d",
        "2024-02-29",
        "int",
        "Point",
        "Polygon",
        "full",
        "linear",
        "$$REMOVE",
    ];
    const DECIMALS: [&str; 6] =
        ["1E+6111", "-1E-6176", "NaN", "Infinity", "0.5", "9999999999999999999999999999999999"];
    match rng.u8(0..12) {
        0 => Bson::Int32(rng.i32(-3..5)),
        1 => Bson::Int32(*rng.choice(&[i32::MIN, i32::MAX, 400]).unwrap()),
        2 => Bson::Int64(*rng.choice(&[i64::MIN, i64::MAX, 1 << 40, -(1 << 60)]).unwrap()),
        3 => Bson::Double(
            *rng.choice(&[0.5, -1e308, 1e308, f64::NAN, f64::INFINITY, -0.0, 1e-300]).unwrap(),
        ),
        4 => Bson::Decimal128(rng.choice(&DECIMALS).unwrap().parse::<Decimal128>().unwrap()),
        5..9 => Bson::String((*rng.choice(&TEXTS).unwrap()).to_owned()),
        9 => Bson::Null,
        10 => Bson::Boolean(rng.bool()),
        _ => Bson::DateTime(DateTime::from_millis(
            *rng.choice(&[0, 1_709_210_096_789, i64::MAX, i64::MIN, -62_135_596_800_000]).unwrap(),
        )),
    }
}

/// Something with the operators and names of a vocabulary in it.
fn something(rng: &mut Rng, operators: &[&str], names: &[&str], depth: usize) -> Bson {
    if depth == 0 || rng.u8(0..4) == 0 {
        return scalar(rng);
    }
    match rng.u8(0..5) {
        0 => Bson::Array(
            (0..rng.usize(0..4)).map(|_| something(rng, operators, names, depth - 1)).collect(),
        ),
        1 | 2 => {
            let mut document = Document::new();
            let argument = match rng.u8(0..3) {
                0 => something(rng, operators, names, depth - 1),
                _ => Bson::Array(
                    (0..rng.usize(1..4))
                        .map(|_| something(rng, operators, names, depth - 1))
                        .collect(),
                ),
            };
            document.insert(*rng.choice(operators).unwrap(), argument);
            Bson::Document(document)
        }
        _ => Bson::Document(fields(rng, operators, names, depth)),
    }
}

fn fields(rng: &mut Rng, operators: &[&str], names: &[&str], depth: usize) -> Document {
    let mut document = Document::new();
    for _ in 0..rng.usize(0..5) {
        let name = if rng.u8(0..4) == 0 { rng.choice(operators) } else { rng.choice(names) };
        document.insert(*name.unwrap(), something(rng, operators, names, depth - 1));
    }
    document
}

fn sample() -> RawDocumentBuf {
    let point = doc! { "type": "Point", "coordinates": [1.0, 2.0] };
    let document = doc! {
        "_id": 1, "a": [1, 2.5, "x", { "b": [1, 2], "a": 3 }, [], Bson::Null], "b": { "a": 1, "b": "text" },
        "x": 5, "n": i64::MAX, "date": DateTime::from_millis(1_709_210_096_789), "value": point,
    };
    value::raw_document(&document).unwrap()
}

#[test]
fn filters_answer() {
    let (vars, document) = (Vars::new(DateTime::from_millis(0)), sample());
    let mut parsed = 0;
    for seed in 0..ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let filter = value::raw_document(&fields(&mut rng, &FILTERS, &NAMES, 4)).unwrap();
        if let Ok(filter) = Filter::parse(&filter, &vars) {
            parsed += 1;
            drop(filter.matches_at(&document));
            drop((filter.bounds(), filter.equalities().len()));
        }
    }
    assert!(parsed > 100, "only {parsed} made sense");
}

#[test]
fn updates_answer() {
    let (vars, document) = (Vars::new(DateTime::from_millis(0)), sample());
    let everything = Filter::parse(&RawDocumentBuf::new(), &vars).unwrap();
    let mut done = 0;
    for seed in 0..ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let mut update = Document::new();
        for _ in 0..rng.usize(1..3) {
            let operator = *rng.choice(&UPDATES).unwrap();
            update.insert(operator, fields(&mut rng, &UPDATES, &NAMES, 3));
        }
        let update = value::raw_document(&update).unwrap();
        if let Ok(update) = Update::parse((&update).into(), &[], &vars) {
            done += usize::from(update.apply(&document, Some(1)).is_ok());
            drop(update.insert(&everything, ObjectId::from_bytes([0; 12])));
        }
    }
    assert!(done > 50, "only {done} were done");
}

#[test]
fn expressions_answer() {
    let (vars, document) = (Vars::new(DateTime::from_millis(0)), sample());
    let operators: Vec<&str> = EXPRESSIONS.split_whitespace().collect();
    let mut done = 0;
    for seed in 0..ROUNDS * 4 {
        let mut rng = Rng::with_seed(seed);
        let argument = match rng.u8(0..3) {
            0 => something(&mut rng, &operators, &NAMES, 3),
            1 => Bson::Array(
                (0..rng.usize(1..4)).map(|_| something(&mut rng, &operators, &NAMES, 2)).collect(),
            ),
            _ => Bson::Document(fields(&mut rng, &operators, &NAMES, 3)),
        };
        let mut expression = Document::new();
        expression.insert(operators[seed as usize % operators.len()], argument);
        if let Ok(expression) = Expression::parse(&Bson::Document(expression), &vars) {
            done += usize::from(expression.value(&document).is_ok());
        }
    }
    assert!(done > 1_000, "only {done} had a value");
}

#[test]
fn pipelines_answer() {
    let mut vars = Vars::new(DateTime::from_millis(0));
    vars.memory_bytes_max = 1 << 20;
    let mut operators: Vec<&str> = EXPRESSIONS.split_whitespace().collect();
    operators.extend(STAGES);
    let names: Vec<&str> = NAMES.iter().chain(&STAGE_NAMES).copied().collect();
    let mut done = 0;
    for seed in 0..ROUNDS * 2 {
        let mut rng = Rng::with_seed(seed);
        let stages: Vec<RawBson> = (0..rng.usize(1..3))
            .map(|_| {
                let mut stage = Document::new();
                stage.insert(
                    *rng.choice(&STAGES).unwrap(),
                    something(&mut rng, &operators, &names, 3),
                );
                value::raw(Bson::Document(stage)).unwrap()
            })
            .collect();
        let stages: Vec<_> = stages.iter().map(RawBson::as_raw_bson_ref).collect();
        let Ok(mut pipeline) = Pipeline::parse(&stages, &vars) else { continue };
        done += 1;
        let mut left = 3;
        for _ in 0..1_000 {
            match pipeline.step() {
                Ok(Step::Input) if left > 0 => {
                    left -= 1;
                    pipeline.feed(sample());
                }
                Ok(Step::Input) => pipeline.end(),
                Ok(Step::Foreign(_)) => pipeline.supply(vec![sample()]),
                Ok(Step::Document(_)) => {}
                Ok(Step::Done) | Err(_) => break,
            }
        }
    }
    assert!(done > 500, "only {done} made sense");
}

#[test]
fn projections_and_orders_answer() {
    let (vars, document) = (Vars::new(DateTime::from_millis(0)), sample());
    let mut operators: Vec<&str> = EXPRESSIONS.split_whitespace().collect();
    operators.extend(["$slice", "$elemMatch", "$meta"]);
    let mut done = 0;
    for seed in 0..ROUNDS {
        let mut rng = Rng::with_seed(seed);
        let spec = value::raw_document(&fields(&mut rng, &operators, &NAMES, 3)).unwrap();
        if let Ok(projection) = Projection::parse(&spec, &vars) {
            done += usize::from(projection.apply(&document, Some(1)).is_ok());
        }
        if let Ok(sort) = Sort::parse(&spec, None) {
            drop(sort.key(&document));
        }
    }
    assert!(done > 100, "only {done} were done");
}
