//! Talking to a server.
