//! What a plan draws of changes of shape: growth, parities that come and go, data that moves.
//!
//! Invariant: draws of its own for each kind of change, so that worlds without it stay what they
//! are.
//!
//! Deliberately absent: to which shape data moves at the moment at which it is asked for
//! (`world::reshape`).

use strake_format::Level;

use super::*;

impl Plan {
    /// Strips are so large that data does not move: copies of rows would be, too.
    fn is_too_tall(&self) -> bool {
        self.strip > super::grain::MOVED_STRIP_MOST
    }

    /// Room in the log for one parity more; devices are larger by as much.
    fn make_log_room(&mut self) {
        let Some(level) = self.shape.level.with_parities(1) else {
            return;
        };
        let raised = Shape {
            level,
            members: self.shape.members + 1,
            ..self.shape
        };
        let log_bytes = |shape: &Shape| shape.log_bytes(self.strip, self.block, &self.tiny);
        let (now, raised) = (log_bytes(&self.shape), log_bytes(&raised));
        self.tiny.log_bytes = raised;
        let devices = self.devices.iter_mut();
        devices.for_each(|device| device.bytes += raised - now);
    }

    /// Room in the log for so much at least; devices are larger by twice as much.
    fn widen_log(&mut self, log_bytes: u64) {
        let log_bytes = log_bytes.next_multiple_of(8192);
        let more = log_bytes.saturating_sub(self.tiny.log_bytes);
        self.tiny.log_bytes += more;
        let devices = self.devices.iter_mut();
        devices.for_each(|device| device.bytes += 2 * more);
    }

    /// One array in eight changes its shape, most of these more than once. Draws of its own, as for
    /// the settings.
    pub(super) fn draw_reshapes(&mut self) {
        let mut rng = Prng::new(self.seed ^ 5, Purpose::Focus);
        if !rng.one_in(8) {
            return;
        }
        let lives = self.lives.len();
        let most = if self.strip > 8192 { 3 } else { 12 };
        for _ in 0..rng.range(1, 3) {
            let life = rng.index(lives);
            let action = match rng.percent(60) {
                true => Action::Grow,
                false => Action::AddParity,
            };
            if action == Action::AddParity {
                self.make_log_room();
            }
            let life = &mut self.lives[life];
            if action == Action::Grow {
                life.enlarge_bytes += self.tiny.region_bytes * rng.range(1, 12).min(most);
            }
            // The array is more often in order at first.
            let at = life.early_moment(&mut rng);
            life.act(at, action);
            // It may be cut off in its middle, or when it has just been told.
            if life.end != End::Stop && rng.percent(40) {
                life.end_at = Moment {
                    asks: at.asks,
                    events: at.events + rng.below(250),
                };
            } else if rng.percent(60) {
                life.end = rng.pick(&[End::PowerCut, End::Kill]);
                life.end_after_reshape = Some(rng.below(25));
            }
        }
    }

    /// Where a parity is added, it goes again in three of four arrays: as soon as something was
    /// rebuilt, and now and then. Draws of its own, too.
    pub(super) fn draw_lowered(&mut self) {
        let mut rng = Prng::new(self.seed ^ 9, Purpose::Focus);
        let adds = |life: &Life| life.actions.iter().any(|(_, a)| *a == Action::AddParity);
        let Some(first) = self.lives.iter().position(adds).filter(|_| rng.percent(75)) else {
            return;
        };
        self.lowers = true;
        for life in self.lives.iter_mut().skip(first) {
            let at = life.moment(200, &mut rng);
            life.act(at, Action::DropParity);
        }
        for life in self.lives.iter_mut().skip(first + 1) {
            if life.end_after_reshape.is_none() && rng.percent(50) {
                life.end = rng.pick(&[End::PowerCut, End::Kill]);
                life.end_after_reshape = Some(rng.below(25));
            }
        }
    }

    /// In one of ten arrays data moves to other strips, mostly more than once. Draws of its own,
    /// too.
    pub(super) fn draw_strips(&mut self) {
        let mut rng = Prng::new(self.seed ^ 11, Purpose::Focus);
        let mirrored = matches!(self.shape.level, Level::Raid1 | Level::Raid10);
        if mirrored || !rng.one_in(10) || self.is_too_tall() {
            return;
        }
        // Of bands of four rows, and what comes with them.
        let members = u64::from(self.shape.members) + 1;
        let copy = 5 * u64::from(self.strip) * members + 8192;
        self.widen_log(copy);
        // Lower rows need more buffers.
        self.budget_bytes = self.budget_bytes.max(self.moving_bytes());
        if rng.percent(75) {
            self.tiny.region_bytes = self.tiny.region_bytes.max(4 * u64::from(self.strip));
        }
        for life in &mut self.lives {
            if rng.percent(30) {
                continue;
            }
            let at = life.early_moment(&mut rng);
            life.act(at, Action::Strip);
            if rng.one_in(2) {
                life.act(at, Action::ContinueRestripe);
            }
            if rng.percent(70) {
                life.cut_off_in_move(70, 4000, &mut rng);
            }
        }
    }

