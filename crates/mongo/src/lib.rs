//! The MongoDB front end. So far the language: what filters, updates and pipelines mean.

pub mod language;
