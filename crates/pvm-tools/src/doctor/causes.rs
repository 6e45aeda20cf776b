//! Why a command could not be run on another host.
use super::Finding;

/// Exit status of shells that did not find a command.
const STATUS_NOT_FOUND: i32 = 127;

/// What is known about a command that has not answered.
pub struct Failure<'a> {
    /// The host, and the program that runs commands there.
    pub host: &'a str,
    pub shell: &'a str,
    /// The exit status; `None`: it did not end in time.
    pub status: Option<i32>,
    /// All that it has printed to its standard error, and the last line of this.
    pub errors: &'a str,
    pub last_error: &'a str,
}

impl Failure<'_> {
    /// Returns the finding.
    pub fn explain(&self) -> Finding {
        let Failure { host, shell, .. } = self;
        let said = self.errors.to_lowercase();
        let has = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
        let words = match self.last_error {
            "" => String::new(),
            line => format!(": {line}"),
        };
        if has(&["remote host identification has changed", "host key for"]) && has(&["changed"]) {
            return Finding::fault(
                "hostkey",
                format!("{host} shows another ssh key than before{words}"),
                format!("find out why; where the new key is right: ssh-keygen -R {host}, then ssh {host} by hand"),
            );
        }
        if has(&["host key verification failed", "host key is known", "no matching host key"]) {
            let cure = format!("log in once by hand (ssh {host}) and accept the host's key");
            return Finding::fault("hostkey", format!("the ssh key of {host} is not known here{words}"), cure);
        }
        if has(&["could not resolve", "name or service not known", "unknown host"]) {
            let cure = "correct the name, put it into /etc/hosts or DNS, or say where the host is by ip=";
            return Finding::fault("name", format!("{shell} does not know the name {host}{words}"), cure);
        }
        if has(&["permission denied (", "permission denied, please", "authentication fail", "too many authentication"])
        {
            let cure = format!(
                "make a login without a password work (ssh-copy-id {host}), name another user by lo=, \
                                or another key in ~/.ssh/config"
            );
            return Finding::fault("key", format!("{host} refuses the keys of this user{words}"), cure);
        }
        if has(&["not available", "account has expired", "nologin", "does not exist", "not allowed"]) {
            let cure = "ask the administrator of the host for a login with a shell, or name another user by lo=";
            return Finding::fault("login", format!("this user has no login on {host}{words}"), cure);
        }
        if has(&["connection refused"]) {
            let cure = "start the service that the command needs there (sshd), or name its port in ~/.ssh/config";
            return Finding::fault("reach", format!("{host} runs no service for {shell}{words}"), cure);
        }
        if has(&["timed out", "no route to host", "unreachable"]) {
            let cure = "see whether the host is up, and whether a firewall drops packets to the port of sshd";
            return Finding::fault("reach", format!("{host} cannot be reached{words}"), cure);
        }
        match self.status {
            None => Finding::fault(
                "answer",
                format!("{shell} has not answered in time{words}"),
                "see whether the host is up, and whether its login scripts wait for input (try by hand)",
            ),
            Some(STATUS_NOT_FOUND) => Finding::fault(
                "shell",
                format!("{host} has no shell that runs commands{words}"),
                "give the user a login shell there, such as /bin/sh",
            ),
            Some(status) => Finding::fault(
                "login",
                format!("{shell} has ended with exit code {status} without running a command on {host}{words}"),
                "type the command by hand and see what it says; login scripts must not end the shell",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_has_a_cause() {
        let check = |status: Option<i32>, errors: &str| {
            let last_error = errors.lines().next_back().unwrap_or_default();
            Failure { host: "h", shell: "ssh", status, errors, last_error }.explain().check
        };
        for (errors, cause) in [
            ("joe@h: Permission denied (publickey).", "key"),
            ("Host key verification failed.", "hostkey"),
            ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "hostkey"),
            ("ssh: Could not resolve hostname h: Name or service not known", "name"),
            ("This account is currently not available.", "login"),
            ("ssh: connect to host h port 22: Connection refused", "reach"),
            ("ssh: connect to host h port 22: Connection timed out", "reach"),
            ("", "login"),
        ] {
            assert_eq!(check(Some(255), errors), cause, "{errors}");
        }
        assert_eq!((check(Some(127), ""), check(None, "")), ("shell".into(), "answer".into()));
    }
}
