//! One route: what it takes and answers, for the router and for the OpenAPI document.
//!
//! Order: names of the path → query or body → the service, where it may block → JSON.
//!
//! Invariants: the document shows the very types that a route reads and writes; every error is the
//! catalogue's JSON. Deliberately absent: the routes (`routes`) and the document (`openapi`).

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{CreatedJson, VolumeCreatedJson};
use crate::common::errors::{Code, Failure};
use crate::daemon::rounds;
use crate::daemon::service::Service;

pub(super) type Shared = State<Arc<Service>>;
pub(super) type Answer = Result<Response, Failure>;

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.json())).into_response()
    }
}

macro_rules! bad_request {
    ($($rejection:ty),*) => {$(
        impl From<$rejection> for Failure {
            fn from(rejection: $rejection) -> Failure {
                Failure::new(Code::BadRequest, rejection.body_text())
            }
        }
    )*};
}

bad_request!(BytesRejection, JsonRejection, PathRejection, QueryRejection);

/// The schema of a type, with the generator that keeps what it refers to.
pub(super) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a route is given beside the names in its path.
pub(crate) enum Takes {
    Nothing,
    /// Parameters: the properties of this object.
    Query(Shape),
    Body {
        shape: Shape,
        required: bool,
    },
}

/// See the module.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) about: &'static str,
    pub(crate) takes: Takes,
    /// Headers that it reads, and what they are for.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) answers: Shape,
    pub(crate) media: &'static str,
    /// What was made is answered with 201.
    pub(crate) makes: bool,
    pub(crate) handler: MethodRouter<Arc<Service>>,
}

/// The names in a path: of an array, a pool, a volume.
pub(super) trait Names: Sized + Send + 'static {
    fn read(parts: &mut Parts) -> impl Future<Output = Result<Self, Failure>> + Send;
}

impl Names for () {
    async fn read(_: &mut Parts) -> Result<(), Failure> {
        Ok(())
    }
}

impl Names for String {
    async fn read(parts: &mut Parts) -> Result<String, Failure> {
        Ok(Path::from_request_parts(parts, &()).await?.0)
    }
}

impl Names for (String, String) {
    async fn read(parts: &mut Parts) -> Result<(String, String), Failure> {
        Ok(Path::from_request_parts(parts, &()).await?.0)
    }
}

/// What a request carries: nothing, a body, or a query.
pub(super) trait Input: Sized + Send + 'static {
    const TAKES: Takes;
    fn read(request: Request) -> impl Future<Output = Result<Self, Failure>> + Send;
}

impl Input for () {
    const TAKES: Takes = Takes::Nothing;
    async fn read(_: Request) -> Result<(), Failure> {
        Ok(())
    }
}

/// A JSON body.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for JsonBody<T> {
    const TAKES: Takes = Takes::Body {
        shape: shape::<T>,
        required: true,
    };
    async fn read(request: Request) -> Result<JsonBody<T>, Failure> {
        Ok(JsonBody(Json::from_request(request, &()).await?.0))
    }
}

/// A JSON body that may be left away, for all that it would say by default.
pub(super) struct OptionalJson<T>(pub(super) T);

impl<T: DeserializeOwned + Default + JsonSchema + Send + 'static> Input for OptionalJson<T> {
    const TAKES: Takes = Takes::Body {
        shape: shape::<T>,
        required: false,
    };
    async fn read(request: Request) -> Result<OptionalJson<T>, Failure> {
        let body = Bytes::from_request(request, &()).await?;
        if body.is_empty() {
            return Ok(OptionalJson(T::default()));
        }
        let value: Option<T> = serde_json::from_slice(&body)
            .map_err(|e| Failure::new(Code::BadRequest, e.to_string()))?;
        Ok(OptionalJson(value.unwrap_or_default()))
    }
}

/// A query.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for QueryParams<T> {
    // Its properties are the parameters, so nothing refers to it.
    const TAKES: Takes = Takes::Query(T::json_schema);
    async fn read(request: Request) -> Result<QueryParams<T>, Failure> {
        let (mut parts, _) = request.into_parts();
        QueryParams::from_request_parts(&mut parts, &()).await
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueryParams<T>, Failure> {
        Ok(QueryParams(
            Query::from_request_parts(parts, state).await?.0,
        ))
    }
}

/// An answer about something that was made, or would be.
pub(super) trait Made {
    fn is_made(&self) -> bool;
}

impl Made for CreatedJson {
    fn is_made(&self) -> bool {
        !self.dry_run
    }
}

impl Made for VolumeCreatedJson {
    fn is_made(&self) -> bool {
        !self.dry_run
    }
}

/// What a route asks of the service.
type Act<P, I, A> = fn(&Service, P, I) -> Result<A, Failure>;

/// A route that asks the service something that may block.
pub(super) fn route<P: Names, I: Input, A: Serialize + JsonSchema + Send + 'static>(
    method: Method,
    path: &'static str,
    about: &'static str,
    act: Act<P, I, A>,
) -> Route {
    with_status(method, path, about, act, |_| StatusCode::OK)
}

/// The same, where something is made.
pub(super) fn making<P: Names, I: Input, A: Made + Serialize + JsonSchema + Send + 'static>(
    path: &'static str,
    about: &'static str,
    act: Act<P, I, A>,
) -> Route {
    let status = |answer: &A| match answer.is_made() {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let route = with_status(Method::POST, path, about, act, status);
    Route {
        makes: true,
        ..route
    }
}

fn with_status<P: Names, I: Input, A: Serialize + JsonSchema + Send + 'static>(
    method: Method,
    path: &'static str,
    about: &'static str,
    act: Act<P, I, A>,
    status: fn(&A) -> StatusCode,
) -> Route {
    let handler = move |State(service): Shared, request: Request| async move {
        let (mut parts, body) = request.into_parts();
        let names = P::read(&mut parts).await?;
        let input = I::read(Request::from_parts(parts, body)).await?;
        let answer = blocking(move || act(&service, names, input)).await??;
        Answer::Ok((status(&answer), Json(answer)).into_response())
    };
    Route {
        takes: I::TAKES,
        ..own::<A, _, _>(method, path, about, "application/json", handler)
    }
}

/// A route with a handler of its own.
pub(super) fn own<A: JsonSchema, H: Handler<T, Arc<Service>>, T: 'static>(
    method: Method,
    path: &'static str,
    about: &'static str,
    media: &'static str,
    handler: H,
) -> Route {
    let filter = MethodFilter::try_from(method.clone()).expect("a usual method");
    Route {
        method,
        path,
        about,
        takes: Takes::Nothing,
        headers: &[],
        answers: shape::<A>,
        media,
        makes: false,
        handler: on(filter, handler),
    }
}

/// Runs what may block.
pub(super) async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    rounds::done(act).await
}
