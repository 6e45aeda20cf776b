//! The options of `spawn`.
use crate::words::leading_number;
use pvm_core::codes;
use std::path::PathBuf;

/// Where the output of a job goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// To the log of the daemon.
    Log,
    /// `->`
    Console,
    /// `->file`
    Replace(PathBuf),
    /// `->>file`
    Append(PathBuf),
}

/// The words between `spawn` and the name of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnOptions {
    /// The number of tasks.
    pub count: i32,
    /// The flags, `PvmTask...`.
    pub flags: i32,
    /// Host or architecture, and `:directory`.
    pub place: String,
    /// Whether the place is a network address (`--host=`), which must be replaced by a host's name before the spawn.
    pub by_address: bool,
    /// Where the output goes.
    pub output: Output,
    /// `-@`, `-@file`: where the trace goes.
    pub trace: Option<Trace>,
}

/// Where the trace of a job goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trace {
    /// `-@`
    Console,
    /// `-@file`
    File(PathBuf),
}

/// Why the options are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpawnError {
    /// No program is named.
    NoProgram,
}

impl std::fmt::Display for SpawnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpawnError::NoProgram => f.write_str("incorrect arg count"),
        }
    }
}

/// Reads the options. Returns them and the remaining words, which begin with the program.
pub fn parse(words: &[String]) -> Result<(SpawnOptions, &[String]), SpawnError> {
    let mut options = SpawnOptions {
        count: 1,
        flags: codes::TASK_DEFAULT,
        place: String::new(),
        by_address: false,
        output: Output::Log,
        trace: None,
    };
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        let Some(option) = word.strip_prefix('-') else { return Ok((options, rest)) };
        options.take(option);
        rest = after;
    }
    Err(SpawnError::NoProgram)
}

impl SpawnOptions {
    /// Reads one option, a word without its dash.
    fn take(&mut self, option: &str) {
        if let Some(address) = option.strip_prefix("-host=") {
            self.flags |= codes::TASK_HOST;
            self.place = address.into();
            self.by_address = true;
            return;
        }
        match option.chars().next() {
            Some('>') => {
                self.output = match (&option[1..], option[1..].strip_prefix('>')) {
                    ("", _) => Output::Console,
                    (_, Some(path)) => Output::Append(path.into()),
                    (path, None) => Output::Replace(path.into()),
                }
            }
            Some('?') => self.flags |= codes::TASK_DEBUG,
            Some('~') => self.flags |= codes::HOST_COMPL,
            Some('@') => {
                self.trace = Some(match &option[1..] {
                    "" => Trace::Console,
                    path => Trace::File(path.into()),
                });
            }
            Some(first) if first.is_ascii_digit() => self.count = leading_number(option),
            Some(':') => self.place = option.into(),
            Some(first) if first.is_ascii_uppercase() => {
                self.flags |= codes::TASK_ARCH;
                self.place = option.into();
            }
            Some(first) if first.is_ascii_lowercase() || first == '.' => {
                self.flags |= codes::TASK_HOST;
                self.place = option.into();
            }
            // As on PVM, such a word means nothing.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<(SpawnOptions, Vec<String>), SpawnError> {
        let words = crate::words::split(line).unwrap();
        parse(&words).map(|(options, rest)| (options, rest.to_vec()))
    }

    #[test]
    fn without_options_one_task_anywhere() {
        let (options, rest) = options("prog a -3").unwrap();
        assert_eq!((options.count, options.flags, options.place.as_str()), (1, 0, ""));
        assert_eq!(options.output, Output::Log);
        assert_eq!(rest, ["prog", "a", "-3"]);
    }

    #[test]
    fn a_place_is_a_host_or_an_architecture_and_a_directory() {
        for (line, flags, place) in [
            ("-vm p", codes::TASK_HOST, "vm"),
            ("-. p", codes::TASK_HOST, "."),
            ("-vm:/tmp p", codes::TASK_HOST, "vm:/tmp"),
            ("-LINUX64:/tmp p", codes::TASK_ARCH, "LINUX64:/tmp"),
            ("-:/tmp p", 0, ":/tmp"),
            ("-~ -vm p", codes::TASK_HOST | codes::HOST_COMPL, "vm"),
            ("-? p", codes::TASK_DEBUG, ""),
            ("- p", 0, ""),
            ("--1 p", 0, ""),
            ("-%x p", 0, ""),
            ("-_x -[1] -/tmp p", 0, ""),
            ("-- --foo p", 0, ""),
        ] {
            let (options, _) = options(line).unwrap();
            assert_eq!((options.flags, options.place.as_str(), options.by_address), (flags, place, false), "{line}");
        }
        let (options, _) = options("--host=10.0.0.1:/tmp p").unwrap();
        assert_eq!(
            (options.flags, options.place.as_str(), options.by_address),
            (codes::TASK_HOST, "10.0.0.1:/tmp", true)
        );
    }

    #[test]
    fn output_goes_where_the_arrow_points() {
        for (line, output) in [
            ("-> p", Output::Console),
            ("-2 ->f p", Output::Replace("f".into())),
            ("->>f -2 p", Output::Append("f".into())),
        ] {
            assert_eq!(options(line).unwrap().0.output, output, "{line}");
        }
    }

    #[test]
    fn counts_are_numbers() {
        assert_eq!(options("-12 p").unwrap().0.count, 12);
        assert_eq!(options("-0 p").unwrap().0.count, 0);
    }

    #[test]
    fn what_cannot_be_followed_is_said() {
        assert_eq!(options("-2").unwrap_err().to_string(), "incorrect arg count");
        assert_eq!(options("-@ p").unwrap().0.trace, Some(Trace::Console));
        assert_eq!(options("-@f p").unwrap().0.trace, Some(Trace::File("f".into())));
    }
}
