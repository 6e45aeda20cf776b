//! A look at the fabric that tasks of this host would take, for people.
use pvm_core::fabric::Wish;
use pvm_net::fabric::{Fabric, Queues, Setting};

/// Small queues: the endpoint is closed again at once.
const QUEUES: Queues =
    Queues { receives: 16, sends: 4, reads: 1, buffer_bytes: 4096, registered_bytes_max: usize::MAX };

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The user wants none.
    Unwanted,
    /// Nobody has named one, and the host has no device for which libfabric would be loaded.
    NoDevice,
    /// This provider and domain work; with the version of libfabric.
    Works(String, String),
    /// None works, for this reason. The flag is true if the user has named one.
    Broken(String, bool),
}

/// Opens the fabric that a task would take, and closes it again.
pub fn look(wish: &Wish) -> Found {
    let text = wish.setting.as_deref().unwrap_or("auto");
    let setting = match text.parse::<Setting>() {
        Ok(Setting::Off) => return Found::Unwanted,
        Ok(setting) => setting,
        Err(error) => return Found::Broken(format!("`{text}`: {error}"), true),
    };
    let is_named = setting != Setting::Auto;
    if !is_named && !pvm_net::fabric::has_devices() {
        return Found::NoDevice;
    }
    match Fabric::open(&setting, QUEUES) {
        Ok(Some(fabric)) => {
            let (major, minor) = fabric.version;
            Found::Works(format!("{};{}", fabric.provider, fabric.domain), format!("{major}.{minor}"))
        }
        Ok(None) => Found::Broken("libfabric offers no provider that passes the kernel by".into(), false),
        Err(error) => Found::Broken(error.to_string(), is_named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_wants_is_looked_for() {
        let of = |setting: &str| look(&Wish { setting: Some(setting.into()), never_clear: false });
        assert_eq!(of("off"), Found::Unwanted);
        assert!(matches!(of("tcp;a;b"), Found::Broken(reason, true) if reason.contains("PROVIDER[;DOMAIN]")));
        assert!(matches!(of("nonesuch"), Found::Broken(reason, true) if reason.contains("libfabric.so.1")));
    }
}
