//! Values and their order. (Placeholder: replaced by the query branch at its merge.)
