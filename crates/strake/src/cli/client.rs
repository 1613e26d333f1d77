//! The CLI as the API's client: one request over the daemon's Unix socket.
//!
//! Invariant: an error of the daemon arrives as the [`Failure`] that it was. Deliberately absent:
//! retries; a command that changes something is not sent twice.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::daemon::state::Dir;
use crate::errors::{Code, Failure, FailureJson};

/// A daemon that answers.
#[derive(Debug)]
pub(crate) struct Client {
    runtime: Runtime,
    socket: PathBuf,
}

fn lost(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::DaemonLost, format!("the daemon hung up: {error}"))
}

impl Client {
    /// The daemon of this folder, if one listens.
    pub(crate) fn find(dir: &Dir) -> Result<Option<Client>, Failure> {
        let socket = dir.socket();
        match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(_) => Ok(Some(Client {
                runtime: crate::daemon::runtime()?,
                socket,
            })),
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
            let answer = ask(&self.socket, method, path, body).await?;
            whole(answer).await
        })?;
        serde_json::from_slice(&bytes)
            .map_err(|e| Failure::new(Code::Internal, format!("the daemon's answer: {e}")))
    }
    /// Lines of a streamed answer, each as it comes, until the daemon hangs up.
    pub(crate) fn lines(&self, path: &str, mut each: impl FnMut(&str)) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let mut body = ask(&self.socket, "GET", path, &()).await?.into_body();
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
        })
    }
}

async fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: &impl Serialize,
) -> Result<Response<Incoming>, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(lost)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(lost)?;
    tokio::spawn(connection);
    let json = serde_json::to_vec(body)
        .map_err(|e| Failure::new(Code::Internal, format!("the request: {e}")))?;
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

async fn whole(answer: Response<Incoming>) -> Result<Bytes, Failure> {
    Ok(answer.into_body().collect().await.map_err(lost)?.to_bytes())
}
