//! `[[alerts]]`: the channels by which the daemon tells of what is wrong.
//!
//! Invariants: a channel has a name of its own and exactly one way; what a key takes is checked
//! when the file is read. Deliberately absent: secrets. The file names the files that hold them, or
//! the credentials that systemd gives the daemon.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::common::events::{self, Severity};
use crate::config::values::{Time, Whole};

/// What may last of an array, as `events` names it.
pub(crate) const CONDITIONS: [&str; 8] = [
    "degraded",
    "array_failed",
    "unreadable_blocks",
    "undecided_strips",
    "no_spare",
    "not_started",
    "array_missing",
    "array_unresponsive",
];
/// Bytes of a name, which becomes that of a folder and a label of metrics.
const NAME_BYTES_MAX: usize = 32;

/// A channel: what the daemon tells, to which addresses, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Channel {
    /// Its name: 1 to 32 lower-case letters, digits, _ or -.
    #[schemars(example = &"ops")]
    pub(crate) name: String,
    /// What matters less is not told: "info", "warning" or "critical".
    #[serde(default = "warning")]
    #[schemars(with = "String", example = &"warning")]
    pub(crate) severity: Severity,
    /// Only these events and conditions, whatever their severity. Unless set: all.
    #[serde(default)]
    #[schemars(example = ["degraded", "drive_worn"])]
    pub(crate) events: Vec<String>,
    /// Only these arrays, by name. Unless set: all.
    #[serde(default)]
    #[schemars(example = ["data"])]
    pub(crate) arrays: Vec<String>,
    /// How often a condition that lasts is told again: 1m to 30d; 0s for never.
    #[serde(default = "daily")]
    #[schemars(example = "1d")]
    pub(crate) remind: Time<0, 2_592_000_000>,
    /// What happens within this time goes into one message: 1s to 10m.
    #[serde(default = "five_seconds")]
    #[schemars(example = "5s")]
    pub(crate) group: Time<1000, 600_000>,
    /// Messages an hour at most: 1 to 1000. What is more waits, and is counted where it is too
    /// much.
    #[serde(default = "twenty")]
    #[schemars(example = 20)]
    pub(crate) per_hour: Whole<1, 1000>,
    /// How long one attempt may take: 1s to 5m.
    #[serde(default = "half_a_minute")]
    #[schemars(example = "30s")]
    pub(crate) timeout: Time<1000, 300_000>,
    /// Mail. A channel has one of mail, webhook and exec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mail: Option<Mail>,
    /// A request to an HTTP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) webhook: Option<Webhook>,
    /// A program, without a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<Exec>,
}

fn warning() -> Severity {
    Severity::Warning
}
fn daily() -> Time<0, 2_592_000_000> {
    Time::from_secs(86_400)
}
fn five_seconds() -> Time<1000, 600_000> {
    Time::from_secs(5)
}
fn half_a_minute() -> Time<1000, 300_000> {
    Time::from_secs(30)
}
fn twenty() -> Whole<1, 1000> {
    Whole::new(20)
}

/// How a connection to a mail server is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tls {
    /// Begun in the clear and protected before anything is said; never without.
    #[default]
    Starttls,
    /// From the first byte on.
    #[serde(rename = "tls")]
    Implicit,
    /// Not at all.
    None,
}

impl Tls {
    /// The port where the server names none.
    fn port(self) -> u16 {
        match self {
            Tls::Starttls => 587,
            Tls::Implicit => 465,
            Tls::None => 25,
        }
    }
}

