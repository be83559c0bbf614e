//! The language: text to tree ([`parse`]) and back ([`mod@print`]).

pub mod ast;
mod lexer;
mod parser;
pub mod print;

pub use parser::{parse, parse_condition};
