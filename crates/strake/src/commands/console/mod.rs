//! `strake console`: the page of the arrays, served on the loopback to the browser of this user.
//!
//! Order of a request: the name that it asks for (`guard`) → the path below which all is served →
//! a link's token, or a session (`session`) → a file of the page, or the daemon's socket
//! (`daemon`).
//!
//! Invariants: it listens at 127.0.0.1 alone; nothing but a link's token is answered without a
//! session; a token or a session is never printed twice and never logged. What the page may do is
//! what this user may do: the daemon's socket decides. Deliberately absent: TLS, names and
//! passwords of users, other hosts; Cockpit has these.

mod daemon;
mod guard;
mod page;
mod session;

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION, SET_COOKIE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use crate::cli::args::console::ConsoleArgs;
use crate::cli::{Context, DONE, Ended};
use crate::commands::console::guard::Head;
use crate::commands::console::session::{OfSession, Sessions};
use crate::common::errors::{Code, Failure};
use crate::common::places::{self, Busy, Idle};
use crate::common::process;

/// Connections at once: a browser has a few for each page. For a client beyond these, the one that
/// has been idle longest is closed.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take for the head of a request, and be idle between two.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// How long nothing is accepted after that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// What all requests need.
#[derive(Debug)]
struct Console {
    sessions: Sessions,
    socket: PathBuf,
}

impl AsRef<Sessions> for Console {
    fn as_ref(&self) -> &Sessions {
        &self.sessions
    }
}

/// What `strake console` prints.
#[derive(Debug, Serialize)]
struct Opened {
    /// Opens the page, once.
    url: String,
    /// So long the link can be used.
    expires_s: u64,
}

pub(crate) fn run(context: &Context, args: &ConsoleArgs) -> Ended {
    process::runtime()?.block_on(async {
        // 0 is a free one.
        let asked = args.port.unwrap_or(0);
        let listener = listen(asked).await?;
        let port = listener.local_addr().map_err(|e| unheard(asked, &e))?;
        let port = port.port();
        let (sessions, token) = Sessions::new(port, args.expires)?;
        let root = sessions.root();
        let opened = Opened {
            url: format!("http://127.0.0.1:{port}{root}?token={token}"),
            expires_s: args.expires.as_secs(),
        };
        context.say(&opened, |opened| {
            format!(
                "Open this link in a browser on this machine within {} s. It works once:\n\
                 {}\nAnother browser needs a link of its own: run strake console once more. \
                 Ctrl-C ends the console.\n",
                opened.expires_s, opened.url
            )
        });
        let console = Console {
            sessions,
            socket: context.dir.socket(),
        };
        tokio::select! {
            () = accept(Arc::new(console), &listener) => {}
            // Where it cannot be caught, the signal ends the process.
            Ok(()) = tokio::signal::ctrl_c() => {}
        }
        Ok(DONE)
    })
}

async fn listen(port: u16) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    bound.map_err(|error| unheard(port, &error))
}

/// Why a port cannot be had.
fn unheard(port: u16, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let found = format!("another program listens at port {port} of 127.0.0.1");
            Failure::new(Code::PortInUse, found)
        }
        io::ErrorKind::PermissionDenied => {
            let found = format!("this user may not listen at port {port} of 127.0.0.1");
            let cure = "use --port with 1024 or more, or omit it for a free port";
            Failure::new(Code::Permission, found).cure(cure)
        }
        _ => Failure::io(format!("listening at port {port} of 127.0.0.1"), error),
    }
}

async fn accept(console: Arc<Console>, listener: &TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let idle = Idle::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            idle.close_one();
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let place = places::place(&places, &idle).await;
        let (console, idle) = (Arc::clone(&console), idle.clone());
        tokio::spawn(async move {
            connection(console, &idle, stream).await;
            drop(place);
        });
    }
}

async fn connection(console: Arc<Console>, idle: &Idle, stream: TcpStream) {
    let end = Arc::new(Notify::new());
    idle.insert(&end);
    let answers = service_fn(|request: Request<Incoming>| {
        let (console, busy) = (Arc::clone(&console), Busy::new(idle, &end));
        async move {
            let answer = guard::sealed(answer(&console, request).await);
            Ok::<_, Infallible>(answer.map(|body| busy.until_sent(body)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .serve_connection(TokioIo::new(stream), answers);
    tokio::select! {
        // How it ends concerns its client alone.
        _ = connection => {}
        () = end.notified() => {}
    }
    idle.remove(&end);
}

async fn answer(console: &Arc<Console>, request: Request<Incoming>) -> Response<Body> {
    let head = Head::of(&request);
    if let Err(failure) = head.names_this_machine() {
        return guard::refused(StatusCode::FORBIDDEN, &failure, &head);
    }
    let stranger = || {
        let failure = Failure::new(Code::NoSession, "the request belongs to no open session");
        guard::refused(StatusCode::UNAUTHORIZED, &failure, &head)
    };
    let sessions = &console.sessions;
    let method = request.method();
    let Some(path) = sessions.within(request.uri().path()) else {
        return stranger();
    };
    let is_known = head.cookies().any(|cookie| sessions.knows(cookie));
    if let Some(token) = head
        .token()
        .filter(|_| path == "/" && *method == Method::GET)
    {
        // A browser that has used the link opens it again.
        if is_known {
            return entered(&sessions.root(), None);
        }
        return match sessions.open(token) {
            Ok(cookie) => entered(&sessions.root(), Some(&cookie)),
            Err(failure) => guard::refused(StatusCode::UNAUTHORIZED, &failure, &head),
        };
    }
    if !is_known {
        return stranger();
    }
    if !path.starts_with("/v1/") {
        return page::file(method, path);
    }
    if let Err(failure) = head.comes_from_the_page(method) {
        return guard::refused(StatusCode::FORBIDDEN, &failure, &head);
    }
    let query = request.uri().query().map(|query| format!("?{query}"));
    let target = format!("{path}{}", query.unwrap_or_default());
    let answer = daemon::pass_on(&console.socket, &target, request).await;
    // What a page follows ends with its session.
    answer.map(|body| Body::new(OfSession::new(console, body)))
}

/// Sends the browser to the page, with the cookie of its session. The address that it shows then
/// has no token.
fn entered(root: &str, cookie: Option<&str>) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    let headers = answer.headers_mut();
    for (name, value) in [(LOCATION, Some(root)), (SET_COOKIE, cookie)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    answer
}
