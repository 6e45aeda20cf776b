//! Which provider to take.
use super::raw::Candidate;
use std::fmt;
use std::str::FromStr;

/// The value of a setting: `auto`, `off`, or a provider with or without a domain, such as `tcp`, `tcp;eth0` or
/// `verbs;ofi_rxm;mlx5_0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Setting {
    /// The best of the networks that pass the kernel by, if there is one.
    #[default]
    Auto,
    /// None.
    Off,
    /// This one.
    Named {
        /// libfabric's name of the provider, with the utility providers above it.
        provider: String,
        /// The name of the domain; without, the first that other hosts can reach.
        domain: Option<String>,
    },
}

/// A value that names no provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotASetting;

impl fmt::Display for NotASetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected auto, off, or PROVIDER[;DOMAIN]")
    }
}

impl std::error::Error for NotASetting {}

impl FromStr for Setting {
    type Err = NotASetting;

    fn from_str(text: &str) -> Result<Setting, NotASetting> {
        match text {
            "auto" => return Ok(Setting::Auto),
            "off" => return Ok(Setting::Off),
            _ => {}
        }
        let mut words = text.split(';');
        let mut provider = words.next().filter(|name| is_name(name)).ok_or(NotASetting)?.to_owned();
        let mut domain = None;
        for word in words {
            // Utility providers are part of the provider's name.
            if word.starts_with("ofi_") && domain.is_none() && is_name(word) {
                provider = format!("{provider};{word}");
            } else if domain.is_none() && is_name(word) {
                domain = Some(word.to_owned());
            } else {
                return Err(NotASetting);
            }
        }
        Ok(Setting::Named { provider, domain })
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic() && c != ';')
}

impl Setting {
    /// Returns the provider that is named, if one is.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Setting::Named { provider, .. } => Some(provider),
            Setting::Auto | Setting::Off => None,
        }
    }

    /// Returns the same setting with this domain.
    #[cfg(test)]
    pub fn with_domain(self, name: &str) -> Setting {
        match self {
            Setting::Named { provider, .. } => Setting::Named { provider, domain: Some(name.to_owned()) },
            other => other,
        }
    }

    /// Returns the same setting with the name that the provider has in other versions of libfabric, if it has one.
    pub fn by_former_name(&self) -> Option<Setting> {
        let Setting::Named { provider, domain } = self else { return None };
        let (_, former) = FORMER_NAMES.iter().find(|(name, _)| name == provider)?;
        Some(Setting::Named { provider: (*former).to_owned(), domain: domain.clone() })
    }

    /// Returns what the setting looks for.
    pub fn in_words(&self) -> String {
        match self {
            Setting::Auto => format!("one of the providers {}", AUTOMATIC.join(", ")),
            Setting::Off => "nothing".into(),
            Setting::Named { provider, domain: None } => format!("the provider {provider}"),
            Setting::Named { provider, domain: Some(domain) } => {
                format!("the provider {provider} with the domain {domain}")
            }
        }
    }
}

/// The providers that `auto` takes, the best first: those that pass the kernel by and start no thread. Others are used
/// only by name: `tcp`, `udp;ofi_rxd` and `sockets` are no faster than the TCP connections that there are anyway, `psm2`,
/// `psm3` and `opx` may start threads, and `shm` leads to no other host.
const AUTOMATIC: [&str; 3] = ["cxi", "efa", "verbs;ofi_rxm"];

/// Other names of a provider in some versions of libfabric. The one that connects any two endpoints by TCP itself was
/// called `net` in 1.17.
const FORMER_NAMES: [(&str, &str); 1] = [("tcp", "net")];

/// libfabric's numbers of the forms of addresses that are IPv4 addresses, and IPv6 addresses.
const ADDRESS_IPV4: u32 = 2;
const ADDRESS_IPV6: u32 = 3;

/// Returns the position of the candidate to take. Earlier candidates are preferred, since libfabric sorts them.
pub fn choose(setting: &Setting, candidates: &[Candidate]) -> Option<usize> {
    let offers: Vec<Offer<'_>> = candidates.iter().map(Offer::of).collect();
    choose_of(setting, &offers)
}

/// What the choice depends on.
struct Offer<'a> {
    provider: &'a str,
    domain: &'a str,
    fabric: &'a str,
    address_format: u32,
}

impl Offer<'_> {
    fn of(candidate: &Candidate) -> Offer<'_> {
        Offer {
            provider: &candidate.provider,
            domain: &candidate.domain,
            fabric: &candidate.fabric,
            address_format: candidate.address_format,
        }
    }

    /// Returns whether addresses of this kind make sense on other hosts: not the loopback interface, and no link-local
    /// addresses, which need the name of an interface.
    fn leads_away(&self) -> bool {
        self.domain != "lo" && self.domain != "shm" && !self.fabric.starts_with("fe80:")
    }

    /// Returns a lower number for addresses that more hosts have.
    fn rank(&self) -> u32 {
        match self.address_format {
            ADDRESS_IPV4 => 0,
            ADDRESS_IPV6 => 1,
            _ => 0,
        }
    }
}

