//! Which fabric the user wants.
use serde::{Deserialize, Serialize};

/// What the user wants for the messages between hosts.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// `PVM_FABRIC`: `auto`, `off`, or a provider with or without a domain. `None` if nobody has said anything.
    pub setting: Option<String>,
    /// Whether no message may travel on a fabric in clear (`PVM_FABRIC_CLEAR=never`).
    pub never_clear: bool,
}

impl Wish {
    /// Reads the variables of a process through `variable`, which returns `None` for empty ones.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Wish {
        let never_clear = variable("PVM_FABRIC_CLEAR").is_some_and(|value| value == "never");
        Wish { setting: variable("PVM_FABRIC"), never_clear }
    }

    /// Returns this wish, with what it leaves open from another one. That no message may travel in clear holds if one of
    /// them says so.
    pub fn or(&self, other: &Wish) -> Wish {
        let setting = self.setting.clone().or_else(|| other.setting.clone());
        Wish { setting, never_clear: self.never_clear || other.never_clear }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_wish_counts_and_clear_text_is_forbidden_by_any() {
        let of = |setting: &str, clear: &str| {
            let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Wish::of_variables(|name| value(if name == "PVM_FABRIC" { setting } else { clear }))
        };
        let (tcp, sealed) = (of("tcp", ""), of("", "never"));
        assert_eq!((tcp.setting.as_deref(), tcp.never_clear), (Some("tcp"), false));
        assert_eq!((sealed.setting.as_deref(), sealed.never_clear), (None, true));
        assert!(!of("", "sometimes").never_clear);
        assert_eq!(sealed.or(&tcp), tcp.or(&sealed));
        assert_eq!(of("off", "").or(&tcp).setting.as_deref(), Some("off"));
        assert_eq!(Wish::default().or(&Wish::default()), Wish::default());
    }
}
