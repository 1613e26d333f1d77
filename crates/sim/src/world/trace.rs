//! What is told of a world: its trace, its story, and what came of it.
//!
//! Invariant: nothing that happens depends on what is told.
//!
//! Deliberately absent: counts (`report::Stats`).

use crate::prng::TraceHash;
use crate::report::words::micros;
use crate::report::{Failure, Outcome};
use crate::world::{SimResult, World};

/// See the module.
#[derive(Default)]
pub(crate) struct Trace {
    /// Everything that happened, as a number.
    hash: TraceHash,
    /// What happened, in words.
    story: Vec<String>,
    /// Every event is printed, too.
    printed: bool,
}

impl Trace {
    pub(crate) fn add(&mut self, word: u64) {
        self.hash.add(word);
    }
}

impl World {
    /// From now on every event is printed, if it is to be.
    pub fn print_events(&mut self, printed: bool) {
        self.trace.printed = printed;
    }
    /// Lines of the story that are like this.
    pub fn notes(&self, like: impl Fn(&str) -> bool) -> usize {
        let story = self.trace.story.iter();
        story.filter(|line| like(line)).count()
    }
    /// Writes a line of the story.
    pub fn note(&mut self, text: String) {
        let line = format!("{:>12} {text}", micros(self.clock.now()));
        if self.trace.printed {
            eprintln!("{line}");
        }
        self.trace.story.push(line);
    }
    /// The world has failed.
    pub fn failure<T>(&mut self, text: impl Into<String>) -> SimResult<T> {
        let text = text.into();
        self.note(format!("FAILURE: {text}"));
        Err(Box::new(self.failed(text)))
    }
    /// A failure, with the story up to here.
    pub(crate) fn failed(&self, text: String) -> Failure {
        Failure {
            text,
            story: self.trace.story.clone(),
        }
    }
    pub(crate) fn trace(&mut self, words: [u64; 4], text: impl FnOnce() -> String) {
        for word in words {
            self.trace.add(word);
        }
        self.trace.add(self.clock.now().0);
        if self.trace.printed {
            eprintln!("{:>12}   {}", micros(self.clock.now()), text());
        }
    }

    /// What came of the world of this seed; `world`: the array, in words.
    pub(crate) fn outcome(self, seed: u64, world: String, failure: Option<Failure>) -> Outcome {
        let mut stats = self.stats;
        stats.virtual_ms = self.clock.now().0 / 1_000_000;
        Outcome {
            seed,
            world,
            stats,
            hash: self.trace.hash.value(),
            failure,
        }
    }
}