fn choose_of(setting: &Setting, offers: &[Offer<'_>]) -> Option<usize> {
    let best = |fits: &dyn Fn(&Offer<'_>) -> bool| {
        let fitting = offers.iter().enumerate().filter(|(_, offer)| fits(offer));
        fitting.min_by_key(|(_, offer)| offer.rank()).map(|(index, _)| index)
    };
    match setting {
        Setting::Off => None,
        Setting::Auto => AUTOMATIC.iter().find_map(|name| best(&|offer| offer.provider == *name && offer.leads_away())),
        Setting::Named { provider, domain: Some(domain) } => {
            best(&|offer| offer.provider == provider && offer.domain == domain)
        }
        Setting::Named { provider, domain: None } => best(&|offer| offer.provider == provider && offer.leads_away()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(provider: &str, domain: Option<&str>) -> Setting {
        Setting::Named { provider: provider.into(), domain: domain.map(str::to_owned) }
    }

    #[test]
    fn a_setting_names_a_provider_its_utility_provider_and_a_domain() {
        let parsed = |text: &str| text.parse::<Setting>();
        assert_eq!(parsed("auto"), Ok(Setting::Auto));
        assert_eq!(parsed("off"), Ok(Setting::Off));
        assert_eq!(parsed("tcp"), Ok(named("tcp", None)));
        assert_eq!(parsed("tcp;eth0"), Ok(named("tcp", Some("eth0"))));
        assert_eq!(parsed("verbs;ofi_rxm"), Ok(named("verbs;ofi_rxm", None)));
        assert_eq!(parsed("verbs;ofi_rxm;mlx5_0"), Ok(named("verbs;ofi_rxm", Some("mlx5_0"))));
        assert_eq!(named("tcp", Some("eth0")).by_former_name(), Some(named("net", Some("eth0"))));
        assert_eq!(named("tcp;ofi_rxm", None).by_former_name(), None);
        for wrong in ["", ";", "tcp;", ";eth0", "tcp;eth0;eth1", "tcp;eth0;ofi_rxm", "t cp"] {
            assert_eq!(parsed(wrong), Err(NotASetting), "{wrong}");
        }
    }

    #[test]
    fn auto_takes_the_best_network_without_the_kernel_and_never_tcp() {
        let offer = |provider, domain, fabric, address_format| Offer { provider, domain, fabric, address_format };
        let mut offers = vec![
            offer("tcp", "eth0", "10.0.0.0/8", ADDRESS_IPV4),
            offer("psm3", "irdma0", "RoCE", 14),
            offer("verbs;ofi_rxm", "mlx5_0", "fe80:0:0:0", ADDRESS_IPV6),
            offer("verbs;ofi_rxm", "mlx5_0", "IB-0xfe80000000000000", ADDRESS_IPV6),
            offer("verbs;ofi_rxm", "mlx5_0", "192.168.1.0/24", ADDRESS_IPV4),
            offer("shm", "shm", "shm", 9),
        ];
        assert_eq!(choose_of(&Setting::Auto, &offers), Some(4));
        offers.push(offer("cxi", "cxi0", "cxi", 17));
        assert_eq!(choose_of(&Setting::Auto, &offers), Some(6));
        assert_eq!(choose_of(&Setting::Auto, &offers[..2]), None);
        assert_eq!(choose_of(&named("verbs;ofi_rxm", None), &offers), Some(4));
        assert_eq!(choose_of(&named("psm3", Some("irdma0")), &offers), Some(1));
        assert_eq!(choose_of(&named("psm3", Some("irdma1")), &offers), None);
        assert_eq!(choose_of(&named("shm", None), &offers), None);
        assert_eq!(choose_of(&Setting::Off, &offers), None);
    }

    #[test]
    fn a_domain_by_name_may_be_the_loopback_interface() {
        let offer = |domain, fabric, address_format| Offer { provider: "tcp", domain, fabric, address_format };
        let offers = [
            offer("lo", "::1/128", ADDRESS_IPV6),
            offer("lo", "127.0.0.1/32", ADDRESS_IPV4),
            offer("eth0", "fe80::/64", ADDRESS_IPV6),
            offer("eth0", "fd00::/64", ADDRESS_IPV6),
        ];
        assert_eq!(choose_of(&named("tcp", Some("lo")), &offers), Some(1));
        assert_eq!(choose_of(&named("tcp", None), &offers), Some(3));
    }
}
