//! What keeps other pages, other names and other users away from the console.
//!
//! Invariants: a request names this machine (a page of another name that resolves to 127.0.0.1 is
//! refused); one for the daemon does not come from another page, and one that changes something
//! proves that it comes from this page; no answer may be framed, cached or sniffed. Deliberately
//! absent: a check of the port in `Host`, so that `ssh -L` works with any port.

use axum::body::Body;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::common::errors::{Code, Failure};

/// Names of this machine that a browser may use for the loopback.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

/// The headers of every answer.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; img-src 'self' data:; font-src 'self' data:; object-src 'none'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

/// Adds the headers of every answer.
pub(super) fn sealed(mut answer: Response<Body>) -> Response<Body> {
    for (name, value) in HEADERS {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// What a request says of itself.
#[derive(Debug)]
pub(super) struct Head {
    headers: HeaderMap,
    token: Option<String>,
}

impl Head {
    pub(super) fn of<B>(request: &Request<B>) -> Head {
        let parameters = request.uri().query().unwrap_or_default().split('&');
        let token = parameters
            .filter_map(|one| one.strip_prefix("token="))
            .next();
        Head {
            headers: request.headers().clone(),
            token: token.map(str::to_owned),
        }
    }

    /// The token of a link.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Cookies, each as `name=value`.
    pub(super) fn cookies(&self) -> impl Iterator<Item = &str> {
        let all = self.headers.get_all(header::COOKIE).into_iter();
        all.filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';').map(str::trim))
    }

    fn get(&self, name: impl header::AsHeaderName) -> Option<&str> {
        // One that is no text is none of those that are permitted.
        self.headers
            .get(name)
            .map(|value| value.to_str().unwrap_or("?"))
    }

    fn host(&self) -> &str {
        self.get(header::HOST).unwrap_or_default()
    }

    /// Whether a person reads the answer.
    fn wants_a_page(&self) -> bool {
        let accept = self.get(header::ACCEPT);
        accept.is_some_and(|accept| accept.contains("text/html"))
    }

    /// Refuses a request for another name than those of the loopback.
    pub(super) fn names_this_machine(&self) -> Result<(), Failure> {
        let host = self.host();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        if NAMES.contains(&name) {
            return Ok(());
        }
        let found = format!("the request is for the host '{host}', not for 127.0.0.1");
        Err(Failure::new(Code::ForeignRequest, found))
    }

    /// Refuses a request that another page makes, and a change that does not prove that it comes
    /// from the console's page: a browser says so in `Origin`, or in `Sec-Fetch-Site`.
    pub(super) fn comes_from_the_page(&self, method: &Method) -> Result<(), Failure> {
        let refused = |found: String| Err(Failure::new(Code::ForeignRequest, found));
        let (origin, site) = (self.get(header::ORIGIN), self.get("sec-fetch-site"));
        if let Some(origin) = origin.filter(|origin| *origin != format!("http://{}", self.host())) {
            return refused(format!("the request comes from a page of '{origin}'"));
        }
        if let Some(site) = site.filter(|site| !["same-origin", "none"].contains(site)) {
            return refused(format!("the request comes from another page ({site})"));
        }
        let reads = [Method::GET, Method::HEAD].contains(method);
        if !reads && origin.is_none() && site != Some("same-origin") {
            return refused(format!(
                "the {method} has neither Origin nor Sec-Fetch-Site, which browsers send"
            ));
        }
        Ok(())
    }
}

/// A failure: as a page where a person reads it, else in the daemon's shape.
pub(super) fn refused(status: StatusCode, failure: &Failure, head: &Head) -> Response<Body> {
    let (kind, text) = match head.wants_a_page() {
        true => ("text/html; charset=utf-8", as_page(failure)),
        false => {
            let json = serde_json::to_string(&failure.json());
            ("application/json", json.expect("the shape is JSON"))
        }
    };
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn as_page(failure: &Failure) -> String {
    let [code, found, cure] = [failure.code.name(), &failure.found, &failure.cure].map(escaped);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>Strake: {code}</title>\n<h1>The console does not open</h1>\n\
         <p>error[{code}]: {found}</p>\n<p>{cure}</p>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
