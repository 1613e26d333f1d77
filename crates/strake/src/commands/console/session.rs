//! The link's token, and the session that it is traded for.
//!
//! Invariants: a token opens one session, once, and within its life; a session ends [`IDLE`] after
//! its last request and [`LIFE`] after it was opened; both are 256 random bits, compared in
//! constant time. Deliberately absent: sessions that outlive the process.

use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;

use crate::common::errors::{Code, Failure};

/// A session that has no request for so long ends.
const IDLE: Duration = Duration::from_secs(3600);
/// And each ends so long after it was opened.
const LIFE: Duration = Duration::from_secs(12 * 3600);

/// 256 random bits, as text that fits in a link and in a cookie.
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn new() -> Result<Secret, Failure> {
        let mut bits = [0; 32];
        SystemRandom::new().fill(&mut bits).map_err(|_| {
            let found = "the kernel gives no random numbers";
            Failure::new(Code::Io, found).cure("look whether getrandom or /dev/urandom is blocked")
        })?;
        Ok(Secret(
            bits.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }
    fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Cookies of one host are those of all its ports: the name says which.
    cookie: String,
    token_life: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    token: Secret,
    made: Instant,
    /// The token was used.
    session: Option<Session>,
}

#[derive(Debug)]
struct Session {
    secret: Secret,
    opened: Instant,
    seen: Instant,
}

impl Sessions {
    /// With the token of the link, which is valid for so long.
    pub(super) fn new(port: u16, token_life: Duration) -> Result<(Sessions, String), Failure> {
        let token = Secret::new()?;
        let text = token.0.clone();
        let inner = Inner {
            token,
            made: Instant::now(),
            session: None,
        };
        let sessions = Sessions {
            cookie: format!("strake-console-{port}"),
            token_life,
            inner: Mutex::new(inner),
        };
        Ok((sessions, text))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of the sessions panics")
    }

    /// Trades the token for a session: the value of `Set-Cookie`.
    pub(super) fn open(&self, token: &str) -> Result<String, Failure> {
        self.open_at(token, Instant::now())
    }

    fn open_at(&self, token: &str, now: Instant) -> Result<String, Failure> {
        let mut inner = self.lock();
        let refused = |found: String| Err(Failure::new(Code::LinkNotValid, found));
        if !inner.token.is(token) {
            return refused("the token of the link is not that of this console".to_owned());
        }
        if inner.session.is_some() {
            return refused("the link was used already, and opens one browser only".to_owned());
        }
        let age = now.saturating_duration_since(inner.made);
        if age >= self.token_life {
            return refused(format!(
                "the link is {} s old, and could be used for {} s",
                age.as_secs(),
                self.token_life.as_secs()
            ));
        }
        let secret = Secret::new()?;
        let cookie = format!(
            "{}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict",
            self.cookie,
            secret.0,
            LIFE.as_secs()
        );
        inner.session = Some(Session {
            secret,
            opened: now,
            seen: now,
        });
        Ok(cookie)
    }

    /// Whether a cookie, `name=value`, is that of the open session, which is not idle then.
    pub(super) fn knows(&self, cookie: &str) -> bool {
        self.knows_at(cookie, Instant::now())
    }

    fn knows_at(&self, cookie: &str, now: Instant) -> bool {
        let Some((name, value)) = cookie.split_once('=') else {
            return false;
        };
        let mut inner = self.lock();
        let Some(session) = inner.session.as_mut().filter(|_| name == self.cookie) else {
            return false;
        };
        let is_open = now.saturating_duration_since(session.opened) < LIFE
            && now.saturating_duration_since(session.seen) < IDLE;
        let is_it = session.secret.is(value);
        if is_it && is_open {
            session.seen = now;
        }
        is_it && is_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN_LIFE: Duration = Duration::from_secs(300);

    fn opened(now: Instant) -> (Sessions, String) {
        let (sessions, token) = Sessions::new(4711, TOKEN_LIFE).expect("random numbers");
        let set = sessions.open_at(&token, now).expect("a session");
        let cookie = set.split(';').next().expect("a cookie").to_owned();
        (sessions, cookie)
    }

    #[test]
    fn a_token_opens_one_session_once_and_in_time() {
        let begun = Instant::now();
        let (sessions, token) = Sessions::new(4711, TOKEN_LIFE).expect("random numbers");
        assert_eq!(token.len(), 64);
        for wrong in ["", "x", &token[1..], &token.replace(&token[..1], "g")] {
            let failure = sessions.open_at(wrong, begun).expect_err("a wrong token");
            assert_eq!(failure.code, Code::LinkNotValid, "{wrong}");
        }
        let late = begun + TOKEN_LIFE + Duration::from_secs(1);
        let failure = sessions.open_at(&token, late).expect_err("too late");
        assert!(
            failure.found.contains("could be used for 300 s"),
            "{failure:?}"
        );
        let cookie = sessions.open_at(&token, begun).expect("a session");
        for part in ["strake-console-4711=", "; HttpOnly", "; SameSite=Strict"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains(&token));
        let failure = sessions.open_at(&token, begun).expect_err("used");
        assert!(failure.found.contains("used already"), "{failure:?}");
        assert!(!format!("{sessions:?}").contains(&token));
    }

    #[test]
    fn a_session_ends_when_it_is_idle_and_after_its_life() {
        let begun = Instant::now();
        let (sessions, cookie) = opened(begun);
        let at = |minutes: u64| begun + Duration::from_secs(60 * minutes);
        assert!(!sessions.knows_at("strake-console-4711=", begun));
        assert!(!sessions.knows_at(&cookie.replace("4711", "4712"), begun));
        assert!(sessions.knows_at(&cookie, at(59)));
        assert!(sessions.knows_at(&cookie, at(59 + 59)));
        assert!(!sessions.knows_at(&cookie, at(59 + 59 + 60)));
        let (sessions, cookie) = opened(begun);
        for hour in 0..24 {
            let known = sessions.knows_at(&cookie, at(30 * hour));
            assert_eq!(known, hour < 24, "{hour}");
        }
        assert!(!sessions.knows_at(&cookie, at(12 * 60)));
    }
}