/// Mail, by a server (`server`) or by a program that takes mail (`sendmail`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mail {
    /// Addresses that get it.
    #[schemars(example = ["ops@example.org"])]
    pub(crate) to: Vec<String>,
    /// The address that it comes from.
    #[schemars(example = "strake@example.org")]
    pub(crate) from: String,
    /// Host, or host:port, of a server.
    #[serde(default)]
    #[schemars(example = "mail.example.org:587")]
    pub(crate) server: Option<String>,
    /// "starttls" (port 587), "tls" (465) or "none" (25).
    #[serde(default)]
    #[schemars(example = &"starttls")]
    pub(crate) tls: Tls,
    /// A file of certificates (PEM) that are believed instead of the machine's.
    #[serde(default)]
    #[schemars(example = "/etc/strake/mail-ca.pem")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The name of a login.
    #[serde(default)]
    #[schemars(example = &"strake")]
    pub(crate) user: Option<String>,
    /// The file that holds its password; of mode 0600, owned by root or the daemon's user.
    #[serde(default)]
    #[schemars(example = "/etc/strake/mail-password")]
    pub(crate) password_file: Option<PathBuf>,
    /// The credential of systemd that is its password.
    #[serde(default)]
    pub(crate) password_credential: Option<String>,
    /// The program that takes mail instead of a server: an absolute path.
    #[serde(default)]
    pub(crate) sendmail: Option<PathBuf>,
}

impl Mail {
    /// Host and port of the server.
    pub(crate) fn host_and_port(&self) -> Option<(String, u16)> {
        split(self.server.as_deref()?, self.tls.port())
    }
}

/// A POST with a JSON body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// https://… or http://…, without a user in it.
    #[serde(default)]
    #[schemars(example = "https://alerts.example.org/strake")]
    pub(crate) url: Option<String>,
    /// The file that holds the URL, where the URL is a secret; of mode 0600.
    #[serde(default)]
    pub(crate) url_file: Option<PathBuf>,
    /// The credential of systemd that is the URL.
    #[serde(default)]
    pub(crate) url_credential: Option<String>,
    /// A file of certificates (PEM) that are believed instead of the machine's.
    #[serde(default)]
    #[schemars(example = "/etc/strake/webhook-ca.pem")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The file that holds the key of the signature; of mode 0600.
    #[serde(default)]
    #[schemars(example = "/etc/strake/webhook-key")]
    pub(crate) key_file: Option<PathBuf>,
    /// The credential of systemd that is the key.
    #[serde(default)]
    pub(crate) key_credential: Option<String>,
}

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As the request's head has it.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Target {
    /// Where a URL leads.
    ///
    /// # Errors
    /// What of the URL is not understood; nothing of its path, which may be a secret.
    pub(crate) fn of(url: &str) -> Result<Target, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            other => return Err(format!("'{other}' is neither https nor http")),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        if authority.contains('@') {
            return Err("it holds a user, which belongs in no file that many read".to_owned());
        }
        if path.contains('#') || !url.chars().all(|c| c.is_ascii_graphic()) {
            return Err("it holds a fragment, a blank or a letter beyond ASCII".to_owned());
        }
        let usual = if tls { 443 } else { 80 };
        let (host, port) = split(authority, usual).ok_or("it names no host and port")?;
        Ok(Target {
            tls,
            host,
            port,
            authority: authority.to_owned(),
            path,
        })
    }
}

/// A program, without a shell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exec {
    /// An absolute path, and arguments.
    #[schemars(example = ["/usr/local/sbin/strake-alert", "--team=storage"])]
    pub(crate) command: Vec<String>,
}

