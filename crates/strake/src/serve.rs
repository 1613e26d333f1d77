//! `strake daemon`: owns the arrays of one STRAKE_DIR from start to clean stop.
//!
//! Order at start: folder → lock → folders in it → socket → watcher (arrays come back) → the
//! service manager is told that the daemon is ready. At the end (SIGTERM, SIGINT): the socket
//! goes, then the file of the metrics, every array is stopped cleanly, the lock is let go. A
//! daemon that was killed leaves the socket's file behind; the lock tells the next one that
//! nobody listens there. Folder, lock and socket that are removed while it serves are made again
//! (`daemon::home`).
//!
//! Invariant: one async thread; whatever may block runs on threads of its own (`rounds::blocking`).
//! Deliberately absent: going into the background; the service manager does that.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::common::errors::Failure;
use crate::common::process::{EndSignals, outlive_signals, runtime};
use crate::config::InUse;
use crate::config::metrics::Metrics;
use crate::daemon::alerts::Alerts;
use crate::daemon::alerts::board::Board;
use crate::daemon::array::emptied;
use crate::daemon::array::running::Limits;
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::home::{self, Home, Look};
use crate::daemon::manager;
use crate::daemon::rounds::{self, Rounds};
use crate::daemon::service::Service;
use crate::daemon::service::pools;
use crate::daemon::service::volumes;
use crate::daemon::service::watched::health;
use crate::daemon::sources::Sources;
use crate::daemon::state::Dir;
use crate::daemon::state::damaged;
use crate::daemon::state::wear;
use crate::daemon::watch;
use crate::daemon::watch::Watcher;
use crate::daemon::watch::uevents::Uevents;
use crate::http::listen;
use crate::http::routes;
use crate::http::scrape;
use crate::http::textfile::Textfile;
use crate::settings::degraded::Rule;
use crate::settings::schedule;

/// How to run the daemon.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) dir: Dir,
    pub(crate) sources: Sources,
    pub(crate) limits: Limits,
    /// What becomes of arrays that miss members, unless they have a rule of their own.
    pub(crate) degraded: Rule,
    /// What was said of this machine in a file.
    pub(crate) config: InUse,
}

/// Runs until it is asked to end.
pub(crate) fn run(config: Config) -> Result<(), Failure> {
    strake_runtime::bound_heaps();
    strake_runtime::raise_descriptor_limit();
    strake_runtime::check_descriptors_left()?;
    strake_runtime::check_memory_left().map_err(|e| Failure::io("beginning", &e))?;
    let threads = strake_runtime::check_threads_left();
    threads.map_err(|error| Failure::io("beginning", &error))?;
    let runtime = runtime()?;
    runtime.block_on(async { outlive_signals() })?;
    config.dir.takes_changes()?;
    config.dir.check()?;
    config.dir.make_own()?;
    let lock = config.dir.lock()?;
    // The folders are this daemon's from here on.
    config.dir.links_lead_somewhere()?;
    let aside = config.dir.set_files_aside();
    config.dir.make()?;
    let service = Arc::new(Service::new(
        config.dir.clone(),
        config.sources,
        config.limits,
    ));
    config.dir.set_damaged_aside(service.events());
    for file in &aside {
        damaged::note_file(service.events(), file);
    }
    let alerts = Alerts::begin(&service, &config.config.configuration.alerts);
    configured(
        &config.dir,
        &config.config,
        service.events(),
        service.alerts(),
    );
    let watcher = Watcher::new(Arc::clone(&service), config.degraded);
    // The lock in it is held until all arrays have stopped.
    let home = Arc::new(Mutex::new(Home::new(Arc::clone(&service), lock)));
    let metrics = config.config.configuration.metrics;
    let result = runtime.block_on(serve(Arc::clone(&service), &home, watcher, metrics));
    service.stop_all();
    if let Some(alerts) = alerts {
        alerts.end();
    }
    service.events().finish();
    runtime.shutdown_background();
    result
}

/// Keeps what the configuration is, or says that it is not what the file says.
fn configured(dir: &Dir, config: &InUse, events: &EventLog, alerts: &Board) {
    let Some((failure, effect)) = &config.instead else {
        if let Err(error) = config.keep(&dir.last_config()) {
            tracing::warn!(%error, "the configuration is not kept for a start with a wrong file");
        }
        return;
    };
    tracing::error!(found = %failure.found, effect, "the configuration is not used");
    let why = format!("the configuration is not used: {}; {effect}", failure.found);
    alerts.set_configuration_not_used(why);
    events.note(Happened {
        event: "config_not_used",
        cause: Some(failure.found.clone()),
        effect: Some((*effect).to_owned()),
        ..Happened::default()
    });
}

