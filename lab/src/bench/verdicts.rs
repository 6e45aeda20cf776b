//! The targets, and whether they are met.
use super::samples::Samples;
use super::systems::{MPIS, System};
use super::tables::{
    FORMS, GROUP_CALLS, GROUP_TASKS, LOADED, LOADED_SIZES, LONG_SIZES, PACKED_SIZES, RING_SIZES, SHORT_SIZES, STARTS,
    size_text,
};
use std::fmt;

/// The smallest ratio at which two bandwidths count as equal.
const SAME_AS_RAW: f64 = 0.9;

/// The bound of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// At most.
    Most(f64),
    /// Less than.
    Less(f64),
    /// At least.
    Least(f64),
}

impl Bound {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Bound::Most(bound) => ratio <= bound,
            Bound::Less(bound) => ratio < bound,
            Bound::Least(bound) => ratio >= bound,
        }
    }

    fn is_worse(self, one: f64, other: f64) -> bool {
        if matches!(self, Bound::Least(_)) { one < other } else { one > other }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Most(bound) => write!(formatter, "at most {bound}"),
            Bound::Less(bound) => write!(formatter, "less than {bound}"),
            Bound::Least(bound) => write!(formatter, "at least {bound}"),
        }
    }
}

/// A target: the same bound for one or more ratios.
pub struct Verdict {
    /// What is compared with what.
    pub text: String,
    /// The bound of each ratio.
    pub bound: Bound,
    /// The label of each ratio, and its value; `None` if one side was not measured.
    pub ratios: Vec<(String, Option<f64>)>,
}

/// Whether a target is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All ratios are within the bound.
    Pass,
    /// At least one ratio is outside the bound.
    Miss,
    /// No ratio is outside the bound, but at least one is unknown.
    Unknown,
}

impl fmt::Display for Standing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Standing::Pass => "PASS",
            Standing::Miss => "MISS",
            Standing::Unknown => "----",
        })
    }
}

impl Verdict {
    /// Returns whether the target is met.
    pub fn standing(&self) -> Standing {
        if self.ratios.iter().flat_map(|ratio| ratio.1).any(|ratio| !self.bound.is_met(ratio)) {
            Standing::Miss
        } else if self.ratios.is_empty() || self.ratios.iter().any(|ratio| ratio.1.is_none()) {
            Standing::Unknown
        } else {
            Standing::Pass
        }
    }

