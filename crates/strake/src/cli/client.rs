//! The CLI as the API's client: one request over the daemon's Unix socket.
//!
//! Invariants: an error of the daemon arrives as the [`Failure`] that it was; no wait is without a
//! bound. A change may take its time (a stop waits for a member that hangs), so while its answer is
//! waited for the daemon is asked now and then whether it lives. Deliberately absent: retries; a
//! command that changes something is not sent twice.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::common::errors::{Code, Failure, FailureJson};
use crate::daemon::state::Dir;

/// A daemon that answers.
#[derive(Debug)]
pub(crate) struct Client {
    runtime: Runtime,
    socket: PathBuf,
}

/// How long a connection to the daemon may take.
pub(crate) const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long the daemon may take to say that it lives: that waits for no device and no array.
const LIFE_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked that while its answer is waited for.
const LIFE_PERIOD: Duration = Duration::from_secs(5);
/// How long a daemon that lives may take for an answer: longer than anything that it waits for,
/// also where a start that is refused late stops the array again (three waits of 320 s).
const ANSWER_PATIENCE: Duration = Duration::from_secs(1200);

pub(crate) fn silent(what: &str, patience: Duration) -> Failure {
    let seconds = patience.as_secs();
    let found = format!("the daemon does not {what} within {seconds} s");
    Failure::new(Code::DaemonSilent, found)
}

/// Connects, also where the daemon is slow to accept: then its queue is full for a moment.
pub(crate) async fn connect(socket: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => return other,
        }
    }
}

/// Refuses what another user answers with: neither root's daemon nor this user's.
fn is_ours(stream: &UnixStream, socket: &Path) -> Result<(), Failure> {
    let peer = stream.peer_cred();
    let user = peer
        .map_err(|error| Failure::io(socket.display(), &error))?
        .uid();
    if user == 0 || user == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let found = format!("{}: user {user} listens there", socket.display());
    Err(Failure::new(Code::StateDir, found))
}

/// What comes of a question to the daemon, for as long as it lives.
async fn while_it_lives<T>(
    socket: &Path,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        answer = answer => answer,
        silent = until_silent(socket) => Err(silent),
    }
}

/// Ends, with what is wrong, when the daemon does not say any more that it lives.
pub(crate) async fn until_silent(socket: &Path) -> Failure {
    let until = tokio::time::Instant::now() + ANSWER_PATIENCE;
    while tokio::time::Instant::now() < until {
        tokio::time::sleep(LIFE_PERIOD).await;
        let life = async {
            let answer = ask(socket, "GET", "/v1/version", &()).await?;
            whole(answer).await
        };
        if tokio::time::timeout(LIFE_PATIENCE, life).await.is_err() {
            return silent("answer", LIFE_PATIENCE);
        }
    }
    silent("come to an end with this", ANSWER_PATIENCE)
}

/// A change of which nothing was heard any more: the daemon has the request.
fn may_be_done(method: &str, failure: Failure) -> Failure {
    let unheard = matches!(failure.code, Code::DaemonSilent | Code::DaemonLost);
    match unheard && method != "GET" {
        true => Failure {
            found: format!(
                "{}; what it was asked for may be done, or be done later",
                failure.found
            ),
            ..failure
        },
        false => failure,
    }
}

pub(crate) fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::DaemonLost, format!("the daemon hung up: {error}"))
}

/// A daemon that answered before does not take a connection.
fn gone(socket: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            let found = format!("the daemon went: nothing listens at {}", socket.display());
            Failure::new(Code::DaemonLost, found)
        }
        _ => lost(error),
    }
}

