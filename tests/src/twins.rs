//! Two managers that must do the same up to names.

use std::collections::BTreeMap;

use kvweft_core::{
    BlockHash, Effect, Generation, Group, Input, Manager, Outcome, PageId, Part, PartKind, Rank, Rejected, Renamer,
    RequestId, StepId, Submit, Tier, TransferId,
};

use crate::device::{Queued, Report};
use crate::drive::Until;
use crate::names::Names;
use crate::operation::{Case, Operation, REQUESTS};
use crate::rig::{Rig, Taken, encoding};
use crate::shadow::Checked;

const WHOLE: Part = Part { rank: Rank(0), kind: PartKind::Whole, handle: 0 };

/// Does the same to both rigs and compares them after every input.
pub fn compare(case: &Case, mut left: Rig, mut right: Rig) -> Checked {
    let mut names = [[Names::default(), Names::default()], [Names::default(), Names::default()]];
    for e in 0..left.engines.len() {
        if encoding(&left.engines[e].manager) != encoding(&right.engines[e].manager) {
            return Err(format!("engine {e}: the encodings differ from the start"));
        }
    }
    for (at, operation) in case.operations.iter().enumerate() {
        left.log = Some(Vec::new());
        right.log = Some(Vec::new());
        let (a, b) = (left.operate(operation), right.operate(operation));
        let (log_a, log_b) = (left.log.take().unwrap_or_default(), right.log.take().unwrap_or_default());
        for (a, b) in log_a.iter().zip(&log_b) {
            same(&mut names, a, b).map_err(|what| format!("operation {at}, {operation:?}: {what}"))?;
        }
        if log_a.len() != log_b.len() || a.is_ok() != b.is_ok() {
            return Err(format!(
                "operation {at}, {operation:?}: {} and {} inputs; {a:?}; {b:?}",
                log_a.len(),
                log_b.len()
            ));
        }
        if a.is_err() {
            // What does not hold is the business of the tests against the reference.
            return Ok(());
        }
    }
    Ok(())
}

fn same(names: &mut [[Names; 2]; 2], a: &Taken, b: &Taken) -> Checked {
    let inputs = format!("{} / {}", a.input, b.input);
    if a.encoding != b.encoding {
        return Err(format!("the encodings differ after {inputs}"));
    }
    let [left, right] = names;
    same_effects(left, right, a.engine, &a.effects, &b.effects).map_err(|what| format!("{what}, after {inputs}"))
}

/// Compares what two managers asked for; `engine` says whose names are meant.
fn same_effects(
    left: &mut [Names; 2],
    right: &mut [Names; 2],
    engine: usize,
    a: &Result<Vec<Effect>, Rejected>,
    b: &Result<Vec<Effect>, Rejected>,
) -> Checked {
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) if a.len() == b.len() => (a, b),
        (Err(a), Err(b)) if a == b => return Ok(()),
        _ => return Err(format!("{a:?} is not like {b:?}")),
    };
    for (a, b) in a.iter().zip(b) {
        if renamed(left, engine, a) != renamed(right, engine, b) {
            return Err(format!("{a:?} is not like {b:?}"));
        }
    }
    Ok(())
}

fn renamed(names: &mut [Names; 2], engine: usize, effect: &Effect) -> Effect {
    let [front, back] = names;
    if engine == 0 { front.renamed(effect, back) } else { back.renamed(effect, front) }
}

/// Lets requests come and go, then resets: what is left is a fresh engine with other names. The last round is always
/// the same, because ended requests and concluded rooms are remembered.
pub fn warm_up(rig: &mut Rig, rounds: &[u8]) -> Checked {
    for &round in rounds.iter().chain(&[0]) {
        for request in 0..REQUESTS {
            let prompt = vec![round % 3; 1 + usize::from(round % 2)];
            rig.operate(&Operation::Submit { request, prompt, tail: 0, output: 0, priority: 0, late: false })?;
            if round > 0 {
                rig.operate(&Operation::Go(vec![round; usize::from(round)]))?;
            } else {
                rig.settle(Until::Over, None)?;
            }
            for engine in 0..rig.engines.len() as u8 {
                rig.operate(&Operation::Abort { engine, request })?;
            }
            rig.settle(Until::Over, None)?;
        }
        for engine in 0..rig.engines.len() as u8 {
            rig.operate(&Operation::Flush { engine })?;
        }
    }
    rig.names.clear();
    for engine in &mut rig.engines {
        engine.device.told.clear();
    }
    Ok(())
}

/// A manager at one moment, what can be done to it, and the numbers that its encoding gave.
#[derive(Clone)]
pub struct Moment {
    manager: Manager,
    names: Names,
    /// Inputs by what they mean; equal for inputs that are equal up to names.
    menu: BTreeMap<String, Input<'static>>,
}

