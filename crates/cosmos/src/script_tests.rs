//! Scripts of requests and whole responses.
