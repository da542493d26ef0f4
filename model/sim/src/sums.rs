//! What must add up, and what waits in vain.

use kvweft_core::machine::request::RequestState;
use kvweft_core::{Message, RequestId};

use crate::simulation::Simulation;

impl Simulation<'_> {
    /// Adds everything up.
    pub(crate) fn add_up(&mut self) {
        self.report.conservation.checks += 1;
        let requests = &self.report.requests;
        let balanced = requests.submitted == self.ended + self.clients.in_flight;
        self.report.conservation.requests += u64::from(!balanced);
        self.report.conservation.bytes += u64::from(self.bytes_begun != self.bytes_ended + self.bytes_under_way());
        for engine in &self.engines {
            let accounts = engine.manager.accounts();
            for (t, tier) in engine.tiers.iter().enumerate() {
                let pages = accounts.pages[t];
                let owned = tier.owned();
                let sums = pages[0] == accounts.free_listed[t]
                    && pages.iter().sum::<u32>() == tier.len()
                    && u64::from(tier.len() - pages[0]) == owned
                    && u64::from(tier.taken) == owned;
                self.report.conservation.pages += u64::from(!sums);
            }
            let idle = accounts.requests == 0 && accounts.transfers == 0;
            self.report.conservation.leases += u64::from(idle && accounts.leases > 0);
        }
    }

    fn bytes_under_way(&self) -> u64 {
        let copies = self.engines.iter().flat_map(|engine| engine.copies.iter().flatten().copied());
        let copies: u64 = copies.map(|id| self.moves[id as usize].bytes()).sum();
        copies + self.network.writes().map(|id| self.moves[id as usize].bytes()).sum::<u64>()
    }

    /// Whether nothing that is under way can help a request.
    pub(crate) fn waits_in_vain(&self, at: u32) -> bool {
        let idle = self.engines.iter().all(|engine| engine.idle())
            && self.network.idle()
            && self.links.iter().all(|link| link.is_empty());
        if idle {
            return true;
        }
        let request = RequestId(at);
        let front = self.engines.len() - 1;
        let about = |message: &Message| message.request == request;
        let told = self.links.iter().flatten().any(about);
        let prefill = self.engines[0].manager.state_of(request);
        match self.engines[front].manager.state_of(request) {
            // Whoever fills its pages has ended, and nothing says so to it.
            Some(RequestState::Waiting) => {
                let over = prefill.is_none_or(|state| state == RequestState::Ended);
                (over || prefill == Some(RequestState::Bootstrapping)) && !told && !self.sends_of(at)
                    || prefill == Some(RequestState::Sending) && !told && !self.sends_of(at)
            }
            _ => false,
        }
    }

    /// What is left when nothing can happen any more.
    pub(crate) fn note_stuck(&mut self) {
        for at in self.clients.in_flight() {
            let front = self.engines.len() - 1;
            for (e, engine) in self.engines.iter().enumerate() {
                let stuck = &mut self.report.stuck;
                if !self.clients.is_submitted(at) {
                    stuck.for_pages += u64::from(e == front);
                    continue;
                }
                let count = match engine.manager.state_of(RequestId(at)) {
                    Some(RequestState::Queued) => &mut stuck.for_pages,
                    Some(RequestState::Waiting) => &mut stuck.for_input,
                    Some(RequestState::Bootstrapping) => &mut stuck.for_peer,
                    Some(RequestState::Sending) => &mut stuck.sending,
                    Some(RequestState::Ready | RequestState::Running | RequestState::Idle) => &mut stuck.not_run,
                    Some(RequestState::Draining) => &mut stuck.draining,
                    Some(RequestState::Ended) | None => continue,
                };
                *count += 1;
            }
        }
        for engine in &self.engines {
            let accounts = engine.manager.accounts();
            self.report.stuck.transfers += u64::from(accounts.transfers);
            self.report.stuck.leases += u64::from(accounts.leases);
            for t in 0..2 {
                let owned: u32 = accounts.pages[t][1..].iter().sum();
                self.report.stuck.leaked_pages[t] += u64::from(owned.saturating_sub(accounts.cached[t]));
            }
        }
    }
}