/// Prompts that the tree may know, and two that it does not, for which something must be evicted.
const PROMPTS: [&[BlockHash]; 5] = [
    &[BlockHash(0)],
    &[BlockHash(0), BlockHash(1)],
    &[BlockHash(2)],
    &[BlockHash(200)],
    &[BlockHash(200), BlockHash(201), BlockHash(202)],
];

impl Moment {
    /// The present moment of an engine that does both, with its encoding.
    pub fn of(rig: &Rig) -> (Vec<u8>, Moment) {
        let engine = &rig.engines[0];
        let mut numbers = Renamer::default();
        let mut code = Vec::new();
        engine.manager.encode(&mut numbers, &mut code);
        let mut names = Names::default();
        let mut pages: Vec<_> =
            engine.shadow.pages.iter().map(|(&(tier, page), known)| (tier, PageId(page), known.generation)).collect();
        pages.sort_by_key(|&(tier, page, _)| (tier, numbers.page(tier, page)));
        for (tier, page, generation) in pages {
            let mut block = kvweft_core::BlockRef { group: Group(0), tier, page, generation: Generation(generation) };
            debug_assert!(tier == Tier::DEVICE || tier == Tier::HOST);
            names.block(&mut block);
        }
        let mut menu = fixed_menu();
        for (id, mut life) in
            (0..u32::from(REQUESTS)).filter_map(|id| Some((id, engine.manager.live_life(RequestId(id))?)))
        {
            names.life(RequestId(id), &mut life);
        }
        let mut transfers: Vec<TransferId> = engine.device.owed.keys().copied().collect();
        transfers.sort_by_key(|&id| numbers.transfer(id));
        for transfer in transfers {
            let number = numbers.transfer(transfer);
            names.transfer(&mut transfer.clone());
            for outcome in [Outcome::Done, Outcome::Failed] {
                menu.insert(format!("{outcome:?} {number}"), Input::Completed { transfer, part: WHOLE, outcome });
            }
            menu.insert(format!("refused {number}"), Input::SubmitFailed { transfer });
            menu.insert(format!("layer {number}"), Input::LayerReady { transfer, layer: 0 });
        }
        let mut steps = pending_steps(rig);
        steps.sort_by_key(|&step| numbers.step(step));
        for step in steps {
            menu.insert(format!("step {}", numbers.step(step)), Input::StepDone { step });
            names.step(&mut step.clone());
        }
        (code, Moment { manager: engine.manager.clone(), names, menu })
    }

    /// Does everything on the menu to both, each from this moment, and compares what comes of it.
    pub fn compare(&self, other: &Moment) -> Checked {
        let keys = |moment: &Moment| moment.menu.keys().cloned().collect::<Vec<_>>();
        if keys(self) != keys(other) {
            return Err(format!("equal encodings, but {:?} and {:?} can happen", keys(self), keys(other)));
        }
        for (what, &input) in &self.menu {
            let ((a, code_a), (b, code_b)) = (self.after(input), other.after(other.menu[what]));
            let mut left = [self.names.clone(), Names::default()];
            let mut right = [other.names.clone(), Names::default()];
            same_effects(&mut left, &mut right, 0, &a, &b).map_err(|how| format!("{what}: {how}"))?;
            if code_a != code_b {
                return Err(format!("{what}: equal states became different: {code_a:?} / {code_b:?}"));
            }
        }
        Ok(())
    }

    fn after(&self, input: Input<'static>) -> (Result<Vec<Effect>, Rejected>, Vec<u8>) {
        let mut manager = self.manager.clone();
        let taken = manager.handle(input);
        let effects = std::iter::from_fn(|| manager.poll_effect()).collect();
        (taken.map(|()| effects), encoding(&manager))
    }
}

fn fixed_menu() -> BTreeMap<String, Input<'static>> {
    let mut menu = BTreeMap::new();
    for request in (0..u32::from(REQUESTS)).map(RequestId) {
        for (at, blocks) in PROMPTS.into_iter().enumerate() {
            let submit = Submit { request, room: None, blocks, tail_tokens: 0, output_tokens: 1, priority: 0 };
            menu.insert(format!("submit {} {at}", request.0), Input::Submit(submit));
        }
        menu.insert(format!("abort {}", request.0), Input::Abort { request });
        menu.insert(format!("preempt {}", request.0), Input::Preempt { request });
        menu.insert(format!("finish {}", request.0), Input::Finish { request, output: &[] });
    }
    menu.insert("flush".to_owned(), Input::Flush);
    menu
}

fn pending_steps(rig: &Rig) -> Vec<StepId> {
    let device = &rig.engines[0].device;
    let queued = device.streams[0].iter().filter_map(|queued| match queued {
        Queued::Step { op, .. } => Some(op.step),
        Queued::Copy { .. } => None,
    });
    let ended = device.reports[0].iter().filter_map(|report| match report {
        Report::Step(step) => Some(*step),
        _ => None,
    });
    queued.chain(ended).collect()
}
