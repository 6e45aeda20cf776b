//! What is known of libfabric's providers.

/// Providers that send nothing from a peer's region any more when the peer has reported that it was read. Others may send it
/// again, as those above datagrams do, and are given memory only that stays.
const NEVER_REPEATING: [&str; 5] = ["tcp", "net", "tcp;ofi_rxm", "cxi", "verbs;ofi_rxm"];

/// Returns whether the provider makes its messages of datagrams that may be lost.
pub fn is_above_datagrams(provider: &str) -> bool {
    provider.ends_with(";ofi_rxd")
}

/// Returns whether memory that is needed only until it was read may be offered with this provider.
pub fn may_lend(provider: &str) -> bool {
    NEVER_REPEATING.contains(&provider)
}
