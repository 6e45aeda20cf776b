//! What `pvm bench` can measure, and how.
use clap::ValueEnum;

/// The longest message, in bytes.
const SIZE_MAX: u64 = 1 << 30;
/// The sizes that are measured by default are the powers of this number.
const SIZE_STEP: u32 = 4;
/// The longest messages that are measured by default, in bytes: between two tasks, in collective calls, and for the
/// rate of short messages.
const PAIR_SIZE_MAX: u32 = 4 << 20;
const COLLECTIVE_SIZE_MAX: u32 = 1 << 20;
const RATE_SIZE_MAX: u32 = 4 << 10;
/// The number of bytes of a double, which `reduce` adds.
const DOUBLE_BYTES: u32 = 8;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Measure {
    Latency,
    Bandwidth,
    Bidirectional,
    Rate,
    Barrier,
    Bcast,
    Mcast,
    Reduce,
    Gather,
    Scatter,
    Spawn,
}

impl Measure {
    /// Returns the name on the command line, which is also the name in commands for the director.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Latency => "latency",
            Measure::Bandwidth => "bandwidth",
            Measure::Bidirectional => "bidirectional",
            Measure::Rate => "rate",
            Measure::Barrier => "barrier",
            Measure::Bcast => "bcast",
            Measure::Mcast => "mcast",
            Measure::Reduce => "reduce",
            Measure::Gather => "gather",
            Measure::Scatter => "scatter",
            Measure::Spawn => "spawn",
        }
    }

    /// Returns whether two tasks exchange messages.
    pub fn is_of_pairs(self) -> bool {
        matches!(self, Measure::Latency | Measure::Bandwidth | Measure::Bidirectional | Measure::Rate)
    }

    /// Returns whether the measure depends on the encoding of messages.
    pub fn has_encoding(self) -> bool {
        self.is_of_pairs() || matches!(self, Measure::Bcast | Measure::Mcast)
    }

    /// Returns whether the measure is made for each size of messages.
    pub fn has_sizes(self) -> bool {
        !matches!(self, Measure::Barrier | Measure::Spawn)
    }

    /// Returns the heading of the column with the values.
    pub fn heading(self) -> &'static str {
        match self {
            Measure::Bandwidth | Measure::Bidirectional => "Bandwidth (MB/s)",
            Measure::Rate => "Messages/s",
            Measure::Spawn => "Time (us)",
            _ => "Latency (us)",
        }
    }

    /// Returns the unit of the values.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Bandwidth | Measure::Bidirectional => "MB/s",
            Measure::Rate => "messages/s",
            _ => "us",
        }
    }

    /// Returns the value for an exchange that took this time, in the unit of the measure.
    pub fn value(self, exchange_us: f64, size: u32) -> f64 {
        match self {
            Measure::Bandwidth => f64::from(size) / exchange_us,
            Measure::Bidirectional => 2.0 * f64::from(size) / exchange_us,
            Measure::Rate => 1e6 / exchange_us,
            _ => exchange_us,
        }
    }

    /// Returns the sizes to measure, in bytes; one size that means nothing if the measure has no sizes.
    pub fn sizes(self, wanted: Option<&Sizes>) -> Vec<u32> {
        let longest = match self {
            _ if !self.has_sizes() => return vec![0],
            Measure::Rate => RATE_SIZE_MAX,
            _ if self.is_of_pairs() => PAIR_SIZE_MAX,
            _ => COLLECTIVE_SIZE_MAX,
        };
        let usual =
            || std::iter::successors(Some(1), |size| Some(size * SIZE_STEP)).take_while(|size| *size <= longest);
        let mut sizes = wanted.map_or_else(|| usual().collect(), |wanted| wanted.0.clone());
        if self == Measure::Reduce {
            sizes.iter_mut().for_each(|size| *size = size.next_multiple_of(DOUBLE_BYTES));
            sizes.dedup();
        }
        sizes
    }
}

/// How messages are packed and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Encoding {
    /// `PvmDataRaw`
    Raw,
    /// `PvmDataDefault`
    Default,
    /// `PvmDataInPlace`
    Inplace,
    /// `pvm_psend` and `pvm_precv`
    Psend,
}

impl Encoding {
    /// Returns the name on the command line, which is also the name in commands for the director.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Raw => "raw",
            Encoding::Default => "default",
            Encoding::Inplace => "inplace",
            Encoding::Psend => "psend",
        }
    }

    /// Returns the encoding to use in a call that sends to many tasks, since `pvm_psend` sends to only one.
    pub fn to_many(self) -> Encoding {
        if self == Encoding::Psend { Encoding::Raw } else { self }
    }
}

/// The route of messages between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Route {
    /// Through the daemons
    Default,
    /// By a connection of the two tasks
    Direct,
}

impl Route {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        if self == Route::Direct { "direct" } else { "default" }
    }

    /// Returns the value of `PvmRoute`: `PvmAllowDirect` or `PvmRouteDirect`.
    pub fn number(self) -> i32 {
        if self == Route::Direct { 3 } else { 2 }
    }
}

/// Sizes of messages, in bytes, in rising order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(pub Vec<u32>);

/// Reads sizes: a list (`8,1K,1M`), whose elements may be ranges in which each size is twice the one before (`1:64K`).
pub fn sizes(text: &str) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once(':').unwrap_or((part, part));
        let (first, last) = (size(first)?, size(last)?);
        if first > last {
            return Err(format!("{part}: the first size is larger than the last"));
        }
        sizes.extend(std::iter::successors(Some(first), |size| size.checked_mul(2)).take_while(|size| *size <= last));
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(Sizes(sizes))
}

fn size(text: &str) -> Result<u32, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let upper = text.to_ascii_uppercase();
    let unit = units.iter().find_map(|(letter, bytes)| Some((upper.strip_suffix(*letter)?, *bytes)));
    let (number, unit) = unit.unwrap_or((&upper, 1_u64));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.filter(|bytes| (1..=SIZE_MAX).contains(bytes)).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("{text:?}: a size is a number of bytes from 1 to 1G, such as 8, 64K or 1M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_and_ranges() {
        assert_eq!(sizes("1M,8,1k").unwrap().0, [8, 1024, 1 << 20]);
        assert_eq!(sizes("1:16").unwrap().0, [1, 2, 4, 8, 16]);
        assert_eq!(sizes("3:10,1G").unwrap().0, [3, 6, 1 << 30]);
        for text in ["", "0", "8,", "x", "1:", "8:4", "2G", "-1", "1KK", "99999999999999999999"] {
            assert!(sizes(text).is_err(), "{text}");
        }
    }
}
