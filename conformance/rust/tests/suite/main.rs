//! The official Rust SDK against a running server, which `conformance/run` starts.
//!
//! The SDK differs from the others in ways that matter: it writes items as binary JSON, speaks HTTP/2 (by ALPN over TLS, with
//! prior knowledge without), asks for no body after a write, reads the change feed with metadata, and finds ranges by itself.

mod containers;
mod databases;
mod items;
mod server;
mod transactions;
mod transport;
mod ttl;