async fn serve(
    service: Arc<Service>,
    home: &Arc<Mutex<Home>>,
    watcher: Watcher,
    metrics: Metrics,
) -> Result<(), Failure> {
    let signals = EndSignals::catch()?;
    let mut listener = locked(home).listen()?;
    let (looks, looked) = oneshot::channel();
    let socket = service.dir().socket();
    tracing::info!(socket = %socket.display(), pid = std::process::id(), "ready");
    // Dropped when the socket goes, which aborts them.
    let mut tasks = JoinSet::new();
    let told = |task, work| rounds::told(task, Arc::clone(service.events()), work);
    tasks.spawn(told("the watcher of drives", watch(watcher, looks).boxed()));
    let informed = manager::keep_informed(Arc::clone(&service), looked);
    tasks.spawn(told("news for the service manager", informed.boxed()));
    if let Some(address) = metrics.listen {
        let scrape = scrape::serve(Arc::clone(&service), address);
        tasks.spawn(told("metrics by HTTP", scrape.boxed()));
    }
    let textfile = metrics.textfile.map(Textfile::new);
    if let Some(file) = &textfile {
        let period = metrics.textfile_interval.get();
        let file = file.clone().keep(Arc::clone(&service), period);
        tasks.spawn(told("metrics in a file", file.boxed()));
    }
    work(&service, &mut tasks);
    let mut homes = Rounds::new("the daemon's folder", Arc::clone(service.events()));
    let app = routes::router(service);
    let mut asked = std::pin::pin!(signals.asked());
    let result = loop {
        let accepting = tokio::net::UnixListener::from_std(listener)
            .map_err(|e| Failure::io(socket.display(), &e))?;
        let found = tokio::select! {
            () = &mut asked => break Ok(()),
            () = listen::serve(accepting, app.clone()) => break Ok(()),
            found = gone(home, &mut homes) => found,
        };
        match found {
            Ok(again) => listener = again,
            Err(failure) => break Err(failure),
        }
    };
    drop(tasks);
    manager::stopping();
    // A look that hangs keeps no daemon from its end.
    if let Ok(home) = home.try_lock() {
        home.leave();
    }
    if let Some(file) = textfile {
        file.end().await;
    }
    result
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks after the paths of the daemon, until its socket was made anew or it has to end.
async fn gone(home: &Arc<Mutex<Home>>, rounds: &mut Rounds) -> Result<UnixListener, Failure> {
    loop {
        tokio::time::sleep(home::PERIOD).await;
        let home = Arc::clone(home);
        match rounds.blocking(move || locked(&home).look()).await {
            None | Some(Look::Same) => {}
            Some(Look::Again(listener)) => return Ok(listener),
            Some(Look::Superfluous(failure)) => return Err(failure),
        }
    }
}

/// What is done from time to time.
fn work(service: &Arc<Service>, tasks: &mut JoinSet<()>) {
    let work: [(_, Work, _); 5] = [
        (
            health::PERIOD_NEW,
            |service| service.ask_new_drives(),
            "asking new drives how they are",
        ),
        (
            wear::PERIOD,
            |service| service.ask_drives(),
            "asking drives how they are",
        ),
        (
            schedule::PERIOD,
            |service| service.begin_scrubs(),
            "scrubs that begin by themselves",
        ),
        (
            pools::PERIOD,
            |service| service.feed_from_pools(),
            "spares from pools",
        ),
        (
            volumes::PERIOD,
            |service| service.serve_volumes(),
            "volumes that are tried again",
        ),
    ];
    let mut begin = |period, sooner, work, task| {
        let again = again(Arc::clone(service), (period, sooner), work, task);
        tasks.spawn(rounds::told(task, Arc::clone(service.events()), again));
    };
    for (period, work, task) in work {
        begin(period, None, work, task);
    }
    begin(
        emptied::PERIOD,
        Some(Service::doubts),
        |service| service.put_out_emptied(),
        "members that lost their superblocks",
    );
}

/// What is done from time to time, and may block.
type Work = fn(&Arc<Service>);
/// What has it done before its time.
type Sooner = fn(&Service) -> &Notify;

/// Does it, for ever.
async fn again(
    service: Arc<Service>,
    (period, sooner): (Duration, Option<Sooner>),
    work: Work,
    task: &'static str,
) {
    let mut rounds = Rounds::new(task, Arc::clone(service.events()));
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        match sooner {
            None => drop(ticks.tick().await),
            Some(sooner) => tokio::select! {
                _ = ticks.tick() => {}
                () = sooner(&service).notified() => {}
            },
        }
        let service = Arc::clone(&service);
        rounds.blocking(move || work(&service)).await;
    }
}

/// `first` hears of the end of the first look, and of the starts that came of it.
async fn watch(watcher: Watcher, first: oneshot::Sender<()>) {
    let mut first = Some(first);
    let uevents = Uevents::listen();
    let events = watcher.events();
    let rounds = Rounds::new("the watcher of drives", Arc::clone(&events));
    // It stays where no thread can be made for a look.
    let state = Arc::new(Mutex::new((watcher, rounds)));
    // Of a member file that an event has announced, and that may still be to come.
    let mut announced: Option<Instant> = None;
    loop {
        let looks = Arc::clone(&state);
        let look = move || {
            let (watcher, rounds) = &mut *locked(&looks);
            watcher.look_in(rounds, Instant::now())
        };
        let looked = match rounds::blocking(look) {
            Ok(came) => came.await == Ok(Ok(true)),
            Err(error) => {
                let none: Option<()> = locked(&state).1.came(Err(error.to_string()));
                none.is_some()
            }
        };
        if !looked {
            let pause = locked(&state).1.pause();
            tokio::time::sleep(pause).await;
            continue;
        }
        // A start that takes longer than a look is waited for.
        let starts = locked(&state).0.starts();
        if let Some(first) = first.take_if(|_| !starts) {
            // Nothing may wait for it any more.
            let _ = first.send(());
        }
        let now = Instant::now();
        announced.take_if(|at| *at <= now);
        let mut until = now + locked(&state).0.pause(uevents.are_heard());
        loop {
            until = announced.map_or(until, |at| until.min(at));
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => break,
                // It does not wait for what an event has announced, nor the other way round.
                () = uevents.block_device() => {
                    locked(&state).0.doubt();
                    break;
                }
                // A member file may have come, of which the kernel does not tell.
                () = events.news() => {
                    announced.get_or_insert(Instant::now() + watch::PERIOD);
                }
            }
        }
    }
}
