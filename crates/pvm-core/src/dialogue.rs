//! The start dialogue between a master and a new daemon, before they have a link (contract 5.5): the daemon's command
//! line, the text on the daemon's standard input, and the line that the daemon prints.
use crate::codes::Code;
use crate::tid::{HOST_SHIFT, Tid};
use crate::wire::{self, Key, Started};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The number of the protocol between daemons, which a started daemon prints in its line. A daemon of PVM 3.4.6 prints
/// the same number, but no key.
pub const PROTOCOL: u32 = 2316;
/// The fragment size that both sides announce. PVM 3.4.6 needs it; hpvm ignores it.
const FRAGMENT_BYTES: u32 = 4080;
/// The bytes in one line of output of the command that starts a daemon on another host.
///
/// * Filled by: the host that is added
/// * Setting: none, no daemon prints such long lines
/// * Reached: the line is split into several
/// * Test: `a_line_without_an_end_is_cut`
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The version of the lines that hpvm adds to the dialogue of PVM 3.4.6.
const VERSION: u32 = 1;
/// The number of addresses that a new daemon announces; the same limit holds for the names that it announces.
///
/// * Filled by: the host that is added
/// * Setting: none, no host has that many
/// * Reached: further ones are ignored
/// * Test: `addresses_of_a_daemon_beyond_the_limit_are_ignored`
pub const ADDRESSES_MAX: usize = 64;

/// The command line of a daemon that is to join a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonCommand {
    /// The name under which the host is registered.
    pub name: String,
    /// The master's tid.
    pub master: Tid,
    /// The address on which the master listens.
    pub address: SocketAddr,
    /// The tid of the new host.
    pub own: Tid,
    /// The debug mask of the daemon.
    pub debug_mask: i32,
    /// The key of the master, if the command line must carry it because the daemon's standard input cannot.
    pub key: Option<Key>,
    /// Whether a user types the command. If so, nothing closes the daemon's standard input.
    pub by_hand: bool,
    /// Whether the daemon stays in the foreground.
    pub in_foreground: bool,
}

impl DaemonCommand {
    /// Returns the command line for the shell of the other host.
    pub fn command(&self, daemon: &str) -> String {
        let mode = match (self.by_hand, self.in_foreground) {
            (true, _) => "-S",
            (false, true) => "-s -f",
            (false, false) => "-s",
        };
        let key = self.key.map_or_else(String::new, |key| format!(" -k{}", hex(&key)));
        let master = hex_address(self.address);
        let mut unspecified = self.address;
        unspecified.set_port(0);
        // The daemon skips one `=` after an option's letter, so a name that begins with `=` needs an additional one.
        let equals = if self.name.starts_with('=') { "=" } else { "" };
        format!(
            "{daemon} {mode} -d{:#x}{key} -n{equals}{} {} {master} {FRAGMENT_BYTES} {} {}",
            self.debug_mask,
            quoted(&self.name),
            self.master.0 >> HOST_SHIFT,
            self.own.0 >> HOST_SHIFT,
            hex_address(unspecified),
        )
    }
}

/// Quotes a word so that every shell reads it back unchanged.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/+,=@%".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The text that the master writes to the standard input of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Greeting {
    /// `PVM_VMID`: the identifier of the virtual machine.
    pub machine: Option<String>,
    /// The master's key, or `None` if the master is PVM 3.4.6.
    pub key: Option<Key>,
    /// Whether the master sends [`CONFIRMED`] when it has read the daemon's answer. If the daemon's standard input ends
    /// without that line, the master has not read the answer.
    pub confirms: bool,
}

/// The line that confirms to a daemon that the master has read the daemon's answer.
pub const CONFIRMED: &str = "taken";
/// The line that announces that the master will send [`CONFIRMED`].
const CONFIRMS: &str = "says taken";

impl Greeting {
    /// Returns the lines.
    pub fn text(&self) -> String {
        let machine = self.machine.as_ref().map_or_else(String::new, |id| format!("PVM_VMID={id}\n"));
        let key = self.key.map_or_else(String::new, |key| format!("hpvm {VERSION}\nkey {}\n", hex(&key)));
        let confirms = if self.confirms { format!("{CONFIRMS}\n") } else { String::new() };
        format!("{machine}{key}{confirms}end\n")
    }

