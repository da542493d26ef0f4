//! The scheduler: takes the reports of the device and the messages of the peer, one after the other.

use kvweft_core::{BlockHash, Input, Message, RequestId, Role};
use kvweft_world::Operation;

use super::{Core, Engine, Report, Sampled, Stopped, Stopping};
use crate::model::Model;
use crate::platform::{Guard, Lock, Platform};

impl<P: Platform, M: Model> Engine<P, M> {
    /// Takes reports until the engine is told to end.
    pub fn schedule(&self) {
        while self.take_report() {}
    }

    /// Waits for a report and takes it. Returns whether there was one before the engine was told to end.
    pub fn take_report(&self) -> bool {
        let mut core = self.lock();
        loop {
            let pending = |source: &usize| !core.reports[*source].is_empty();
            let named = |source: usize| Operation::Report { engine: self.index, source: source as u8 };
            let gate = self.parts.gate.as_ref();
            let next = (0..core.reports.len()).filter(pending).find(|&source| gate.allows(&named(source)));
            if let Some(source) = next {
                let report = core.reports[source].pop_front().expect("it is pending");
                self.report(&mut core, report);
                drop(core);
                gate.done(&named(source));
                return true;
            }
            if core.stopping == Stopping::WhenIdle && self.is_idle(&core) {
                return false;
            }
            match self.wait(core) {
                Ok(next) => core = next,
                Err(Stopped) => return false,
            }
        }
    }

    /// Takes every report that is there, without waiting; how many there were.
    pub fn take_reports(&self) -> usize {
        let mut core = self.lock();
        let mut taken = 0;
        for source in 0..core.reports.len() {
            while let Some(report) = core.reports[source].pop_front() {
                self.report(&mut core, report);
                taken += 1;
            }
        }
        taken
    }

    /// Whether nothing is left to do for the device.
    pub(crate) fn is_idle(&self, core: &Core) -> bool {
        core.running == 0
            && core.nic.is_empty()
            && core.streams.iter().all(|stream| stream.is_empty())
            && core.reports.iter().all(|reports| reports.is_empty())
    }

    pub(crate) fn report(&self, core: &mut Core, report: Report) {
        match report {
            Report::Completed(transfer, part, outcome) => {
                self.taken(self.input(core, Input::Completed { transfer, part, outcome }));
            }
            Report::Metadata(slot, room) => self.taken(self.input(core, Input::Metadata { slot, room })),
            Report::Step(step, items) => {
                self.taken(self.input(core, Input::StepDone { step }));
                for item in &items {
                    self.end_answer(core, item);
                }
            }
        }
    }

    /// Keeps what a step has sampled as soon as it has: the metadata of a transfer goes out behind the step, whether or not
    /// its report was taken. Results of a former life are dropped.
    pub(crate) fn keep_sampled(&self, core: &mut Core, item: &Sampled) {
        let wanted = core.manager.live_life(item.request) == Some(item.life);
        let (Some((first, bytes)), true) = (&item.bytes, wanted) else { return };
        let Some(sequence) = core.sequences.get_mut(&item.request.0) else { return };
        sequence.sampled(*first, bytes, item.tokens as usize * self.unit, P::now_us());
        if item.tokens as usize * self.unit == sequence.prompt {
            core.known.extend(sequence.prompt_blocks.iter().copied());
        }
    }

    /// The engine has sampled the last token of an answer.
    fn end_answer(&self, core: &mut Core, item: &Sampled) {
        let Some(sequence) = core.sequences.get(&item.request.0) else { return };
        if self.role == Role::Prefill || item.tokens != sequence.tokens_max {
            return;
        }
        let output = self.output_blocks(core, item.request);
        core.known.extend(output.iter().copied());
        self.taken(self.input(core, Input::Finish { request: item.request, output: &output }));
    }

    /// The hashes of the full pages that an answer has completed.
    fn output_blocks(&self, core: &Core, request: RequestId) -> Vec<BlockHash> {
        let sequence = &core.sequences[&request.0];
        match &sequence.forced {
            Some(blocks) => blocks.clone(),
            None => {
                let tokens = &sequence.tokens[..sequence.tokens.len().min(sequence.tokens_max as usize * self.unit)];
                self.parts.model.block_hashes(tokens).split_off(sequence.prompt_blocks.len())
            }
        }
    }

    /// Takes messages of the peer until the engine is told to end.
    pub fn receive(&self) {
        while self.take_message() {}
    }

    /// Waits for a message of the peer and takes it. Returns whether there was one before the link was closed.
    pub fn take_message(&self) -> bool {
        let link = &self.parts.links[1];
        let operation = Operation::Deliver { link: self.index };
        loop {
            let mut state = link.state.lock();
            while state.messages.is_empty() || !self.parts.gate.allows(&operation) {
                if state.closed {
                    return false;
                }
                state = P::wait(&link.changed, state);
            }
            drop(state);
            // The engine's lock comes before the link's: a poll looks at both.
            let mut core = self.lock();
            let Some(message) = link.take() else { continue };
            self.message(&mut core, &message);
            drop(core);
            self.parts.gate.done(&operation);
            return true;
        }
    }

    pub(crate) fn message(&self, core: &mut Core, message: &Message) {
        self.taken(self.input(core, Input::Peer { life: message.life, message }));
    }

    /// Asks the threads to end once nothing is left to do, or at their next wait.
    pub(crate) fn stop(&self, when_idle: bool) {
        let mut core: Guard<'_, P, Core> = self.lock();
        core.stopping = if when_idle { Stopping::WhenIdle } else { Stopping::Now };
        drop(core);
        self.poke();
    }
}
