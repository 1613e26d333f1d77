//! What is shown: the newest sample, what was before it, and what the keys have chosen.
//!
//! Invariant: the array that was chosen stays chosen wherever it stands in the list. Deliberately
//! absent: the terminal.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::api::{ArrayJson, EventJson, IostatArrayJson};
use crate::cli::paint::Paint;
use crate::commands::iostat;
use crate::commands::top::asker::{EVENTS, News, Told};
use crate::view::stats::StatsJson;

/// So many samples of the past are kept: more than a terminal has columns.
const PAST: usize = 512;
/// Arrays that Page Up and Page Down pass.
const PAGE: usize = 10;

/// What a key asks of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Draw,
    End,
}

/// What arrays are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Requests,
    Bytes,
    Latency,
}

impl Sort {
    fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Requests,
            Sort::Requests => Sort::Bytes,
            Sort::Bytes => Sort::Latency,
            Sort::Latency => Sort::Name,
        }
    }
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Requests => "requests",
            Sort::Bytes => "bytes",
            Sort::Latency => "latency",
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Model {
    delay: Duration,
    pub(super) paint: Paint,
    arrays: Vec<ArrayJson>,
    rates: Vec<IostatArrayJson>,
    before: Vec<StatsJson>,
    /// By array: the p99 of reads or writes, whichever is longer, microseconds.
    past: BTreeMap<String, VecDeque<u64>>,
    events: VecDeque<EventJson>,
    /// No daemon answers, and why.
    pub(super) lost: Option<String>,
    heard: Instant,
    /// The uuid of the array that is chosen.
    chosen: Option<String>,
    pub(super) members: bool,
    pub(super) sort: Sort,
    backwards: bool,
    pub(super) held: bool,
    pub(super) help: bool,
}

impl Model {
    pub(super) fn new(delay: Duration, paint: Paint) -> Model {
        Model {
            delay,
            paint,
            arrays: Vec::new(),
            rates: Vec::new(),
            before: Vec::new(),
            past: BTreeMap::new(),
            events: VecDeque::new(),
            lost: None,
            heard: Instant::now(),
            chosen: None,
            members: true,
            sort: Sort::Name,
            backwards: false,
            held: false,
            help: false,
        }
    }

    pub(super) fn hear(&mut self, news: News) {
        self.heard = Instant::now();
        match news {
            News::Told(told) => self.told(*told),
            News::Lost(why) => self.lost = Some(why),
            News::End => {}
        }
    }

    fn told(&mut self, told: Told) {
        if self.lost.take().is_some() {
            // What this daemon has not told of itself was another's.
            self.events.clear();
            self.before.clear();
        }
        self.events.extend(told.events);
        let old = self.events.len().saturating_sub(EVENTS);
        self.events.drain(..old);
        if self.held {
            return;
        }
        let since_start = self.before.is_empty();
        self.rates = iostat::report(&self.before, &told.stats, since_start, true).arrays;
        self.before = told.stats;
        self.arrays = told.arrays;
        self.past
            .retain(|uuid, _| self.arrays.iter().any(|a| a.uuid == *uuid));
        if since_start {
            return;
        }
        for rates in &self.rates {
            let both = [rates.rates.read_p99_us, rates.rates.write_p99_us];
            let worst = both.into_iter().flatten().fold(0.0, f64::max);
            let past = self.past.entry(rates.uuid.clone()).or_default();
            past.push_back(worst as u64);
            if past.len() > PAST {
                past.pop_front();
            }
        }
    }

