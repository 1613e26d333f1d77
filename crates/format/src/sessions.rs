//! The sessions of an array: each start draws a number, and superblocks say which session wrote
//! which generations.
//!
//! Two branches of one history, such as an array that was started twice from one set of images,
//! number their superblocks alike. Their sessions have different numbers.
//!
//! Invariant: [`Sessions::at`] never names a session that did not write that generation. Where
//! there is no room for all sessions, it names none.

use crate::error::Invalid;
use crate::identity::Generation;
use crate::superblock::Known;

/// The most sessions that a superblock names.
pub const SESSIONS_MAX: usize = 16;

/// One start of the array and what followed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The first generation of its superblocks.
    pub first: Generation,
    /// Its number, drawn at random. 0 in place of sessions that are not known any more.
    pub number: u32,
}

/// The last sessions, the newest first: each wrote the generations from its first one up to the
/// first of the session after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions(Vec<Session>);

impl Sessions {
    /// These sessions, the newest first.
    ///
    /// # Errors
    /// They are in no order that sessions can have, or too many.
    pub fn new(sessions: Vec<Session>) -> Result<Sessions, Invalid> {
        let falls = sessions.windows(2).all(|two| two[0].first > two[1].first);
        let newest = sessions.first().is_none_or(|newest| newest.number != 0);
        let small = |session: &Session| (1..=Known::HEARD_MAX).contains(&session.first.0);
        let sound = falls && newest && sessions.iter().all(small);
        match sound && sessions.len() <= SESSIONS_MAX {
            true => Ok(Sessions(sessions)),
            false => Err(Invalid::Sessions),
        }
    }

    /// The newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.0.iter()
    }

    /// The number of the newest session.
    pub fn newest(&self) -> Option<u32> {
        self.0.first().map(|session| session.number)
    }

    /// The number of the session that wrote this generation, if that is known.
    pub fn at(&self, generation: Generation) -> Option<u32> {
        let from = |session: &&Session| session.first <= generation;
        let wrote = self.0.iter().find(from)?;
        (wrote.number != 0).then_some(wrote.number)
    }

    /// A session begins. Which session wrote generations behind `known`, up to its first, is not
    /// known. Where there is no room for all sessions, those that wrote generations which are
    /// `needed` stay longest.
    pub fn begin(&mut self, session: Session, known: Generation, needed: &[Generation]) {
        let before = |older: &Session| older.first < session.first;
        self.0.retain(before);
        if known.next() < session.first && !self.0.is_empty() {
            let first = known.next();
            self.0.retain(|older| older.first < first);
            self.0.insert(0, Session { first, number: 0 });
        }
        self.0.insert(0, session);
        if self.0.len() > SESSIONS_MAX {
            self.forget_all_but(needed);
        }
        self.0.truncate(SESSIONS_MAX);
    }

    /// The newest stays, and what is needed; in place of the others there is a gap.
    fn forget_all_but(&mut self, needed: &[Generation]) {
        let mut next = None;
        for session in &mut self.0 {
            let of_it = |g: &Generation| *g >= session.first && next.is_none_or(|next| *g < next);
            let stays = next.is_none() || needed.iter().any(of_it);
            next = Some(session.first);
            if !stays {
                session.number = 0;
            }
        }
        // Of several gaps, one behind the other, the oldest begins where all of them do.
        let sessions = std::mem::take(&mut self.0);
        for session in sessions {
            match self.0.last_mut() {
                Some(last) if last.number == 0 && session.number == 0 => *last = session,
                _ => self.0.push(session),
            }
        }
        // Before the oldest nothing is known anyway.
        if self.0.last().is_some_and(|oldest| oldest.number == 0) {
            self.0.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(first: u64, number: u32) -> Session {
        Session {
            first: Generation(first),
            number,
        }
    }

    #[test]
    fn a_generation_is_of_the_session_that_wrote_it() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.newest(), None);
        sessions.begin(session(2, 70), Generation(1), &[]);
        sessions.begin(session(6, 71), Generation(5), &[]);
        let at = |generation| sessions.at(Generation(generation));
        assert_eq!(
            [at(1), at(2), at(5), at(6), at(90)],
            [None, Some(70), Some(70), Some(71), Some(71)]
        );
    }

    #[test]
    fn what_is_forgotten_is_named_by_no_other_session() {
        let mut sessions = Sessions::default();
        let all: Vec<Session> = (0..200)
            .map(|at| session(10 * at + 2, at as u32 + 1))
            .collect();
        // A member that left in the third session, and one that left in the twentieth.
        let needed = [Generation(24), Generation(195)];
        for begun in &all {
            sessions.begin(*begun, Generation(begun.first.0 - 1), &needed);
            let again = Sessions::new(sessions.0.clone());
            assert_eq!(again.as_ref(), Ok(&sessions), "it can be written down");
            for generation in 0..begun.first.0 + 5 {
                let generation = Generation(generation);
                let wrote = all.iter().rfind(|session| session.first <= generation);
                let named = sessions.at(generation);
                let right = wrote.map(|session| session.number);
                assert!(
                    named.is_none() || named == right,
                    "{generation:?}: {named:?}"
                );
            }
            assert_eq!(sessions.newest(), Some(begun.number));
        }
        assert_eq!(sessions.at(needed[0]), Some(3));
        assert_eq!(sessions.at(needed[1]), Some(20));
    }

    #[test]
    fn sessions_of_a_past_that_was_not_taken_over_are_no_more() {
        let mut sessions = Sessions::default();
        sessions.begin(session(2, 70), Generation(1), &[]);
        sessions.begin(session(9, 71), Generation(8), &[]);
        sessions.begin(session(9, 72), Generation(8), &[]);
        assert_eq!(sessions.0, [session(9, 72), session(2, 70)]);
    }

    /// A member had a table that never took effect, and a newer generation with it.
    #[test]
    fn generations_of_another_history_are_of_no_session() {
        let mut sessions = Sessions::default();
        sessions.begin(session(2, 70), Generation(1), &[]);
        sessions.begin(session(9, 71), Generation(6), &[]);
        let at = |generation| sessions.at(Generation(generation));
        assert_eq!(
            [at(6), at(7), at(8), at(9)],
            [Some(70), None, None, Some(71)]
        );
    }

    #[test]
    fn sessions_in_no_order_are_refused() {
        let refused = |sessions: &[Session]| Sessions::new(sessions.to_vec()).is_err();
        assert!(refused(&[session(2, 1), session(2, 2)]));
        assert!(refused(&[session(2, 1), session(3, 2)]));
        assert!(refused(&[session(9, 0), session(3, 2)]));
        assert!(refused(&[session(9, 3), session(0, 2)]));
        assert!(refused(&[session(1 << 40, 3)]));
        assert!(!refused(&[session(9, 3), session(6, 0), session(3, 2)]));
        let many: Vec<Session> = (0..17).map(|at| session(100 - at, 1)).collect();
        assert!(refused(&many));
    }
}
