//! Any bytes that a client of the daemon's API may send, over the very server that the daemon runs,
//! on a stream in memory: no request panics, and every answer is HTTP.
//!
//! The daemon behind it is one that stops: whatever would change something is decoded and then
//! refused, so no fuzzed request reaches a drive of the machine.
#![no_main]

use std::future::pending;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// One connection, and never another.
struct Once(Option<DuplexStream>);

impl Listener for Once {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.take() {
            Some(stream) => (stream, ()),
            None => pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The routes, over a folder that lives as long as the process.
static API: LazyLock<Router> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder for the daemon");
    strake::api_without_changes(&dir.keep())
});

/// Sends the bytes and gives what came back until the server closed, or had nothing more to say.
async fn talk(bytes: &[u8]) -> Vec<u8> {
    let (client, server) = duplex(1 << 16);
    let serving = tokio::spawn(async move { axum::serve(Once(Some(server)), API.clone()).await });
    let (mut hears, mut says) = tokio::io::split(client);
    let mut answer = Vec::new();
    let exchange = async {
        let say = async {
            // A server that has heard enough may close before it has read everything.
            let _ = says.write_all(bytes).await;
            let _ = says.shutdown().await;
        };
        // However it ends, what has come so far is what is judged.
        let _ = tokio::join!(say, hears.read_to_end(&mut answer));
    };
    // The clock stands still while anything is at work: only a server that waits runs into this.
    let _ = tokio::time::timeout(Duration::from_secs(3600), exchange).await;
    serving.abort();
    answer
}

fuzz_target!(|bytes: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("an event loop");
    let answer = runtime.block_on(talk(bytes));
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1."),
        "no HTTP: {}",
        String::from_utf8_lossy(&answer)
    );
});
