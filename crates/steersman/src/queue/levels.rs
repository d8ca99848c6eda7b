//! The ready entries: three levels, namespaces taking turns in each.

use std::collections::{HashMap, VecDeque};

use super::Priority;

/// After being passed over this often a level gets a turn.
const PATIENCE: u32 = 8;

#[derive(Default)]
pub(super) struct Levels {
    levels: [Level; 3],
    tenants: HashMap<Box<str>, u32>,
}

#[derive(Default)]
struct Level {
    /// Entries that still count; the rings also hold retracted ones.
    live: usize,
    /// How often a more urgent level was served while something waited here.
    passed: u32,
    /// Tenants that have entries, in the order of their turns.
    turns: VecDeque<u32>,
    /// Per tenant its entries with their tickets.
    lines: Vec<VecDeque<(u32, u64)>>,
}

impl Levels {
    /// The number of a namespace.
    pub(super) fn tenant(&mut self, namespace: &str) -> u32 {
        if let Some(tenant) = self.tenants.get(namespace) {
            return *tenant;
        }
        let tenant = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        self.tenants.insert(namespace.into(), tenant);
        tenant
    }

    pub(super) fn push(&mut self, priority: Priority, tenant: u32, entry: u32, ticket: u64) {
        let level = &mut self.levels[priority as usize];
        let at = tenant as usize;
        if level.lines.len() <= at {
            level.lines.resize_with(at + 1, VecDeque::new);
        }
        if level.lines[at].is_empty() {
            level.turns.push_back(tenant);
        }
        level.lines[at].push_back((entry, ticket));
        level.live += 1;
    }

    /// An entry moved to another level; its old place is skipped when its turn comes.
    pub(super) fn retract(&mut self, priority: Priority) {
        self.levels[priority as usize].live -= 1;
    }

    /// The next entry for which `is_valid` holds of its ticket.
    pub(super) fn pop(&mut self, is_valid: impl Fn(u32, u64) -> bool) -> Option<u32> {
        let chosen = self.choose()?;
        for level in &mut self.levels[chosen + 1..] {
            if level.live > 0 {
                level.passed += 1;
            }
        }
        let level = &mut self.levels[chosen];
        level.passed = 0;
        while let Some(tenant) = level.turns.pop_front() {
            let line = &mut level.lines[tenant as usize];
            let mut found = None;
            while let Some((entry, ticket)) = line.pop_front() {
                if is_valid(entry, ticket) {
                    found = Some(entry);
                    break;
                }
            }
            if line.is_empty() {
                // A burst of one namespace should not hold its memory for ever.
                if line.capacity() > 1024 {
                    line.shrink_to_fit();
                }
            } else {
                level.turns.push_back(tenant);
            }
            if found.is_some() {
                level.live -= 1;
                return found;
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.live == 0)
    }

    pub(super) fn depth(&self) -> [usize; 3] {
        [0, 1, 2].map(|at| self.levels[at].live)
    }

    /// The least urgent level whose patience is at an end, else the most urgent one.
    fn choose(&self) -> Option<usize> {
        let waiting = |at: &usize| self.levels[*at].live > 0;
        let impatient = |at: &usize| self.levels[*at].passed >= PATIENCE;
        let levels = 0..self.levels.len();
        levels
            .clone()
            .rev()
            .find(|at| waiting(at) && impatient(at))
            .or_else(|| levels.into_iter().find(waiting))
    }
}
