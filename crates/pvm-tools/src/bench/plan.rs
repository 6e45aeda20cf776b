//! What is measured, in which order, and on which hosts.
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
    fn sizes(self, wanted: Option<&Sizes>) -> Vec<u32> {
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
    fn to_many(self) -> Encoding {
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

/// The tasks that make the measurements of some tables together.
#[derive(Debug, PartialEq, Eq)]
pub struct Crew {
    /// The host of each task.
    pub hosts: Vec<String>,
    /// Whether the director is also the first task; the director runs on the host of this command.
    pub joins: bool,
    /// What the tasks measure.
    pub tables: Vec<Table>,
}

impl Crew {
    /// Returns the hosts, each once.
    pub fn distinct_hosts(&self) -> Vec<&str> {
        distinct(self.hosts.iter().map(String::as_str))
    }

    /// Returns whether each task stays on one core.
    pub fn is_pinned(&self) -> bool {
        self.tables.iter().any(|table| table.measure.is_of_pairs())
    }
}

/// A measure with its settings: one table of the output.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// What is measured.
    pub measure: Measure,
    /// The encoding, if it matters.
    pub encoding: Option<Encoding>,
    /// The size in bytes of each row.
    pub sizes: Vec<u32>,
}

/// What the user wants.
pub struct Wish<'a> {
    /// The measures; empty for all.
    pub measures: &'a [Measure],
    /// The encodings.
    pub encodings: &'a [Encoding],
    /// The sizes; `None` for those of each measure.
    pub sizes: Option<&'a Sizes>,
    /// The hosts that the user has named.
    pub hosts: Option<&'a [String]>,
    /// The number of tasks of collective measures.
    pub tasks: usize,
}

/// Returns the crews to start, one after the other. `own` is the host of this command, `known` are the hosts of the
/// machine.
pub fn plan(wish: &Wish<'_>, own: &str, known: &[String]) -> Vec<Crew> {
    let all = Measure::value_variants();
    let measures = if wish.measures.is_empty() { all } else { wish.measures };
    let measures: Vec<Measure> = all.iter().copied().filter(|measure| measures.contains(measure)).collect();
    // The director is on this host; so that it can be the first task, this host is the first.
    let mut hosts = distinct(wish.hosts.unwrap_or(known).iter().map(String::as_str));
    hosts.sort_by_key(|host| *host != own);
    let first = hosts.first().copied().unwrap_or(own);
    let second = hosts.get(1).copied();
    let pairs: Vec<[&str; 2]> = match (wish.hosts, second) {
        (None, second) => std::iter::once([own; 2]).chain(second.map(|second| [own, second])).collect(),
        (Some(_), None) => vec![[first; 2]],
        (Some(_), Some(second)) => vec![[first, second]],
    };
    let crew = |hosts: Vec<String>, of_crew: &dyn Fn(Measure) -> bool| {
        let joins = hosts.first().is_some_and(|host| host == own);
        let measures = measures.iter().copied().filter(|measure| of_crew(*measure));
        Crew { hosts, joins, tables: measures.flat_map(|measure| tables(measure, wish)).collect() }
    };
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let of_pairs = pairs.iter().map(|pair| crew(owned(pair), &Measure::is_of_pairs));
    let many: Vec<&str> = hosts.iter().copied().cycle().take(wish.tasks).collect();
    let is_spawn = |measure| measure == Measure::Spawn;
    let of_many = [
        crew(owned(&many), &|measure: Measure| !measure.is_of_pairs() && !is_spawn(measure)),
        crew(owned(&many), &is_spawn),
    ];
    of_pairs.chain(of_many).filter(|crew| !crew.tables.is_empty()).collect()
}

