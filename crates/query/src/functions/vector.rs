//! VECTORDISTANCE: how near two vectors of numbers are.

use super::{Function, Host, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] =
    &[pure("VECTORDISTANCE", (2, 4), distance), pure("_VECTORSCORE", (2, 4), distance)];

/// A way to compare vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The cosine of the angle between them; 1 is nearest.
    Cosine,
    /// Their product; larger is nearer.
    DotProduct,
    /// The distance between their ends; 0 is nearest.
    Euclidean,
}

impl Metric {
    /// The metric of this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "cosine" => Metric::Cosine,
            "dotproduct" => Metric::DotProduct,
            "euclidean" => Metric::Euclidean,
            _ => return None,
        })
    }

    /// The metric that the fourth argument of the function names; cosine unless it does.
    pub fn of_options(options: Option<&Value<'_>>) -> Option<Self> {
        let name = options.map(|options| options.member("distanceFunction"));
        match name {
            None | Some(Value::Undefined) => Some(Metric::Cosine),
            Some(name) => name.as_str().and_then(Metric::named),
        }
    }

    /// Whether a smaller result means nearer.
    pub fn smaller_is_nearer(self) -> bool {
        self == Metric::Euclidean
    }
}

/// A type of the numbers in vectors.
#[derive(Clone, Copy, Debug)]
enum Element {
    /// Any number: what a double tells more exactly than a shorter float is no reason to differ.
    Float,
    /// Whole numbers from the one to the other.
    Integer(f64, f64),
}

impl Element {
    /// The type that the fourth argument of the function names; any number unless it does.
    fn of_options(options: Option<&Value<'_>>) -> Option<Self> {
        match options.map(|options| options.member("dataType")) {
            None | Some(Value::Undefined) => Some(Element::Float),
            Some(name) => Some(match name.as_str()?.to_ascii_lowercase().as_str() {
                "float32" | "float16" => Element::Float,
                "int8" => Element::Integer(-128.0, 127.0),
                "uint8" => Element::Integer(0.0, 255.0),
                _ => return None,
            }),
        }
    }

    fn admits(self, number: f64) -> bool {
        match self {
            Element::Float => true,
            Element::Integer(low, high) => number.fract() == 0.0 && (low..=high).contains(&number),
        }
    }
}

/// Two vectors, whether to search exactly (no matter here), and options.
fn distance<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let options = args.get(3);
    let (Some(metric), Some(element)) = (Metric::of_options(options), Element::of_options(options))
    else {
        return Value::Undefined;
    };
    let numbers = |value: &Value<'a>| -> Option<Vec<f64>> {
        value.elements()?.map(|each| each.as_f64().filter(|n| element.admits(*n))).collect()
    };
    let (Some(a), Some(b)) = (numbers(&args[0]), numbers(&args[1])) else {
        return Value::Undefined;
    };
    if a.len() != b.len() || a.is_empty() {
        return Value::Undefined;
    }
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    match metric {
        Metric::DotProduct => product(&a, &b).into(),
        Metric::Cosine => (product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt()).into(),
        Metric::Euclidean => {
            let squares = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b));
            squares.sum::<f64>().sqrt().into()
        }
    }
}
