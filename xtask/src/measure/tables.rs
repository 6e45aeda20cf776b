//! Tables of measured values: sizes, names, lines.

/// The message sizes of the latency measures, in bytes.
pub const SHORT_SIZES: [usize; 5] = [8, 64, 512, 4096, 16384];
/// The message sizes of the bandwidth measures, in bytes.
pub const LONG_SIZES: [usize; 6] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// The forms of a packed message; the first word of each name is the encoding.
pub const FORMS: [&str; 6] = ["raw_byte", "raw_int", "raw_double", "default_byte", "default_int", "default_double"];

/// The ways of copies, by their numbers less 1 (`PvmCopyCached` and so on in pvm3.h).
pub const COPY_WAYS: [&str; 6] = [
    "through the caches",
    "the sender's copy past the caches",
    "the receiver's copy past the caches",
    "both past the caches",
    "by string instructions",
    "once, by the receiver",
];

/// The widths of a cell and of the first column, in characters.
const CELL: usize = 17;
const HEAD: usize = 34;

/// Returns a size as text.
pub fn size_text(bytes: usize) -> String {
    match bytes {
        small if small < 1 << 10 => format!("{small} B"),
        medium if medium < 1 << 20 => format!("{} KiB", medium >> 10),
        large => format!("{} MiB", large >> 20),
    }
}

/// Returns the description of a measure.
pub fn form_text(measure: &str) -> &str {
    let form = measure.split_once('_').map_or(measure, |parts| parts.1);
    match form {
        "psend" => "psend/precv",
        "packed" => "packed",
        "raw_byte" => "raw pkbyte",
        "raw_int" => "raw pkint",
        "raw_double" => "raw pkdouble",
        "default_byte" => "default pkbyte",
        "default_int" => "default pkint",
        "default_double" => "default pkdouble",
        "mpi" => "Send/Recv",
        "window" => "Isend/Irecv",
        "blocking" => "Send/Recv",
        "line" => "cache line",
        "copy" => "copy across",
        "memcpy" => "memcpy",
        "call" => "the call",
        "all" => "until heard of all",
        "task" => "a task",
        "alone" => "a task alone",
        "daemon" => "daemon or launcher",
        _ => "",
    }
}

/// Returns a line of a table.
pub fn line(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("{cell:>CELL$}")).collect();
    format!("{name:HEAD$}{cells}").trim_end().to_owned()
}

/// Returns a number with three significant digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_people_say_them() {
        assert_eq!(size_text(8), "8 B");
        assert_eq!(size_text(64 << 10), "64 KiB");
        assert_eq!(size_text(16 << 20), "16 MiB");
    }

    #[test]
    fn values_have_three_digits() {
        assert_eq!(digits(0.0561), "0.056");
        assert_eq!(digits(12.34), "12.3");
        assert_eq!(digits(1234.5), "1234");
    }
}
