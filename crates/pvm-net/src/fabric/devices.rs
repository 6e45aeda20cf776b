//! Whether the host has a device of a network that passes the kernel by.
use std::path::Path;

/// Where the system lists such devices: InfiniBand, RoCE and EFA in the first, Slingshot in the others.
const PLACES: [&str; 3] = ["/sys/class/infiniband", "/sys/class/cxi", "/sys/class/cxi_user"];

/// Returns whether there is a device that a provider of [`Setting::Auto`](super::Setting::Auto) could use. It takes some
/// microseconds; libfabric, which knows more, takes milliseconds and megabytes to load.
pub fn has_devices() -> bool {
    PLACES.iter().any(|place| has_entries(Path::new(place)))
}

fn has_entries(place: &Path) -> bool {
    std::fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_entries_or_that_is_not_there_has_no_devices() {
        let place = std::env::temp_dir().join(format!("hpvm-devices-{}", std::process::id()));
        assert!(!has_entries(&place));
        std::fs::create_dir(&place).unwrap();
        assert!(!has_entries(&place));
        std::fs::create_dir(place.join("mlx5_0")).unwrap();
        assert!(has_entries(&place));
        std::fs::remove_dir_all(&place).unwrap();
    }
}