/// `host`, `host:port` or `[address]:port`.
fn split(text: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (
                host,
                rest.strip_prefix(':').or(rest.is_empty().then_some("")),
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port? {
        "" => usual,
        port => port.parse().ok().filter(|&port| port > 0)?,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    (!host.is_empty() && host.chars().all(plain)).then(|| (host.to_owned(), port))
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(plain)
}

fn absolute(key: &str, path: Option<&Path>) -> Result<(), String> {
    match path {
        Some(path) if path.is_relative() => {
            Err(format!("{key}: {} is no absolute path", path.display()))
        }
        _ => Ok(()),
    }
}

/// A secret is in a file or is a credential, and the latter's name is no path.
fn secret(key: &str, file: Option<&Path>, credential: Option<&str>) -> Result<(), String> {
    absolute(&format!("{key}_file"), file)?;
    match (file, credential) {
        (Some(_), Some(_)) => Err(format!("{key}_file and {key}_credential: give one of them")),
        (_, Some(name)) if name.is_empty() || name.contains('/') || name.starts_with('.') => Err(
            format!("{key}_credential: '{name}' is no name of a credential"),
        ),
        _ => Ok(()),
    }
}

impl Mail {
    fn check(&self) -> Result<(), String> {
        if self.to.is_empty() {
            return Err("mail.to: no address".to_owned());
        }
        for (key, address) in self
            .to
            .iter()
            .map(|to| ("to", to))
            .chain([("from", &self.from)])
        {
            if address.parse::<lettre::Address>().is_err() {
                return Err(format!(
                    "mail.{key}: '{address}' is no address like ops@example.org"
                ));
            }
        }
        absolute("mail.ca_file", self.ca_file.as_deref())?;
        absolute("mail.sendmail", self.sendmail.as_deref())?;
        let credential = self.password_credential.as_deref();
        secret("mail.password", self.password_file.as_deref(), credential)?;
        let password = self.password_file.is_some() || credential.is_some();
        let host = self.host_and_port().map(|(host, _)| host);
        match (&self.server, &self.sendmail, host) {
            (None, None, _) => Err("mail: give server or sendmail".to_owned()),
            (Some(_), Some(_), _) => Err("mail: give one of server and sendmail".to_owned()),
            (Some(server), None, None) => {
                Err(format!("mail.server: '{server}' is no host, or host:port"))
            }
            (None, Some(_), _) if password || self.user.is_some() => {
                Err("mail: sendmail takes no login".to_owned())
            }
            (Some(_), None, Some(_)) if password != self.user.is_some() => {
                Err("mail: a login needs user, and password_file or password_credential".to_owned())
            }
            (Some(_), None, Some(host)) if password && self.tls == Tls::None => Err(format!(
                "mail.tls: none would send the password in the clear to {host}: starttls or tls"
            )),
            _ => Ok(()),
        }
    }
}

impl Webhook {
    fn check(&self) -> Result<(), String> {
        let credential = self.url_credential.as_deref();
        secret("webhook.url", self.url_file.as_deref(), credential)?;
        let hidden = self.url_file.is_some() || credential.is_some();
        match &self.url {
            Some(_) if hidden => {
                Err("webhook: give one of url, url_file and url_credential".to_owned())
            }
            Some(url) => match Target::of(url) {
                Ok(_) => Ok(()),
                // It may hold a password.
                Err(why) => Err(format!("webhook.url: {why}")),
            },
            None if hidden => Ok(()),
            None => Err("webhook: give url, url_file or url_credential".to_owned()),
        }
    }
}

impl Channel {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if !is_name(name) {
            return Err(format!(
                "name: '{name}' is not 1 to {NAME_BYTES_MAX} of a-z, 0-9, _ and -"
            ));
        }
        let known =
            |name: &str| CONDITIONS.contains(&name) || events::severity(name, None).is_some();
        if let Some(unknown) = self.events.iter().find(|name| !known(name)) {
            return Err(format!(
                "events: '{unknown}' is neither an event nor a condition ({})",
                CONDITIONS.join(", ")
            ));
        }
        if (1..60_000).contains(&self.remind.get().as_millis()) {
            return Err("remind: less than 1m".to_owned());
        }
        match (&self.mail, &self.webhook, &self.exec) {
            (Some(mail), None, None) => mail.check(),
            (None, Some(webhook), None) => {
                webhook.check()?;
                absolute("webhook.ca_file", webhook.ca_file.as_deref())?;
                let credential = webhook.key_credential.as_deref();
                secret("webhook.key", webhook.key_file.as_deref(), credential)
            }
            (None, None, Some(exec)) => match exec.command.first() {
                Some(program) => absolute("exec.command", Some(Path::new(program))),
                None => Err("exec.command: no program".to_owned()),
            },
            _ => Err(format!("'{name}': give one of mail, webhook and exec")),
        }
    }
}

/// Whether the channels can be used.
///
/// # Errors
/// The first that cannot, by its number, and why.
pub(super) fn check(channels: &[Channel]) -> Result<(), (usize, String)> {
    for (at, channel) in channels.iter().enumerate() {
        channel.check().map_err(|why| (at, why))?;
        let same = |other: &Channel| other.name == channel.name;
        if channels[..at].iter().any(same) {
            return Err((at, format!("two channels have the name '{}'", channel.name)));
        }
    }
    Ok(())
}

/// Where the channel of this number begins in the text of a file.
pub(super) fn place(text: &str, number: usize) -> Option<usize> {
    #[derive(Deserialize)]
    struct Places {
        alerts: Vec<toml::Spanned<IgnoredAny>>,
    }
    let places: Places = toml::from_str(text).ok()?;
    Some(places.alerts.get(number)?.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(text: &str) -> Result<Channel, String> {
        let text = format!("name = 'c'\n{text}");
        let channel: Channel = toml::from_str(&text).expect("its keys are known");
        channel.check().map(|()| channel)
    }

    #[test]
    fn what_a_channel_may_not_be_is_refused_with_the_reason() {
        let mail = "mail.to = ['a@example.org']\nmail.from = 'b@example.org'\n";
        for (text, why) in [
            (String::new(), "give one of mail, webhook and exec"),
            ("exec.command = []".to_owned(), "exec.command: no program"),
            (
                "exec.command = ['/a']\nremind = '59s'".to_owned(),
                "remind: less than 1m",
            ),
            (
                "exec.command = ['/a']\nevents = ['A b']".to_owned(),
                "'A b' is neither an event nor",
            ),
            (mail.to_owned(), "give server or sendmail"),
            (format!("{mail}mail.server = 'a b'"), "'a b' is no host"),
            (format!("{mail}mail.server = 'h:0'"), "'h:0' is no host"),
            (
                format!("{mail}mail.server = 'h'\nmail.user = 'u'"),
                "a login needs user",
            ),
            (
                format!(
                    "{mail}mail.server = 'h'\nmail.user = 'u'\nmail.password_file = '/p'\n\
                     mail.tls = 'none'"
                ),
                "would send the password in the clear to h",
            ),
            (
                format!("{mail}mail.server = 'h'\nmail.user = 'u'\nmail.password_file = 'p'"),
                "mail.password_file: p is no absolute path",
            ),
            (mail.replace("a@example.org", "a"), "'a' is no address"),
            (
                "webhook.url = 'ftp://h/'".to_owned(),
                "'ftp' is neither https nor http",
            ),
            (
                "webhook.url = 'https://u:p@h/'".to_owned(),
                "it holds a user",
            ),
            (
                "webhook.url = 'https:///x'".to_owned(),
                "it names no host and port",
            ),
            (
                "webhook.key_file = '/k'".to_owned(),
                "give url, url_file or url_credential",
            ),
            (
                "webhook.url = 'http://h'\nwebhook.key_credential = '../k'".to_owned(),
                "'../k' is no name of a credential",
            ),
        ] {
            let error = channel(&text).expect_err("not taken");
            assert!(error.contains(why), "{text}: {error}");
        }
        let one = channel("exec.command = ['/a']").expect("taken");
        let (at, why) = check(&[one.clone(), one]).expect_err("not taken");
        assert_eq!((at, why.as_str()), (1, "two channels have the name 'c'"));
    }

    #[test]
    fn a_url_has_its_parts() {
        let of = |url| Target::of(url).map(|t| (t.tls, t.host, t.port, t.path));
        let parts = |tls, host: &str, port, path: &str| Ok((tls, host.into(), port, path.into()));
        assert_eq!(of("https://h.org"), parts(true, "h.org", 443, "/"));
        assert_eq!(of("http://h:81/a/b?c=d"), parts(false, "h", 81, "/a/b?c=d"));
        assert_eq!(of("http://[::1]:81/"), parts(false, "::1", 81, "/"));
        assert_eq!(of("https://h?a"), parts(true, "h", 443, "/?a"));
        for wrong in [
            "h.org",
            "https://",
            "https://h:x/",
            "https://h/a b",
            "https://[::1/",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
