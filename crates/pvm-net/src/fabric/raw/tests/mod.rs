//! Tests without a network: the installed headers, and a provider that feigns each mode.
mod exchanges;
mod feigned;
mod headers;