    /// In one of eight arrays that can, data moves to other groups. Draws of its own, too.
    pub(super) fn draw_groups(&mut self) {
        let mut rng = Prng::new(self.seed ^ 12, Purpose::Focus);
        let few = self.shape.level.with_groups(true).is_none() || self.is_too_tall();
        if few || !rng.one_in(8) {
            return;
        }
        // A row of eight columns at most, and one of bands as high as two strips: see `regroup`.
        let most = Shape {
            members: 12,
            group: None,
            ..self.shape
        };
        let level = self.shape.level.with_groups(false);
        let most = Shape {
            level: level.unwrap_or(self.shape.level),
            ..most
        };
        let copy = 3 * u64::from(self.strip) * u64::from(most.members) + 8192;
        let log_bytes = most.log_bytes(self.strip, self.block, &self.tiny);
        self.widen_log(log_bytes.max(copy));
        self.budget_bytes = self.budget_bytes.max(self.moving_bytes());
        if rng.percent(50) {
            self.tiny.region_bytes = self.tiny.region_bytes.max(2 * u64::from(self.strip));
        }
        // A parity that was added rotates then.
        let raised = rng.one_in(3) && self.shape.level.with_parities(1).is_some();
        if raised {
            self.make_log_room();
        }
        for (number, life) in self.lives.iter_mut().enumerate() {
            if rng.percent(30) {
                continue;
            }
            let at = life.early_moment(&mut rng);
            if raised && number == 0 {
                life.act(at, Action::AddParity);
                continue;
            }
            life.act(at, Action::Regroup);
            if rng.one_in(4) {
                let events = at.events + rng.below(400);
                life.act(Moment { events, ..at }, Action::StopRestripe);
            }
            if rng.one_in(2) {
                life.act(at, Action::ContinueRestripe);
            }
            if rng.percent(70) {
                life.cut_off_in_move(60, 4000, &mut rng);
                if rng.one_in(3) {
                    (life.end_after_reshape, life.end_after_copy) = (None, Some(rng.below(60)));
                }
            }
        }
    }

    /// In one of six arrays that can, parities go that rotate; some of these have one data column,
    /// and become mirrors. Draws of its own, too.
    pub(super) fn draw_back(&mut self) {
        let mut rng = Prng::new(self.seed ^ 15, Purpose::Focus);
        let level = self.shape.level;
        if !level.has_parity() || level.is_grouped() || !rng.one_in(6) || self.is_too_tall() {
            return;
        }
        if rng.one_in(6) {
            let m = self.shape.members - 1;
            self.shape.level = Level::Nm { n: 1, m };
        }
        // Of two rows.
        let copy = u64::from(self.strip) * u64::from(self.shape.members) * 2 + 8192;
        let log_bytes = self.shape.log_bytes(self.strip, self.block, &self.tiny);
        self.widen_log(log_bytes.max(copy));
        let first = rng.index(self.lives.len());
        for (number, life) in self.lives.iter_mut().enumerate().skip(first) {
            let at = life.early_moment(&mut rng);
            if number == first || rng.one_in(3) {
                life.act(at, Action::Lower);
            }
            if rng.one_in(4) {
                let events = at.events + rng.below(2000);
                let at = Moment { events, ..at };
                life.act(at, Action::StopRestripe);
            }
            if rng.one_in(2) {
                life.act(at, Action::ContinueRestripe);
            }
            if rng.percent(70) {
                life.end = rng.pick(&[End::PowerCut, End::PowerCut, End::Kill]);
                life.end_at = Moment {
                    asks: life.asks,
                    events: 4000,
                };
                // While it moves, in a copy, or when there is nothing but the slots that go.
                match rng.below(4) {
                    0 => life.end_after_reshape = Some(rng.below(4000)),
                    1 => life.end_after_copy = Some(rng.below(60)),
                    _ => life.end_after_left = Some(rng.below(120)),
                }
            }
        }
    }

    /// In one of six arrays that can, data moves to a shape with more data columns: in several
    /// lives as a rule, some of which are cut off meanwhile. Draws of its own, too.
    pub(super) fn draw_moves(&mut self) {
        let mut rng = Prng::new(self.seed ^ 8, Purpose::Focus);
        let level = self.shape.level.with_data(self.shape.members, 2);
        let Some(level) = level.filter(|_| rng.one_in(6) && !self.is_too_tall()) else {
            return;
        };
        let wide = Shape {
            level,
            members: self.shape.members + 2,
            ..self.shape
        };
        // Of two rows, and what comes with them.
        let copy = u64::from(self.strip) * u64::from(wide.members) * 2 + 8192;
        let log_bytes = wide.log_bytes(self.strip, self.block, &self.tiny);
        self.widen_log(log_bytes.max(copy));
        let first = rng.index(self.lives.len());
        for (at, life) in self.lives.iter_mut().enumerate().skip(first) {
            let mut act = |action, rng: &mut Prng| {
                let at = life.early_moment(rng);
                life.act(at, action);
            };
            let begun = at == first || rng.one_in(4);
            if begun {
                act(Action::Restripe, &mut rng);
            }
            if rng.one_in(4) {
                act(Action::StopRestripe, &mut rng);
            }
            if rng.one_in(2) {
                act(Action::ContinueRestripe, &mut rng);
            }
            if begun && rng.percent(70) {
                // Most of all in the first windows, which move over themselves.
                life.cut_off_in_move(70, 1500, &mut rng);
                life.end_at = Moment {
                    asks: life.asks,
                    events: 2000,
                };
                if rng.one_in(2) {
                    // That is seldom met by chance.
                    (life.end_after_reshape, life.end_after_copy) = (None, Some(rng.below(60)));
                }
            }
        }
    }
}

impl Life {
    /// The power or a kill cuts it off when data has begun to move: soon in so many of a hundred,
    /// else within so many events.
    fn cut_off_in_move(&mut self, soon_percent: u64, late: u64, rng: &mut Prng) {
        self.end = rng.pick(&[End::PowerCut, End::PowerCut, End::Kill]);
        let soon = rng.percent(soon_percent);
        self.end_after_reshape = Some(rng.below(if soon { 250 } else { late }));
    }
}
