//! The result of what can fail for many reasons.

pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
