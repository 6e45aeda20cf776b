//! Judges the speed of messages between tasks over a fabric (`cargo xtask fabric --speed` measures it).
use super::plan::Effort;
use super::runner::directory;
use super::tables::size_text;
use super::verdicts::{Bound, Verdict};
use crate::fabric::build_program;
use crate::fabric::speed::{self, BARE, CLEAR, SEALED, Times, USUAL_PROVIDER, row_of};
use anyhow::Result;

/// The name for `--only`.
pub const NAME: &str = "fabric";
/// The length of a short message in bytes.
const SHORT_BYTES: usize = 8;

/// Measures, prints the table, and returns the verdicts. Only the full run measures without being asked by name: a round
/// takes 15 s.
pub fn measure(effort: Effort) -> Result<Vec<Verdict>> {
    let program = build_program(false)?;
    println!();
    let times = speed::measured(&program, None, USUAL_PROVIDER, if effort == Effort::Full { 5 } else { 1 })?;
    times.print(USUAL_PROVIDER);
    std::fs::write(directory().join("fabric.json"), serde_json::to_string_pretty(&times.json())?)?;
    Ok(verdicts(&times))
}

fn verdicts(times: &Times) -> Vec<Verdict> {
    let (psend, packed) = (row_of(CLEAR, "psend"), row_of(CLEAR, "raw_byte"));
    let bandwidths = |row: &str| {
        let long = times.lengths().into_iter().filter(|bytes| *bytes > SHORT_BYTES);
        long.map(|bytes| (size_text(bytes), times.ratio(BARE, row, bytes))).collect()
    };
    let bandwidth = |text: &str, row: &str, bound| Verdict {
        text: format!("over a fabric, {text}, bandwidth to the bare provider's"),
        bound: Bound::Least(bound),
        ratios: bandwidths(row),
    };
    let to_mpi = |bytes| times.mpis().filter_map(|mpi| times.ratio(&psend, mpi, bytes)).reduce(f64::max);
    vec![
        Verdict {
            text: "over a fabric, psend of 8 bytes, time to the bare provider's".into(),
            bound: Bound::Most(1.15),
            ratios: vec![(String::new(), times.ratio(&psend, BARE, SHORT_BYTES))],
        },
        bandwidth("psend", &psend, 0.97),
        bandwidth("packed raw", &packed, 0.7),
        bandwidth("sealed psend", &row_of(SEALED, "psend"), 0.6),
        Verdict {
            text: "over a fabric, psend, time to the better MPI's".into(),
            bound: Bound::Most(1.0),
            ratios: times.lengths().into_iter().map(|bytes| (size_text(bytes), to_mpi(bytes))).collect(),
        },
    ]
}