impl Client {
    /// The daemon of this folder, if one listens. Where none does, what lies there is all that a
    /// command knows: then it has to answer, and to be this user's own.
    pub(crate) fn find(dir: &Dir) -> Result<Option<Client>, Failure> {
        let client = Client::listening(dir)?;
        if client.is_none() {
            dir.lasting_answers()?;
            dir.check()?;
        }
        Ok(client)
    }
    /// The same, for what asks nothing but a daemon.
    pub(crate) fn listening(dir: &Dir) -> Result<Option<Client>, Failure> {
        let socket = dir.socket();
        // A folder that this user may not enter may have a daemon.
        match socket.try_exists() {
            Ok(true) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Failure::io(socket.display(), &error));
            }
            Ok(false) | Err(_) => return Ok(None),
        }
        let runtime = crate::common::process::runtime()?;
        let connected = runtime
            .block_on(async { tokio::time::timeout(CONNECT_PATIENCE, connect(&socket)).await });
        let connected = connected.map_err(|_| silent("accept a connection", CONNECT_PATIENCE))?;
        match connected {
            Ok(stream) => {
                is_ours(&stream, &socket)?;
                Ok(Some(Client { runtime, socket }))
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                Err(Failure::io(socket.display(), &e))
            }
            Err(_) => Ok(None),
        }
    }
    /// The daemon of this folder.
    pub(crate) fn need(dir: &Dir) -> Result<Client, Failure> {
        Client::find(dir)?.ok_or_else(|| {
            let found = format!("no daemon listens in {}", dir.path().display());
            Failure::new(Code::NoDaemon, found)
        })
    }

    /// GET.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call("GET", path, &())
    }
    /// GET, for a caller that waits only so long.
    pub(crate) fn get_within<T: DeserializeOwned>(
        &self,
        path: &str,
        patience: Duration,
    ) -> Result<T, Failure> {
        let bytes = self.runtime.block_on(async {
            let answer = async { whole(ask(&self.socket, "GET", path, &()).await?).await };
            let answered = tokio::time::timeout(patience, answer).await;
            answered.unwrap_or_else(|_| Err(silent("answer", patience)))
        })?;
        from_json(&bytes)
    }
    /// POST.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.call("POST", path, body)
    }
    /// Any method; the body is JSON.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let bytes = self.runtime.block_on(async {
            let answer = async {
                let answer = ask(&self.socket, method, path, body).await?;
                whole(answer).await
            };
            while_it_lives(&self.socket, answer).await
        });
        from_json(&bytes.map_err(|failure| may_be_done(method, failure))?)
    }
    /// Lines of a streamed answer, each as it comes, until the daemon hangs up.
    pub(crate) fn lines(&self, path: &str, each: impl FnMut(&str)) -> Result<(), Failure> {
        self.runtime.block_on(lines(&self.socket, path, each))
    }
    /// The same, and no longer than standard output has a reader.
    pub(crate) fn lines_while_read(
        &self,
        path: &str,
        each: impl FnMut(&str),
    ) -> Result<(), Failure> {
        self.runtime.block_on(async {
            tokio::select! {
                ended = lines(&self.socket, path, each) => ended,
                () = reader_gone() => Ok(()),
            }
        })
    }
}

async fn lines(socket: &Path, path: &str, mut each: impl FnMut(&str)) -> Result<(), Failure> {
    let begun = ask(socket, "GET", path, &());
    let mut body = while_it_lives(socket, begun).await?.into_body();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(lost)?.into_data() else {
            continue;
        };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            each(String::from_utf8_lossy(&line).trim_end());
        }
    }
    Ok(())
}

/// Ends when nothing can read standard output any more: of a pipe or a socket when its other end
/// is closed, of a file never. A thread of its own waits for that, and ends with the process.
async fn reader_gone() {
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    let watch = move || {
        let stdout = io::stdout();
        // Asked for nothing, the kernel still tells of errors and of a hang-up.
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        while rustix::event::poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        if watched[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP)
        {
            // The command may have ended.
            let _ = gone.send(());
        }
    };
    // Without a thread, the next line finds it.
    let _ = strake_runtime::spawn_thread("reader", watch);
    if is_gone.await.is_err() {
        // Standard output is closed, or cannot be watched: the next line finds that.
        std::future::pending().await
    }
}

async fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<Response<Incoming>, Failure> {
    let stream = connect(socket)
        .await
        .map_err(|error| gone(socket, &error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(lost)?;
    tokio::spawn(connection);
    let json = serde_json::to_vec(body).map_err(|e| {
        let found = format!("the daemon cannot be asked for this: {e}");
        let cure = "paths in requests are JSON text: rename the file, or name it by a link \
                        with a path that is UTF-8";
        Failure::new(Code::Usage, found).cure(cure)
    })?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "strake")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(json)))
        .map_err(|e| Failure::new(Code::Usage, format!("'{path}' cannot be asked: {e}")))?;
    let answer = sender.send_request(request).await.map_err(lost)?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status();
    let bytes = whole(answer).await?;
    Err(match serde_json::from_slice::<FailureJson>(&bytes) {
        Ok(json) => Failure::from(json),
        Err(_) => Failure::new(Code::Internal, format!("the daemon answered {status}")),
    })
}

fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|e| Failure::new(Code::Internal, format!("the daemon's answer: {e}")))
}

async fn whole(answer: Response<Incoming>) -> Result<Bytes, Failure> {
    Ok(answer.into_body().collect().await.map_err(lost)?.to_bytes())
}
