//! Pods without processes, for tests of what is around them and for load.

use std::collections::{BTreeSet, VecDeque};

use nix::libc;

use super::Happening;
use super::message::{Exit, Place, Program};

/// A pod whose programs start at once and end when told to. Programs that are run beside a
/// container (probes, hooks) succeed at once.
#[derive(Debug, Default)]
pub(super) struct FakePod {
    last: u64,
    running: BTreeSet<u64>,
    happenings: VecDeque<Happening>,
}

impl FakePod {
    pub(super) fn run(&mut self, program: &Program) -> u64 {
        self.last += 1;
        let id = self.last;
        self.happenings.push_back(Happening::Started { id });
        match program.place {
            Place::Own(_) => {
                self.running.insert(id);
            }
            Place::Beside(_) => {
                self.happenings.push_back(Happening::Exited { id, exit: Exit::Code(0) });
            }
        }
        id
    }

    pub(super) fn signal(&mut self, id: u64, signal: i32) {
        let exit = match signal {
            libc::SIGKILL => Exit::Signal(signal),
            _ => Exit::Code(0),
        };
        if self.running.remove(&id) {
            self.happenings.push_back(Happening::Exited { id, exit });
        }
    }

    pub(super) async fn next(&mut self) -> Happening {
        match self.happenings.pop_front() {
            Some(happening) => happening,
            None => std::future::pending().await,
        }
    }
}
