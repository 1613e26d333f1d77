//! The files of the page, which are in the binary.
//!
//! Invariant: what is not in the bundle is not answered; no file of the machine is read.
//! Deliberately absent: how the bundle is made (`console/` at the root of the repository).

use axum::body::Body;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use rust_embed::RustEmbed;

use crate::common::errors::{Code, Failure};

#[derive(RustEmbed)]
#[folder = "../../console/dist"]
struct Bundle;

/// What a browser is to take a file for, by the end of its name.
const MEDIA: [(&str, &str); 9] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("json", "application/json"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("woff2", "font/woff2"),
    ("txt", "text/plain; charset=utf-8"),
];

/// A file of the page.
pub(super) fn file(method: &Method, path: &str) -> Response<Body> {
    let name = match path {
        "/" => "index.html",
        _ => path.trim_start_matches('/'),
    };
    if ![Method::GET, Method::HEAD].contains(method) {
        let found = format!("the page takes no {method}; the API is below /v1/");
        let failure = Failure::new(Code::BadRequest, found).cure("use GET");
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, &failure);
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return refused;
    }
    let Some(file) = Bundle::get(name) else {
        let found = format!("the page has no file '{name}'");
        let failure = Failure::new(Code::NoRoute, found).cure("open the page without it");
        return said(StatusCode::NOT_FOUND, &failure);
    };
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    let media = MEDIA.iter().find(|(of, _)| *of == end);
    let media = media.map_or("application/octet-stream", |(_, media)| media);
    with_type(Response::new(Body::from(file.data.into_owned())), media)
}

/// A failure in the daemon's shape.
pub(super) fn said(status: StatusCode, failure: &Failure) -> Response<Body> {
    let json = serde_json::to_string(&failure.json()).expect("the shape is JSON");
    let mut answer = Response::new(Body::from(json));
    *answer.status_mut() = status;
    with_type(answer, "application/json")
}

fn with_type(mut answer: Response<Body>, media: &'static str) -> Response<Body> {
    let media = HeaderValue::from_static(media);
    answer.headers_mut().insert(CONTENT_TYPE, media);
    answer
}
