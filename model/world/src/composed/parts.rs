//! What the parts of a world are.
//!
//! | part | what it holds |
//! |---|---|
//! | manager | the whole manager of an engine |
//! | device | its streams, events, metadata rows, launched steps, and what has ended unreported |
//! | network | its one-sided writes under way |
//! | reports | what its manager has not been told yet |
//! | memory | whose bytes are in each cell of its pools |
//! | arrived | sends that have ended, unreported |
//! | links | control messages under way, each way apart |
//! | clients | requests as their clients see them |
//! | timers | those that are armed |
//! | budget | what the outside world may still do |
//! | rooms | the last room that was given out |
//!
//! A step that touches the streams of one engine is the same step whatever the other engine does meanwhile, and so for
//! every part that it does not look at.

use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

use kvweft_core::{Message, SendOp, Timer};

use super::arena::Values;
use crate::engine::{Device, Engine, NicRun, Report, SOURCES};
use crate::kept::Kept;
use crate::memory::Memory;
use crate::part::Part;
use crate::protocol::Protocol;
use crate::world::{Client, Left, World};

/// Parts of one engine.
const OF_ENGINE: usize = 5;
const LINKS: usize = 2 * OF_ENGINE;
const CLIENTS: usize = LINKS + 2;
const TIMERS: usize = CLIENTS + 1;
const BUDGET: usize = TIMERS + 1;
const ARRIVED: usize = BUDGET + 1;
const ROOMS: usize = ARRIVED + 1;
/// All parts of a world.
pub(super) const PARTS: usize = ROOMS + 1;

/// The parts of each side of a world: its engines, and what is between them. The last two parts have no side.
pub(super) const SIDES: [std::ops::Range<usize>; 3] = [0..OF_ENGINE, OF_ENGINE..LINKS, LINKS..ARRIVED];

/// A world, part by part, each by its number among all values of that part.
pub(super) type Numbers = [u32; PARTS];

/// Every value that each part has had.
pub(super) struct Tables<P> {
    engines: [OfEngine<P>; 2],
    links: [Values<VecDeque<Arc<Message>>>; 2],
    arrived: Values<Vec<Arc<SendOp>>>,
    clients: Values<Vec<Client>>,
    timers: Values<Vec<(u8, Timer)>>,
    budget: Values<Left>,
    rooms: Values<u32>,
}

struct OfEngine<P> {
    manager: Values<Kept<P>>,
    device: Values<Device>,
    network: Values<Vec<NicRun>>,
    reports: Values<[VecDeque<Report>; SOURCES]>,
    memory: Values<Memory>,
}

impl<P> Default for OfEngine<P> {
    fn default() -> Self {
        OfEngine {
            manager: Values::default(),
            device: Values::default(),
            network: Values::default(),
            reports: Values::default(),
            memory: Values::default(),
        }
    }
}

impl<P> Default for Tables<P> {
    fn default() -> Self {
        Tables {
            engines: [OfEngine::default(), OfEngine::default()],
            links: [Values::default(), Values::default()],
            arrived: Values::default(),
            clients: Values::default(),
            timers: Values::default(),
            budget: Values::default(),
            rooms: Values::default(),
        }
    }
}

/// Somebody who goes through all parts of a world.
trait Visitor {
    fn visit<T: Hash + Eq + Clone>(&mut self, at: usize, part: &mut Part<T>, values: &Values<T>);
}

impl<P: Protocol> Tables<P> {
    fn visit(&self, world: &mut World<P>, visitor: &mut impl Visitor) {
        for (e, (engine, values)) in world.engines.iter_mut().zip(&self.engines).enumerate() {
            let first = e * OF_ENGINE;
            visitor.visit(first, &mut engine.manager, &values.manager);
            visitor.visit(first + 1, &mut engine.device, &values.device);
            visitor.visit(first + 2, &mut engine.nic, &values.network);
            visitor.visit(first + 3, &mut engine.reports, &values.reports);
            visitor.visit(first + 4, &mut engine.memory, &values.memory);
        }
        for (at, (link, values)) in world.links.iter_mut().zip(&self.links).enumerate() {
            visitor.visit(LINKS + at, link, values);
        }
        visitor.visit(ARRIVED, &mut world.arrived, &self.arrived);
        visitor.visit(CLIENTS, &mut world.clients, &self.clients);
        visitor.visit(TIMERS, &mut world.timers, &self.timers);
        visitor.visit(BUDGET, &mut world.left, &self.budget);
        visitor.visit(ROOMS, &mut world.next_room, &self.rooms);
    }

    /// A world of two engines that shares all its parts.
    pub(super) fn world(&self, numbers: &Numbers) -> World<P> {
        fn part<T>(values: &Values<T>, number: u32) -> Part<T> {
            Part::shared(Arc::clone(values.at(number)))
        }
        let engine = |e: usize| {
            let (values, numbers) = (&self.engines[e], &numbers[e * OF_ENGINE..]);
            Engine {
                manager: part(&values.manager, numbers[0]),
                device: part(&values.device, numbers[1]),
                nic: part(&values.network, numbers[2]),
                reports: part(&values.reports, numbers[3]),
                memory: part(&values.memory, numbers[4]),
            }
        };
        World {
            engines: vec![engine(0), engine(1)],
            arrived: part(&self.arrived, numbers[ARRIVED]),
            links: [0, 1].map(|link| part(&self.links[link], numbers[LINKS + link])),
            clients: part(&self.clients, numbers[CLIENTS]),
            timers: part(&self.timers, numbers[TIMERS]),
            left: part(&self.budget, numbers[BUDGET]),
            next_room: part(&self.rooms, numbers[ROOMS]),
        }
    }

    /// The parts that were looked at, in order.
    pub(super) fn looked_at(&self, world: &mut World<P>) -> Vec<usize> {
        struct Reads(Vec<(u32, usize)>);
        impl Visitor for Reads {
            fn visit<T: Hash + Eq + Clone>(&mut self, at: usize, part: &mut Part<T>, _: &Values<T>) {
                self.0.extend(part.read_at().map(|order| (order, at)));
            }
        }
        let mut reads = Reads(Vec::with_capacity(PARTS));
        self.visit(world, &mut reads);
        reads.0.sort_unstable();
        reads.0.into_iter().map(|(_, at)| at).collect()
    }

    /// The parts that were written, and their new numbers.
    pub(super) fn written(&self, world: &mut World<P>) -> Vec<(u8, u32)> {
        struct Writes(Vec<(u8, u32)>);
        impl Visitor for Writes {
            fn visit<T: Hash + Eq + Clone>(&mut self, at: usize, part: &mut Part<T>, values: &Values<T>) {
                self.0.extend(part.written().map(|value| (at as u8, values.number(value))));
            }
        }
        let mut writes = Writes(Vec::with_capacity(PARTS));
        self.visit(world, &mut writes);
        writes.0
    }

    pub(super) fn clients(&self, numbers: &Numbers) -> &[Client] {
        self.clients.at(numbers[CLIENTS])
    }

    pub(super) fn timers(&self, numbers: &Numbers) -> &[(u8, Timer)] {
        self.timers.at(numbers[TIMERS])
    }
}
