//! PVM's names for kinds of machines (contract 5.8).

/// Returns PVM's name of a Linux machine with this processor and this pointer size in bits.
fn linux_name(processor: &str, bits: u32) -> Option<&'static str> {
    Some(match (processor, bits) {
        ("x86", _) => "LINUX",
        ("x86_64" | "aarch64" | "riscv64" | "loongarch64", _) => "LINUX64",
        ("alpha", _) => "LINUXALPHA",
        ("arm", _) => "LINUXARM",
        ("hppa", _) => "LINUXHPPA",
        ("powerpc", _) => "LINUXPPC",
        ("powerpc64", _) => "LINUXPPC64",
        ("sparc" | "sparc64", _) => "LINUXSPARC",
        ("s390x", 32) => "LINUXS390",
        ("s390x", _) => "LINUXS390X",
        ("ia64", _) => "LINUXIA64",
        _ => return None,
    })
}

/// Returns PVM's name of this kind of machine; `None` if PVM has none.
pub fn name() -> Option<&'static str> {
    match std::env::consts::OS {
        "linux" => linux_name(std::env::consts::ARCH, usize::BITS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_pvm() {
        assert_eq!(linux_name("x86_64", 64), Some("LINUX64"));
        assert_eq!(linux_name("x86", 32), Some("LINUX"));
        assert_eq!(linux_name("s390x", 64), Some("LINUXS390X"));
        assert_eq!(linux_name("pdp11", 16), None);
    }
}
