//! The link's token, the session that it is traded for, and the path below which both are valid.
//!
//! Invariants: a token opens one session, once, and within its life; a session ends [`IDLE`] after
//! its last request and [`LIFE`] after it was opened; both are 256 random bits, compared in
//! constant time. A browser sends the cookies of a host to all ports of it, and so to the servers
//! of other users: the cookie is bound to a path of 128 random bits, which no other server knows.
//! What a session follows ends with it. Deliberately absent: sessions that outlive the process.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use tokio::time::Sleep;

use crate::common::errors::{Code, Failure};

/// A session that has no request for so long ends.
const IDLE: Duration = Duration::from_secs(3600);
/// And each ends so long after it was opened.
const LIFE: Duration = Duration::from_secs(12 * 3600);

/// Random bits, as text that fits in a link and in a cookie.
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn new<const BYTES: usize>() -> Result<Secret, Failure> {
        let mut bits = [0; BYTES];
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
    /// The first part of the path of all that is served.
    place: Secret,
    token_life: Duration,
    idle: Duration,
    life: Duration,
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

impl Session {
    /// How long it stays open if nothing is asked.
    fn left(&self, of: &Sessions, now: Instant) -> Duration {
        let left = |from: Instant, most: Duration| {
            most.saturating_sub(now.saturating_duration_since(from))
        };
        left(self.opened, of.life).min(left(self.seen, of.idle))
    }
}

impl Sessions {
    /// With the token of the link, which is valid for so long.
    pub(super) fn new(port: u16, token_life: Duration) -> Result<(Sessions, String), Failure> {
        let token = Secret::new::<32>()?;
        let text = token.0.clone();
        let inner = Inner {
            token,
            made: Instant::now(),
            session: None,
        };
        let sessions = Sessions {
            cookie: format!("strake-console-{port}"),
            place: Secret::new::<16>()?,
            token_life,
            idle: IDLE,
            life: LIFE,
            inner: Mutex::new(inner),
        };
        Ok((sessions, text))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of the sessions panics")
    }

    /// The path of the page: all that is served is below it.
    pub(super) fn root(&self) -> String {
        format!("/{}/", self.place.0)
    }

    /// What a path asks for below that of the page, from `/` on.
    pub(super) fn within<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix('/')?;
        let end = rest.find('/')?;
        self.place.is(&rest[..end]).then_some(&rest[end..])
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
        let secret = Secret::new::<32>()?;
        let cookie = format!(
            "{}={}; Path={}; Max-Age={}; HttpOnly; SameSite=Strict",
            self.cookie,
            secret.0,
            self.root(),
            self.life.as_secs()
        );
        inner.session = Some(Session {
            secret,
            opened: now,
            seen: now,
        });
        Ok(cookie)
    }

    /// How long the session stays open if nothing is asked; zero where it is over.
    fn left(&self) -> Duration {
        let inner = self.lock();
        let session = inner.session.as_ref();
        session.map_or(Duration::ZERO, |session| session.left(self, Instant::now()))
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
        let is_open = !session.left(self, now).is_zero();
        let is_it = session.secret.is(value);
        if is_it && is_open {
            session.seen = now;
        }
        is_it && is_open
    }
}

/// A body that ends with the session, at the latest.
pub(super) struct OfSession<S> {
    sessions: Arc<S>,
    body: Body,
    /// Until then there is a session.
    until: Pin<Box<Sleep>>,
}

impl<S: AsRef<Sessions>> OfSession<S> {
    pub(super) fn new(sessions: &Arc<S>, body: Body) -> OfSession<S> {
        OfSession {
            until: Box::pin(tokio::time::sleep(sessions.as_ref().as_ref().left())),
            sessions: Arc::clone(sessions),
            body,
        }
    }
}

impl<S: AsRef<Sessions>> hyper::body::Body for OfSession<S> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.until.as_mut().poll(context).is_ready() {
            let left = self.sessions.as_ref().as_ref().left();
            if left.is_zero() {
                return Poll::Ready(None);
            }
            self.until
                .as_mut()
                .reset(tokio::time::Instant::now() + left);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

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
        let path = format!("; Path={};", sessions.root());
        let parts = ["strake-console-4711=", "; HttpOnly", "; SameSite=Strict"];
        for part in parts.iter().chain(&[path.as_str()]) {
            assert!(cookie.contains(part), "{cookie}");
        }
        assert!(!cookie.contains(&token));
        let failure = sessions.open_at(&token, begun).expect_err("used");
        assert!(failure.found.contains("used already"), "{failure:?}");
        assert!(!format!("{sessions:?}").contains(&token));
    }

    #[test]
    fn nothing_is_served_but_below_a_path_that_nobody_else_knows() {
        let (sessions, _) = Sessions::new(4711, TOKEN_LIFE).expect("random numbers");
        let root = sessions.root();
        assert_eq!(root.len(), 34, "{root}");
        let (other, _) = Sessions::new(4711, TOKEN_LIFE).expect("random numbers");
        assert_ne!(other.root(), root);
        assert_eq!(sessions.within(&root), Some("/"));
        assert_eq!(sessions.within(&format!("{root}v1/x")), Some("/v1/x"));
        for elsewhere in [
            "",
            "/",
            "//",
            "/v1/x",
            &root[..33],
            &other.root(),
            &root[1..],
        ] {
            assert_eq!(sessions.within(elsewhere), None, "{elsewhere}");
        }
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

    /// A body of which nothing comes.
    struct Silent;

    impl hyper::body::Body for Silent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Pending
        }
    }

    #[test]
    fn what_is_followed_ends_with_the_session() {
        struct Holder(Sessions);
        impl AsRef<Sessions> for Holder {
            fn as_ref(&self) -> &Sessions {
                &self.0
            }
        }
        let runtime = crate::common::process::runtime().expect("works");
        runtime.block_on(async {
            let begun = Instant::now();
            let (mut sessions, cookie) = opened(begun);
            sessions.idle = Duration::from_millis(300);
            let holder = Arc::new(Holder(sessions));
            let mut followed = OfSession::new(&holder, Body::new(Silent));
            tokio::time::sleep(Duration::from_millis(100)).await;
            let seen = Instant::now();
            // What is asked meanwhile keeps the session open, and so the stream.
            let kept = holder.0.knows(&cookie);
            let end = tokio::time::timeout(Duration::from_secs(60), followed.frame());
            assert!(end.await.expect("it ends").is_none());
            let least = if kept { seen } else { begun };
            assert!(least.elapsed() >= Duration::from_millis(300));
            assert!(!holder.0.knows(&cookie));
        });
    }
}