    /// Returns the worst of the ratios.
    pub fn worst(&self) -> Option<f64> {
        let known = self.ratios.iter().filter_map(|ratio| ratio.1);
        known.reduce(|one, other| if self.bound.is_worse(one, other) { one } else { other })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worst = self.worst().map_or("not measured".to_owned(), |worst| format!("{worst:.3}"));
        write!(formatter, "{} {}: {worst} ({})", self.standing(), self.text, self.bound)?;
        if self.ratios.len() > 1 && self.worst().is_some() {
            let each = self.ratios.iter().map(|(about, ratio)| match ratio {
                Some(ratio) => format!("{about} {ratio:.2}"),
                None => format!("{about} -"),
            });
            write!(formatter, "\n       {}", each.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> Option<f64> {
    Some(ours? / theirs?)
}

/// Returns the highest bandwidth of any MPI with any of its settings, in GB/s.
pub fn best_mpi_bandwidth(samples: &Samples, size: usize) -> Option<f64> {
    let bandwidths = MPIS.iter().filter_map(|mpi| samples.bandwidth(*mpi, "pingpong_mpi", size));
    bandwidths.reduce(f64::max)
}

/// Returns the time that Debian's PVM needs on the faster of its two routes.
fn best_pvm(samples: &Samples, measure: &str, size: usize) -> Option<f64> {
    let routes = [System::Pvm, System::PvmDirect];
    routes.iter().filter_map(|route| samples.median(*route, measure, size)).reduce(f64::min)
}

/// Returns all targets of the measures that were taken.
pub fn verdicts(samples: &Samples) -> Vec<Verdict> {
    [latency(samples), bandwidth(samples), rate(samples), many(samples), groups(samples)]
        .into_iter()
        .flatten()
        .collect()
}

/// Returns the ratio of our time to that of the MPI that is fastest, with any of its settings.
fn to_fastest_mpi(samples: &Samples, ours: &str, theirs: &str, size: usize) -> Option<f64> {
    let ratios = MPIS.iter().filter_map(|mpi| samples.ratio((System::Hpvm, ours), (*mpi, theirs), size));
    ratios.reduce(f64::max)
}

fn latency(samples: &Samples) -> Vec<Verdict> {
    let to = |form: &str, theirs: (System, &str)| samples.ratio((System::Hpvm, &format!("pingpong_{form}")), theirs, 8);
    let to_mpi = |form: &str, size| to_fastest_mpi(samples, &format!("pingpong_{form}"), "pingpong_mpi", size);
    let limit = (System::Limit, "pingpong_line");
    let default_to_raw = ["byte", "int", "double"];
    vec![
        Verdict {
            text: "8 bytes, psend/precv, to the limit".into(),
            bound: Bound::Most(1.5),
            ratios: vec![("".into(), to("psend", limit))],
        },
        Verdict {
            text: "psend/precv, one way, to the best MPI".into(),
            bound: Bound::Most(1.0),
            ratios: SHORT_SIZES.iter().map(|size| (size_text(*size), to_mpi("psend", *size))).collect(),
        },
        Verdict {
            text: "8 bytes, initsend + pk + send + recv + upk, to the best MPI".into(),
            bound: Bound::Most(1.15),
            ratios: FORMS.iter().map(|form| (form.to_string(), to_mpi(form, 8))).collect(),
        },
        Verdict {
            text: "8 bytes, PvmDataDefault to PvmDataRaw".into(),
            bound: Bound::Most(1.1),
            ratios: default_to_raw
                .iter()
                .map(|kind| {
                    let raw = format!("pingpong_raw_{kind}");
                    (kind.to_string(), to(&format!("default_{kind}"), (System::Hpvm, &raw)))
                })
                .collect(),
        },
    ]
}

fn bandwidth(samples: &Samples) -> Vec<Verdict> {
    // The ratio of two bandwidths is the inverse ratio of the times for the same number of bytes.
    let to = |form: &str, theirs: (System, &str), size| {
        samples.ratio((System::Hpvm, &format!("pingpong_{form}")), theirs, size).map(f64::recip)
    };
    let to_best_mpi =
        |form: &str, size| MPIS.iter().filter_map(|mpi| to(form, (*mpi, "pingpong_mpi"), size)).reduce(f64::min);
    let to_mpi =
        |form: &str, sizes: &[usize]| sizes.iter().map(|size| (size_text(*size), to_best_mpi(form, *size))).collect();
    vec![
        Verdict {
            text: "bandwidth, psend/precv, to the best MPI".into(),
            bound: Bound::Least(1.0),
            ratios: to_mpi("psend", &LONG_SIZES),
        },
        Verdict {
            text: "bandwidth, raw bytes packed and unpacked, to the best MPI".into(),
            bound: Bound::Least(0.7),
            ratios: to_mpi("raw_byte", &PACKED_SIZES),
        },
        Verdict {
            text: "bandwidth, PvmDataDefault doubles packed and unpacked, to the best MPI".into(),
            bound: Bound::Least(0.7),
            ratios: to_mpi("default_double", &PACKED_SIZES),
        },
        Verdict {
            text: "bandwidth, doubles, PvmDataDefault to PvmDataRaw".into(),
            bound: Bound::Least(SAME_AS_RAW),
            ratios: PACKED_SIZES
                .iter()
                .map(|size| (size_text(*size), to("default_double", (System::Hpvm, "pingpong_raw_double"), *size)))
                .collect(),
        },
    ]
}

fn rate(samples: &Samples) -> Vec<Verdict> {
    let to_better = |form: &str| {
        let ours = format!("rate_{form}");
        let theirs = MPIS.iter().flat_map(|mpi| ["rate_window", "rate_blocking"].map(|theirs| (*mpi, theirs)));
        theirs.filter_map(|theirs| samples.ratio((System::Hpvm, &ours), theirs, 8)).reduce(f64::min)
    };
    let verdict = |text: &str, forms: &[&str]| Verdict {
        text: format!("message rate, {text}, to the best MPI in its better form"),
        bound: Bound::Least(1.0),
        ratios: forms.iter().map(|form| (form.to_string(), to_better(form))).collect(),
    };
    vec![verdict("psend", &["psend"]), verdict("send", &["raw_byte", "default_int"])]
}

fn many(samples: &Samples) -> Vec<Verdict> {
    let to_pvm =
        |measure: &str, size| ratio(samples.median(System::Hpvm, measure, size), best_pvm(samples, measure, size));
    let mut ring = Vec::new();
    for measure in ["ring", "ringall"] {
        for form in ["psend", "raw_byte", "default_int"] {
            for size in RING_SIZES {
                ring.push((
                    format!("{measure} {form} {}", size_text(size)),
                    to_pvm(&format!("{measure}_{form}"), size),
                ));
            }
        }
    }
    let (mut loaded_to_pvm, mut loaded_to_mpi) = (Vec::new(), Vec::new());
    for (beside, _) in LOADED {
        for form in ["psend", "raw_byte"] {
            let (ours, theirs) = (format!("{beside}_{form}"), format!("{beside}_mpi"));
            for size in LOADED_SIZES {
                let name = format!("{beside} {form} {}", size_text(size));
                loaded_to_pvm.push((name.clone(), to_pvm(&ours, size)));
                let to_mpi = |mpi: &System| samples.ratio((System::Hpvm, &ours), (*mpi, &theirs), size);
                loaded_to_mpi.push((name, MPIS.iter().filter_map(to_mpi).reduce(f64::max)));
            }
        }
    }
    let idle = |tasks: usize| (format!("of {tasks} tasks"), samples.maximum(System::Hpvm, "idle", tasks));
    vec![
        Verdict {
            text: "32 tasks in a ring, time to that of Debian's better route".into(),
            bound: Bound::Most(1.0),
            ratios: ring,
        },
        Verdict {
            text: "CPU use of a waiting task, in percent".into(),
            bound: Bound::Less(1.0),
            ratios: vec![idle(2), idle(32)],
        },
        Verdict {
            text: "beside other work, time to that of Debian's better route".into(),
            bound: Bound::Most(0.3),
            ratios: loaded_to_pvm,
        },
        Verdict {
            text: "beside other work, time to that of the best MPI".into(),
            bound: Bound::Most(1.0),
            ratios: loaded_to_mpi,
        },
        Verdict {
            text: "memory of a waiting task of 32 that no other process has, in MiB".into(),
            bound: Bound::Most(2.0),
            ratios: vec![("".into(), samples.maximum(System::Hpvm, "memory_alone", 32).map(|kib| kib / 1024.0))],
        },
        Verdict {
            text: "pvm_mcast of 64 KiB to 31 tasks, time to that of Debian's better route".into(),
            bound: Bound::Most(0.2),
            ratios: vec![("".into(), to_pvm("mcast", 64 << 10))],
        },
        Verdict {
            text: "pvm_spawn of 32 tasks, time to Debian's".into(),
            bound: Bound::Most(0.5),
            ratios: vec![
                ("the call".into(), to_pvm("spawn_call", 32)),
                ("until all were heard".into(), to_pvm("spawn_all", 32)),
            ],
        },
        Verdict {
            text: "pvm_spawn of 1000 /bin/true, time to a bare loop of posix_spawn".into(),
            bound: Bound::Most(1.5),
            ratios: vec![("".into(), samples.ratio((System::Hpvm, "starts"), (System::Limit, "starts"), STARTS))],
        },
    ]
}

/// Returns the targets of group calls, with two tasks on two cores, and with more tasks.
fn groups(samples: &Samples) -> Vec<Verdict> {
    // MPI has no frozen groups: calls in frozen groups are compared with the ordinary call of MPI.
    let to_mpi = |call: &str, tasks| to_fastest_mpi(samples, call, call.trim_end_matches("_frozen"), tasks);
    let to_pvm =
        |call: &str, tasks: usize| ratio(samples.median(System::Hpvm, call, tasks), best_pvm(samples, call, tasks));
    let many = |of: &dyn Fn(&str, usize) -> Option<f64>, calls: &[&str]| {
        let each = |call: &&str| {
            GROUP_TASKS[1..].iter().map(|tasks| (format!("{call} {tasks}"), of(call, *tasks))).collect::<Vec<_>>()
        };
        calls.iter().flat_map(each).collect()
    };
    let (barriers, others) = GROUP_CALLS.split_at(2);
    let mut verdicts = Vec::new();
    for (what, calls) in [("barrier", barriers), ("reduce, gather, bcast, scatter", others)] {
        let calls: Vec<&str> = calls.iter().map(|(call, _)| *call).collect();
        let pair = calls.iter().map(|call| (call.to_string(), to_mpi(call, 2))).collect();
        verdicts.push(Verdict {
            text: format!("{what}, 2 tasks, to the best MPI"),
            bound: Bound::Most(1.0),
            ratios: pair,
        });
        verdicts.push(Verdict {
            text: format!("{what}, 4 to 32 tasks, to Debian's better route"),
            bound: Bound::Most(0.2),
            ratios: many(&to_pvm, &calls),
        });
        verdicts.push(Verdict {
            text: format!("{what}, 4 to 32 tasks, to the best MPI"),
            bound: Bound::Most(1.0),
            ratios: many(&to_mpi, &calls),
        });
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_when_its_worst_ratio_is() {
        let ratios = |values: &[Option<f64>]| values.iter().map(|value| (String::new(), *value)).collect();
        let verdict = |bound, values: &[Option<f64>]| Verdict { text: String::new(), bound, ratios: ratios(values) };
        assert_eq!(verdict(Bound::Most(1.5), &[Some(1.5), Some(0.2)]).standing(), Standing::Pass);
        assert_eq!(verdict(Bound::Less(1.0), &[Some(1.0)]).standing(), Standing::Miss);
        assert_eq!(verdict(Bound::Least(1.0), &[Some(1.2), Some(0.9)]).standing(), Standing::Miss);
        assert_eq!(verdict(Bound::Least(1.0), &[Some(1.2), Some(0.9)]).worst(), Some(0.9));
        assert_eq!(verdict(Bound::Least(1.0), &[Some(1.2), None]).standing(), Standing::Unknown);
        assert_eq!(verdict(Bound::Least(1.0), &[]).standing(), Standing::Unknown);
    }
}