    /// Parses a line. Returns `true` if the line was the last one. Ignores unknown lines, which later versions may
    /// send.
    pub fn take(&mut self, line: &str) -> bool {
        let line = line.trim();
        if let Some(id) = line.split_whitespace().find_map(|word| word.strip_prefix("PVM_VMID=")) {
            self.machine = Some(id.to_owned()).filter(|id| !id.is_empty());
        } else if let Some(key) = line.strip_prefix("key ") {
            self.key = unhex(key);
        }
        self.confirms |= line == CONFIRMS;
        line == "end"
    }
}

impl Started {
    /// Returns the line that the started daemon prints.
    pub fn line(&self) -> String {
        let unspecified = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let first = self.addresses.iter().find(|address| address.is_ipv4()).or(self.addresses.first());
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        format!(
            "ddpro<{PROTOCOL}> arch<{}> ip<{}> mtu<{FRAGMENT_BYTES}> dsig<{}> wire<{}> key<{}> addr<{}> name<{}>",
            self.arch,
            hex_address(*first.unwrap_or(&unspecified)),
            self.dsig,
            wire::VERSION,
            hex(&self.key),
            addresses.join(","),
            self.names.join(","),
        )
    }
}

/// Returns the line that a daemon prints if it must not join because its master is not hpvm. A master of PVM 3.4.6
/// concludes from this line that the daemon has another protocol, and reports `PvmBadVersion`.
pub fn refusal_line(arch: &str, dsig: i32) -> String {
    format!("ddpro<0> arch<{arch}> ip<00000000:0000> mtu<{FRAGMENT_BYTES}> dsig<{dsig}>")
}

/// A line from a host on which a daemon is being started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The daemon has started.
    Started(Started),
    /// The daemon has not started; the code is the reason.
    Failed(Code),
    /// The started daemon is one of PVM 3.4.6, or has another protocol.
    OtherProtocol,
    /// The started daemon is one of hpvm, but has this version of the protocol instead of [`wire::VERSION`].
    OtherVersion(u32),
    /// Output of start-up files.
    Noise,
}

/// Parses a line that the started daemon, or a hoster in its place, has printed. If the output of the shell's start-up
/// files does not end with a newline, the line begins with that output.
pub fn read(line: &str) -> Line {
    let line = line.trim();
    let failed = [
        ("PvmDupHost", Code::DupHost),
        ("PvmCantStart", Code::CantStart),
        ("PvmBadVersion", Code::BadVersion),
        ("PvmNoHost", Code::NoHost),
        ("PvmOutOfRes", Code::OutOfRes),
        ("PvmDSysErr", Code::DSysErr),
        ("PvmBadParam", Code::BadParam),
        ("PvmDenied", Code::Denied),
        ("PvmHostFail", Code::HostFail),
    ];
    if let Some((_, code)) = failed.iter().find(|(name, _)| line.ends_with(name)) {
        return Line::Failed(*code);
    }
    match line.rfind("ddpro<") {
        Some(0) => started(line).unwrap_or(Line::OtherProtocol),
        // If the other fields are missing, a `ddpro<` in the middle of a line does not come from a daemon.
        Some(start) if is_whole(&line[start..]) => started(&line[start..]).unwrap_or(Line::OtherProtocol),
        _ => Line::Noise,
    }
}

/// Returns whether the line has the fields that every daemon prints, even one of PVM 3.4.6.
fn is_whole(line: &str) -> bool {
    let fields = fields(line).unwrap_or_default();
    ["ddpro", "arch", "ip", "mtu", "dsig"].iter().all(|name| fields.iter().any(|(known, _)| known == name))
}

/// Makes untrusted text safe to print on a terminal: removes control characters and escape sequences.
pub fn plain(text: &str) -> String {
    let (mut plain, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_escape(&mut letters),
            '\t' => plain.push(' '),
            letter if letter.is_control() => {}
            letter => plain.push(letter),
        }
    }
    plain
}

