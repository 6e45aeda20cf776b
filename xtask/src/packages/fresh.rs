//! x
use anyhow::Result; use crate::counts::Counts; pub fn counted() -> Result<Counts> { Ok(Counts::default()) }