/// Returns the tables of a measure: one for each encoding, if the measure has encodings.
fn tables(measure: Measure, wish: &Wish<'_>) -> Vec<Table> {
    let mut encodings = vec![None];
    if measure.has_encoding() {
        let of_pairs = measure.is_of_pairs();
        encodings = wish.encodings.iter().map(|one| Some(if of_pairs { *one } else { one.to_many() })).collect();
    }
    let encodings = distinct(encodings.into_iter());
    encodings.into_iter().map(|encoding| Table { measure, encoding, sizes: measure.sizes(wish.sizes) }).collect()
}

/// Returns the items without those that have occurred before.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish<'a>(measures: &'a [Measure], hosts: Option<&'a [String]>) -> Wish<'a> {
        Wish { measures, encodings: &[Encoding::Psend, Encoding::Raw], sizes: None, hosts, tasks: 3 }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn sizes_are_lists_and_ranges() {
        assert_eq!(sizes("1M,8,1k").unwrap().0, [8, 1024, 1 << 20]);
        assert_eq!(sizes("1:16").unwrap().0, [1, 2, 4, 8, 16]);
        assert_eq!(sizes("3:10,1G").unwrap().0, [3, 6, 1 << 30]);
        for text in ["", "0", "8,", "x", "1:", "8:4", "2G", "-1", "1KK", "99999999999999999999"] {
            assert!(sizes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn without_hosts_two_tasks_of_this_host_and_two_tasks_of_two_hosts_are_measured() {
        let crews = plan(&wish(&[], None), "b", &names(&["a", "b", "c"]));
        let hosts: Vec<_> = crews.iter().map(|crew| crew.hosts.join(" ")).collect();
        assert_eq!(hosts, ["b b", "b a", "b a c", "b a c"]);
        assert!(crews.iter().all(|crew| crew.joins));
        assert_eq!(plan(&wish(&[], None), "b", &names(&["b"])).len(), 3);
    }

    #[test]
    fn hosts_that_are_named_are_the_only_ones() {
        let [a, two, both] = [&["a"][..], &["a", "c"], &["a", "b"]].map(names);
        let crew = |hosts: &[String]| {
            let known = names(&["a", "b", "c"]);
            let crews = plan(&wish(&[Measure::Latency, Measure::Barrier], Some(hosts)), "b", &known);
            crews.into_iter().map(|crew| (crew.hosts.join(" "), crew.joins)).collect::<Vec<_>>()
        };
        assert_eq!(crew(&a), [("a a".into(), false), ("a a a".into(), false)]);
        assert_eq!(crew(&two), [("a c".into(), false), ("a c a".into(), false)]);
        assert_eq!(crew(&both), [("b a".into(), true), ("b a b".into(), true)]);
    }

    #[test]
    fn each_encoding_that_matters_has_a_table() {
        let hosts = names(&["a"]);
        let crews = plan(&wish(&[Measure::Reduce, Measure::Mcast, Measure::Rate], None), "a", &hosts);
        let table = |crew: usize, table: usize| (crews[crew].tables[table].measure, crews[crew].tables[table].encoding);
        assert_eq!(table(0, 0), (Measure::Rate, Some(Encoding::Psend)));
        assert_eq!(table(0, 1), (Measure::Rate, Some(Encoding::Raw)));
        assert_eq!(table(1, 0), (Measure::Mcast, Some(Encoding::Raw)));
        assert_eq!(table(1, 1), (Measure::Reduce, None));
        assert_eq!(crews[1].tables.len(), 2);
        assert_eq!(crews[1].tables[1].sizes[..2], [8, 16]);
        assert!(crews[0].is_pinned() && !crews[1].is_pinned());
    }

    #[test]
    fn values_are_in_the_units_of_their_columns() {
        assert_eq!(Measure::Bandwidth.value(2.0, 1000), 500.0);
        assert_eq!(Measure::Bidirectional.value(2.0, 1000), 1000.0);
        assert_eq!(Measure::Rate.value(0.5, 8), 2e6);
        assert_eq!(Measure::Latency.value(0.5, 8), 0.5);
    }
}