    /// How long the daemon has not answered, if that is longer than it should be.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        let silent = self.heard.elapsed();
        (silent > self.delay * 3 + Duration::from_secs(2)).then_some(silent)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent_for().is_some()
    }

    /// The arrays as they are sorted, with the rates of those in service.
    pub(super) fn arrays(&self) -> Vec<(&ArrayJson, Option<&IostatArrayJson>)> {
        let rates = |array: &ArrayJson| self.rates.iter().find(|r| r.uuid == array.uuid);
        let mut all: Vec<_> = self.arrays.iter().map(|a| (a, rates(a))).collect();
        let value = |rates: Option<&IostatArrayJson>| {
            let r = rates.map(|r| &r.rates);
            r.map_or(-1.0, |r| match self.sort {
                Sort::Name => 0.0,
                Sort::Requests => r.reads_per_s + r.writes_per_s,
                Sort::Bytes => r.read_bytes_per_s + r.written_bytes_per_s,
                Sort::Latency => {
                    let both = [r.read_p99_us, r.write_p99_us];
                    both.into_iter().flatten().fold(0.0, f64::max)
                }
            })
        };
        all.sort_by(|(a, of_a), (b, of_b)| match self.sort {
            Sort::Name => a.name.cmp(&b.name),
            _ => value(*of_b)
                .total_cmp(&value(*of_a))
                .then_with(|| a.name.cmp(&b.name)),
        });
        if self.backwards {
            all.reverse();
        }
        all
    }

    /// Where in the list the array stands that is chosen: the first unless another is.
    pub(super) fn at(&self) -> usize {
        let chosen = |(array, _): &(&ArrayJson, _)| Some(&array.uuid) == self.chosen.as_ref();
        self.arrays().iter().position(chosen).unwrap_or(0)
    }

    /// The latencies of the array that is chosen, the oldest first.
    pub(super) fn past(&self) -> Option<(&str, Vec<u64>)> {
        let (array, _) = *self.arrays().get(self.at())?;
        let past = self.past.get(&array.uuid)?;
        Some((&array.name, past.iter().copied().collect()))
    }

    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = &EventJson> {
        self.events.iter()
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Act {
        if std::mem::take(&mut self.help) {
            return Act::Draw;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let (at, last) = (self.at(), self.arrays.len().saturating_sub(1));
        match key.code {
            KeyCode::Char('c') if control => return Act::End,
            KeyCode::Char('q') | KeyCode::F(10) => return Act::End,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = true,
            KeyCode::Char('t') | KeyCode::F(5) => self.members = !self.members,
            KeyCode::Char('>') | KeyCode::F(6) => self.sort = self.sort.next(),
            KeyCode::Char('I') => self.backwards = !self.backwards,
            KeyCode::Char('Z') => self.held = !self.held,
            KeyCode::Up | KeyCode::Char('k') => self.choose(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose((at + 1).min(last)),
            KeyCode::PageUp => self.choose(at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.choose((at + PAGE).min(last)),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(last),
            _ => {}
        }
        Act::Draw
    }

    fn choose(&mut self, at: usize) {
        let chosen = self.arrays().get(at).map(|(array, _)| array.uuid.clone());
        self.chosen = chosen.or(self.chosen.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(arrays: &[(&str, u64)], served_s: u64) -> News {
        let array = |(name, _): &(&str, u64)| ArrayJson {
            name: (*name).to_owned(),
            uuid: format!("u-{name}"),
            state: "optimal".to_owned(),
            ..ArrayJson::default()
        };
        let stats = |(name, reads): &(&str, u64)| {
            let mut stats = StatsJson {
                name: (*name).to_owned(),
                uuid: format!("u-{name}"),
                served_ns: served_s * 1_000_000_000,
                ..StatsJson::default()
            };
            stats.reads.count = *reads;
            stats.reads.latency.count = *reads;
            stats.reads.latency.max_ns = 7000;
            stats
        };
        News::Told(Box::new(Told {
            arrays: arrays.iter().map(array).collect(),
            stats: arrays.iter().map(stats).collect(),
            events: Vec::new(),
        }))
    }

    fn model() -> Model {
        Model::new(Duration::from_secs(1), Paint::none())
    }

    fn names(model: &Model) -> Vec<&str> {
        model
            .arrays()
            .iter()
            .map(|(a, _)| a.name.as_str())
            .collect()
    }

    fn press(model: &mut Model, code: KeyCode) -> Act {
        model.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn the_chosen_array_stays_chosen_when_the_order_changes() {
        let mut model = model();
        model.hear(told(&[("a", 0), ("b", 0), ("c", 0)], 10));
        model.hear(told(&[("a", 10), ("b", 30), ("c", 20)], 11));
        assert_eq!(names(&model), ["a", "b", "c"]);
        press(&mut model, KeyCode::Down);
        press(&mut model, KeyCode::Down);
        assert_eq!(model.at(), 2);
        press(&mut model, KeyCode::F(6));
        assert_eq!(names(&model), ["b", "c", "a"]);
        assert_eq!(model.at(), 1);
        press(&mut model, KeyCode::Char('I'));
        assert_eq!((names(&model), model.at()), (vec!["a", "c", "b"], 1));
        press(&mut model, KeyCode::End);
        assert_eq!(model.at(), 2);
        // It is gone: the first is chosen.
        model.hear(told(&[("a", 11), ("c", 21)], 12));
        assert_eq!(model.at(), 0);
    }

    #[test]
    fn latencies_are_those_between_two_samples_and_a_held_picture_stays() {
        let mut model = model();
        model.hear(told(&[("a", 1000)], 10));
        assert_eq!(
            model.past(),
            None,
            "the first sample is of all the time before"
        );
        model.hear(told(&[("a", 1010)], 11));
        assert_eq!(model.past(), Some(("a", vec![7])));
        press(&mut model, KeyCode::Char('Z'));
        model.hear(told(&[("a", 1020), ("b", 1)], 12));
        assert_eq!(names(&model), ["a"]);
        press(&mut model, KeyCode::Char('Z'));
        model.hear(told(&[("a", 1050), ("b", 1)], 14));
        let rates = model.arrays()[0].1.expect("it serves");
        assert_eq!(
            (rates.rates.reads_per_s, rates.interval_s),
            (40.0 / 3.0, 3.0)
        );
    }

    #[test]
    fn keys_end_it_and_help_takes_the_next_key() {
        let mut model = model();
        assert_eq!(press(&mut model, KeyCode::F(1)), Act::Draw);
        assert!(model.help);
        assert_eq!(press(&mut model, KeyCode::Char('q')), Act::Draw);
        assert!(!model.help);
        assert_eq!(press(&mut model, KeyCode::Char('q')), Act::End);
        assert_eq!(press(&mut model, KeyCode::F(10)), Act::End);
        assert_eq!(press(&mut model, KeyCode::Char('c')), Act::Draw);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(model.key(control_c), Act::End);
    }
}
