//! Control messages from one engine to the other.

use std::collections::VecDeque;

use kvweft_core::Message;

use crate::platform::{Lock, Platform};

/// A channel that keeps the order of messages. Its lock is taken last, also while an engine is locked.
pub struct Link<P: Platform> {
    pub(crate) state: P::Mutex<LinkState>,
    pub(crate) changed: P::Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct LinkState {
    pub(crate) messages: VecDeque<Message>,
    pub(crate) closed: bool,
}

impl<P: Platform> Default for Link<P> {
    fn default() -> Self {
        Link { state: P::Mutex::new(LinkState::default()), changed: P::Condvar::default() }
    }
}

impl<P: Platform> Link<P> {
    pub(crate) fn send(&self, message: Message) {
        self.state.lock().messages.push_back(message);
        P::notify_all(&self.changed);
    }

    /// The next message, if there is one.
    pub(crate) fn take(&self) -> Option<Message> {
        self.state.lock().messages.pop_front()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.state.lock().messages.is_empty()
    }

    /// Wakes those who wait for messages, also those that are about to sleep.
    pub(crate) fn poke(&self) {
        drop(self.state.lock());
        P::notify_all(&self.changed);
    }

    /// Nobody waits for messages any more.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        P::notify_all(&self.changed);
    }

    /// The next message arrives a second time, behind the others.
    pub(crate) fn duplicate(&self) {
        let mut state = self.state.lock();
        let again = state.messages.front().cloned();
        state.messages.extend(again);
    }

    /// The next message is overtaken by the one behind it.
    pub(crate) fn reorder(&self) {
        let mut state = self.state.lock();
        if state.messages.len() > 1 {
            state.messages.swap(0, 1);
        }
    }
}
