//! `strake top`: arrays, members, jobs, latencies and events on a terminal.
//!
//! Order: a thread asks the daemon and sends what it says (`asker`) → the numbers that are shown
//! (`model`) → the picture (`picture`), drawn anew after each answer, key and change of size.
//!
//! Invariants: the terminal is as it was when this ends, by a key, a signal, an error or a panic;
//! keys are answered while the daemon is silent or gone. Deliberately absent: changes of anything.

mod asker;
mod model;
mod picture;

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::args::TopArgs;
use crate::cli::paint::Paint;
use crate::cli::{Context, DONE, Ended};
use crate::commands::top::asker::News;
use crate::commands::top::model::{Act, Model};
use crate::common::errors::{Code, Failure};
use crate::common::process;

/// How long a key is waited for before news are looked at.
const PATIENCE: Duration = Duration::from_millis(100);

pub(crate) fn run(context: &Context, args: &TopArgs) -> Ended {
    let usage = |found: &str| {
        let cure = "strake iostat --json -v 1 has the same numbers, strake events --follow --json \
                    the events";
        Err(Failure::new(Code::Usage, found).cure(cure))
    };
    if context.json {
        return usage("top draws on a terminal, and has no JSON");
    }
    if !std::io::stdout().is_terminal() {
        return usage("top draws on a terminal, and standard output is none");
    }
    let (sender, news) = channel();
    end_by_signals(sender.clone())?;
    asker::start(context.dir.clone(), args.delay, sender)?;
    let io = |e| Failure::io("the terminal", &e);
    let mut terminal = ratatui::try_init().map_err(io)?;
    let mut model = Model::new(args.delay, Paint::of_stdout());
    let ended = shows(&mut terminal, &mut model, &news);
    // It shows the cursor again; the terminal may be gone.
    drop(terminal);
    let restored = ratatui::try_restore();
    ended.map_err(io)?;
    restored.map_err(io)?;
    Ok(DONE)
}

/// How long the picture may take to end after a signal. Reading keys does not end where the
/// terminal is gone.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Has SIGTERM, SIGINT and SIGHUP end the picture instead of the process; a picture that does not
/// end is left as it is.
fn end_by_signals(sender: std::sync::mpsc::Sender<News>) -> Result<(), Failure> {
    let runtime = process::runtime()?;
    let catch = |kind| {
        let _within = runtime.enter();
        signal(kind).map_err(|e| Failure::io("catching signals", &e))
    };
    let mut term = catch(SignalKind::terminate())?;
    let mut int = catch(SignalKind::interrupt())?;
    let mut hang_up = catch(SignalKind::hangup())?;
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
                _ = hang_up.recv() => {}
            }
        });
        // The picture may have ended meanwhile.
        let _ = sender.send(News::End);
        std::thread::sleep(END_PATIENCE);
        let _ = ratatui::try_restore();
        std::process::exit(0);
    };
    let started = strake_runtime::spawn_thread("signals", wait);
    started.map_err(|e| Failure::io("waiting for signals", &e))?;
    Ok(())
}

/// Draws until a key or a signal ends it.
fn shows(
    terminal: &mut DefaultTerminal,
    model: &mut Model,
    news: &Receiver<News>,
) -> std::io::Result<()> {
    loop {
        terminal.draw(|frame| picture::draw(frame, model))?;
        let mut changed = false;
        while !changed {
            // What is said of a daemon that is silent changes by itself.
            changed = model.is_silent();
            loop {
                match news.try_recv() {
                    Ok(News::End) | Err(TryRecvError::Disconnected) => return Ok(()),
                    Ok(one) => {
                        model.hear(one);
                        changed = true;
                    }
                    Err(TryRecvError::Empty) => break,
                }
            }
            while event::poll(if changed { Duration::ZERO } else { PATIENCE })? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        if model.key(key) == Act::End {
                            return Ok(());
                        }
                        changed = true;
                    }
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
        }
        if model.is_silent() {
            std::thread::sleep(PATIENCE);
        }
    }
}