/// Skips the rest of an escape sequence: parameters up to a final letter, or a text up to its end mark, or a single
/// character.
fn skip_escape(letters: &mut std::str::Chars<'_>) {
    let last = match letters.next() {
        Some('[') => letters.find(|letter| ('@'..='~').contains(letter)),
        Some(' '..='/') => letters.find(|letter| ('0'..='~').contains(letter)),
        Some(']' | 'P' | 'X' | '^' | '_') => letters.find(|letter| matches!(letter, '\u{7}' | '\u{1b}' | '\u{9c}')),
        _ => None,
    };
    if last == Some('\u{1b}') {
        // The end mark of a text can be two characters: the escape character, which was read above, and a second one.
        let _ = letters.next();
    }
}

fn started(line: &str) -> Option<Line> {
    let fields = fields(line)?;
    let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    if field("ddpro")? != PROTOCOL.to_string() {
        return None;
    }
    let version: u32 = field("wire")?.parse().ok()?;
    if version != wire::VERSION {
        return Some(Line::OtherVersion(version));
    }
    let list = |name: &str| field(name).unwrap_or("").split(',').filter(|word| !word.is_empty());
    let addresses: Vec<SocketAddr> = list("addr").take(ADDRESSES_MAX).filter_map(|one| one.parse().ok()).collect();
    Some(Line::Started(Started {
        arch: field("arch").filter(|arch| !arch.is_empty() && !arch.contains(char::is_control))?.to_owned(),
        dsig: field("dsig")?.parse().ok()?,
        key: unhex(field("key")?)?,
        names: list("name")
            .take(ADDRESSES_MAX)
            .filter(|name| !name.contains(char::is_control))
            .map(str::to_owned)
            .collect(),
        addresses,
    }))
}

/// Returns the `name<value>` fields of a line, or `None` if a field begins inside another field.
fn fields(line: &str) -> Option<Vec<(&str, &str)>> {
    let (mut fields, mut rest) = (Vec::new(), line);
    while let Some((name, after)) = rest.split_once('<') {
        let (value, more) = after.split_once('>')?;
        if value.contains('<') {
            return None;
        }
        fields.push((name.trim_start(), value));
        rest = more;
    }
    Some(fields)
}

