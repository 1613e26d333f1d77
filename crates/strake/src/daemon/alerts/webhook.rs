//! A webhook: one POST with the message as JSON, signed where the channel has a key.
//!
//! `X-Strake-Signature: sha256=HEX` is the HMAC-SHA256 of the bytes of `X-Strake-Timestamp`, a dot
//! and the body. The timestamp is of the attempt, and `X-Strake-Id` is of the message: a receiver
//! that refuses old timestamps and known ids takes no request twice.
//!
//! Invariants: only 2xx is a delivery; redirects are not followed (a signed request goes to no
//! other host); of an answer a bounded part is read. Deliberately absent: proxies, HTTP/2, and
//! bounds of time (the caller drops what takes too long).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ring::hmac;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::common::shown;
use crate::config::alerts::{Target, Webhook};
use crate::daemon::alerts::message::{Message, moment};
use crate::daemon::alerts::secret::{self, Kept, Place};
use crate::daemon::alerts::ways::{Delivered, Refused};

/// Bytes of an answer that are read for the text of a failure.
const ANSWER_BYTES_MAX: usize = 512;
/// A server may ask for no longer a pause.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug)]
pub(super) struct Hook {
    webhook: Arc<Webhook>,
    url: Kept<String>,
    key: Kept<String>,
    tls: Kept<Arc<ClientConfig>>,
}

/// The signature of a body that is sent at this time.
pub(super) fn signature(key: &str, timestamp: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(timestamp.as_bytes());
    context.update(b".");
    context.update(body);
    let hex = |byte: &u8| format!("{byte:02x}");
    let hex: String = context.sign().as_ref().iter().map(hex).collect();
    format!("sha256={hex}")
}

/// What `Retry-After` says: seconds, or a date.
fn retry_after(response: &Response<Incoming>, now: SystemTime) -> Option<Duration> {
    let text = response.headers().get("retry-after")?.to_str().ok()?;
    let pause = match text.trim().parse().map(Duration::from_secs) {
        Ok(pause) => pause,
        Err(_) => {
            // HTTP says GMT where mail says +0000.
            let date = text.trim().replace("GMT", "+0000");
            let date = jiff::fmt::rfc2822::parse(&date).ok()?.timestamp();
            moment(date).duration_since(now).unwrap_or_default()
        }
    };
    Some(pause.min(PAUSE_MAX))
}

impl Hook {
    pub(super) fn new(webhook: Arc<Webhook>) -> Hook {
        Hook {
            webhook,
            url: Kept::default(),
            key: Kept::default(),
            tls: Kept::default(),
        }
    }

    /// Sends it.
    pub(super) async fn send(&mut self, message: &Message) -> Result<Delivered, Refused> {
        let result = self.try_to(message).await;
        if result.is_err() {
            self.url.doubt();
            self.key.doubt();
            self.tls.doubt();
        }
        result
    }

    async fn try_to(&mut self, message: &Message) -> Result<Delivered, Refused> {
        let webhook = Arc::clone(&self.webhook);
        let hidden = Place::of(webhook.url_file.as_ref(), webhook.url_credential.as_ref());
        let is_hidden = hidden.is_some();
        let url = match (&webhook.url, hidden) {
            (_, Some(place)) => {
                let url = self.url.get(move || place.read()).await;
                url.map_err(Refused::for_now)?
            }
            (url, None) => url.clone().unwrap_or_default(),
        };
        let target =
            Target::of(&url).map_err(|why| Refused::for_good(format!("its URL: {why}")))?;
        let body = serde_json::to_vec(message)
            .map_err(|error| Refused::for_good(format!("no JSON can be made of it: {error}")))?;
        let place = Place::of(webhook.key_file.as_ref(), webhook.key_credential.as_ref());
        let key = match place {
            Some(place) => {
                let key = self.key.get(move || place.read()).await;
                Some(key.map_err(Refused::for_now)?)
            }
            None => None,
        };
        let request = request(&target, message, body, key.as_deref())?;
        let server = format!("{} port {}", target.host, target.port);
        let lost = |what: &str, error: &dyn std::fmt::Display| {
            Refused::for_now(format!("{server}: {what}: {error}"))
        };
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await;
        let stream = stream.map_err(|error| lost("connection", &error))?;
        let response = match target.tls {
            false => exchange(stream, request).await,
            true => {
                let tls = self.tls(webhook.ca_file.clone()).await?;
                let name = ServerName::try_from(target.host.clone())
                    .map_err(|error| Refused::for_good(format!("{server}: {error}")))?;
                let stream = TlsConnector::from(tls).connect(name, stream).await;
                exchange(stream.map_err(|error| lost("TLS", &error))?, request).await
            }
        };
        let (response, body) = response.map_err(|error| lost("HTTP", &error))?;
        // A page of an error may repeat the path, which may be a secret.
        let told = hidden_or(is_hidden, &target.path, &body);
        answer(&server, &response, told)
    }