/// Returns an address in hexadecimal, such as `c0000202:d79d`.
fn hex_address(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) => hex(&ip.octets()),
        IpAddr::V6(ip) => hex(&ip.octets()),
    };
    format!("{ip}:{:04x}", address.port())
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses the hexadecimal digits of a key.
pub fn unhex(text: &str) -> Option<Key> {
    let text = text.trim().as_bytes();
    let mut key = Key::default();
    if text.len() != 2 * key.len() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(text.chunks(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = [0xa5; 32];

    fn call() -> DaemonCommand {
        DaemonCommand {
            name: "h3".into(),
            master: Tid::host_number(1),
            address: "192.0.2.2:55197".parse().unwrap(),
            own: Tid::host_number(2),
            debug_mask: 0,
            key: None,
            by_hand: false,
            in_foreground: false,
        }
    }

    #[test]
    fn the_command_has_the_form_of_pvm_3_4_6() {
        let text = "pvmd -s -d0x0 -nh3 1 c0000202:d79d 4080 2 c0000202:0000";
        assert_eq!(call().command("pvmd"), text);
        let by_hand = DaemonCommand { key: Some(KEY), by_hand: true, name: "a b".into(), ..call() };
        let text = format!("pvmd -S -d0x0 -k{} -n'a b' 1 c0000202:d79d 4080 2 c0000202:0000", "a5".repeat(32));
        assert_eq!(by_hand.command("pvmd"), text);
    }

    #[test]
    fn a_field_inside_of_another_is_rejected() {
        let line =
            |arch: &str| Started { arch: arch.into(), dsig: 7, addresses: vec![], key: KEY, names: vec![] }.line();
        assert_eq!(read(&line("LINUX64 dsig<3")), Line::OtherProtocol);
        assert!(matches!(read(&line("LINUX64> xdsig<3")), Line::Started(Started { dsig: 7, .. })));
    }

    #[test]
    fn output_of_start_up_files_may_precede_the_line() {
        let started = Started { arch: "LINUX64".into(), dsig: 7, addresses: vec![], key: KEY, names: vec!["h".into()] };
        for noise in ["Welcome", "$ ", "ddpro<", "a<b> ", "\u{1b}]0;title\u{7}", "\u{1b}["] {
            assert_eq!(read(&format!("{noise}{}", started.line())), Line::Started(started.clone()), "{noise}");
        }
        assert_eq!(read("hello PvmDupHost"), Line::Failed(Code::DupHost));
        let old = "ddpro<2316> arch<LINUX64> ip<c0000202:adc3> mtu<4080> dsig<4230209>";
        assert_eq!(read(&format!("Welcome{old}")), Line::OtherProtocol);
        let odd = Started { arch: "L\u{1b}[2J".into(), names: vec!["n\r".into()], ..started };
        assert_eq!(read(&odd.line()), Line::OtherProtocol);
    }

    #[test]
    fn untrusted_text_cannot_control_a_terminal() {
        let text =
            "\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}a\tb\r\u{8}\u{9b}c\u{1b}(Bd \u{1b}]8;;x\u{1b}\\ü\u{1b}[";
        assert_eq!(plain(text), "red a bcd ü");
        assert_eq!(plain("as it is: <x> 100%"), "as it is: <x> 100%");
    }

    #[test]
    fn quoted_names_stay_one_word() {
        for (word, text) in [("h2.example.org", "h2.example.org"), ("", "''"), ("a;b", "'a;b'"), ("a'$b", r"'a'\''$b'")]
        {
            assert_eq!(quoted(word), text);
        }
    }

    #[test]
    fn the_greeting_is_read_as_it_was_written() {
        for (machine, confirms) in [(None, false), (Some("x".to_owned()), true)] {
            let greeting = Greeting { machine, key: Some(KEY), confirms };
            let mut read = Greeting::default();
            let ends: Vec<bool> = greeting.text().lines().map(|line| read.take(line)).collect();
            assert_eq!(read, greeting);
            assert!(ends.iter().rev().skip(1).all(|end| !end) && ends.last() == Some(&true));
        }
    }

    #[test]
    fn addresses_of_a_daemon_beyond_the_limit_are_ignored() {
        let addresses = vec![SocketAddr::from(([192, 0, 2, 1], 7)); ADDRESSES_MAX + 1];
        let names = vec!["h".to_owned(); ADDRESSES_MAX + 1];
        let started = Started { arch: "LINUX64".into(), dsig: 7, addresses, key: KEY, names };
        let Line::Started(read) = read(&started.line()) else { panic!("not read") };
        assert_eq!((read.addresses.len(), read.names.len()), (ADDRESSES_MAX, ADDRESSES_MAX));
    }

    #[test]
    fn a_daemon_of_pvm_3_4_6_is_of_another_protocol() {
        assert_eq!(read("ddpro<2316> arch<LINUX64> ip<c0000202:adc3> mtu<4080> dsig<4230209>\n"), Line::OtherProtocol);
        assert_eq!(read(&refusal_line("LINUX64", 1)), Line::OtherProtocol);
        assert_eq!(read("PvmDupHost\n"), Line::Failed(Code::DupHost));
        assert_eq!(read("Welcome to this host, ddpro<2316>"), Line::Noise);
    }

    #[test]
    fn another_version_of_hpvm_is_distinguished_from_another_pvm() {
        let started = Started { arch: "LINUX64".into(), dsig: 7, addresses: vec![], key: KEY, names: vec![] };
        let (line, own) = (started.line(), format!("wire<{}>", wire::VERSION));
        assert_eq!(read(&line.replace(&own, "wire<77>")), Line::OtherVersion(77));
        assert_eq!(read(&line.replace(&own, "")), Line::OtherProtocol);
    }

    proptest! {
        #[test]
        fn the_line_of_a_daemon_is_parsed_as_it_was_written(
            arch in "[A-Z0-9]{1,12}", dsig: i32, key: Key,
            hosts in proptest::collection::vec((any::<IpAddr>(), any::<u16>()), 0..9),
            names in proptest::collection::vec("[a-z0-9.-]{1,20}", 0..4)
        ) {
            let addresses = hosts.into_iter().map(SocketAddr::from).collect();
            let started = Started { arch, dsig, addresses, key, names };
            prop_assert_eq!(read(&started.line()), Line::Started(started));
        }

        #[test]
        fn no_line_does_harm(line in "(ddpro<2316> )?[a-z<>0-9 :,]{0,80}") {
            let _ = read(&line);
        }
    }
}