    async fn tls(&mut self, ca_file: Option<PathBuf>) -> Result<Arc<ClientConfig>, Refused> {
        let read = move || secret::tls(ca_file.as_deref());
        self.tls.get(read).await.map_err(Refused::for_now)
    }
}

fn request(
    target: &Target,
    message: &Message,
    body: Vec<u8>,
    key: Option<&str>,
) -> Result<Request<Full<Bytes>>, Refused> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let timestamp = now.unwrap_or_default().as_secs().to_string();
    let mut request = Request::post(&target.path)
        .header("host", &target.authority)
        .header("user-agent", concat!("strake/", env!("CARGO_PKG_VERSION")))
        .header("content-type", "application/json")
        .header("x-strake-id", &message.id)
        .header("x-strake-timestamp", &timestamp);
    if let Some(key) = key {
        request = request.header("x-strake-signature", signature(key, &timestamp, &body));
    }
    request
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| Refused::for_good(format!("no request can be made of it: {error}")))
}

/// Sends a request and reads the answer, of the body only the beginning.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, Vec<u8>), hyper::Error> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    // It ends with this function, also where the caller drops it.
    let mut work = JoinSet::new();
    work.spawn(connection);
    let mut response = sender.send_request(request).await?;
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES_MAX {
        // An answer that breaks off was one all the same.
        let Some(Ok(frame)) = response.frame().await else {
            break;
        };
        body.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
    }
    body.truncate(ANSWER_BYTES_MAX);
    Ok((response, body))
}

/// What of an answer may be shown: nothing where the URL is kept secret, or where it repeats a part
/// of the path.
fn hidden_or<'a>(is_hidden: bool, path: &str, body: &'a [u8]) -> &'a [u8] {
    let text = String::from_utf8_lossy(body);
    let mut parts = path.split(['/', '?', '&', '=']);
    match is_hidden || parts.any(|part| part.len() > 3 && text.contains(part)) {
        true => &[],
        false => body,
    }
}

/// What an answer means.
fn answer(server: &str, response: &Response<Incoming>, body: &[u8]) -> Result<Delivered, Refused> {
    let status = response.status();
    if status.is_success() {
        return Ok(Delivered::Wholly);
    }
    if status.is_redirection() {
        let to = response
            .headers()
            .get("location")
            .and_then(|to| to.to_str().ok());
        let to = to.and_then(|to| Target::of(to).ok()).map(|to| to.host);
        let to = to.map_or_else(String::new, |host| format!(" to {host}"));
        return Err(Refused::for_good(format!(
            "{server} answered {status}{to}: redirects are not followed; give the URL that it \
             redirects to"
        )));
    }
    let body = String::from_utf8_lossy(body);
    let body = shown(body.trim(), ' ');
    let why = match body.is_empty() {
        true => format!("{server} answered {status}"),
        false => format!("{server} answered {status}: {body}"),
    };
    let later = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let refused = match status.is_client_error() && !later.contains(&status) {
        true => Refused::for_good(why),
        false => Refused::for_now(why),
    };
    Err(Refused {
        pause: retry_after(response, SystemTime::now()),
        ..refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By: printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key
    #[test]
    fn a_signature_is_what_openssl_makes_of_it() {
        assert_eq!(
            signature("key", "1700000000", b"{\"a\":1}"),
            "sha256=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03"
        );
    }

    #[test]
    fn an_answer_that_repeats_the_path_is_not_shown() {
        let shown = |hidden, body: &'static str| {
            hidden_or(hidden, "/services/T0/s3cret?token=abcd", body.as_bytes())
        };
        assert_eq!(shown(false, "invalid_payload"), b"invalid_payload");
        assert_eq!(shown(true, "invalid_payload"), b"");
        assert_eq!(shown(false, "no page &#47;services&#47;T0&#47;s3cret"), b"");
        assert_eq!(shown(false, "token abcd is not valid"), b"");
    }
}
