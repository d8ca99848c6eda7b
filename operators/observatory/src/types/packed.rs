//! The tasks of a status that would be too large for the server.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::{ObservatoryStatus, TaskStatus};

/// No status that a server stores unpacks to more.
const LONGEST: u64 = 256 * 1024 * 1024;

impl ObservatoryStatus {
    /// Puts the tasks into `encodedTasks`, where they take a twentieth of the space. Those in
    /// `tasks` stay as they are.
    pub(crate) fn pack(&mut self) {
        let packed = || -> std::io::Result<String> {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            serde_json::to_writer(&mut gzip, &self.tasks)?;
            gzip.flush()?;
            Ok(STANDARD.encode(gzip.finish()?))
        };
        self.encoded_tasks = packed().ok();
    }

    /// Takes the tasks out of `encodedTasks`, if they are there.
    pub fn unpack(&mut self) {
        let Some(text) = &self.encoded_tasks else { return };
        let unpacked = || -> Option<Vec<TaskStatus>> {
            let bytes = STANDARD.decode(text).ok()?;
            let mut json = Vec::new();
            GzDecoder::new(&*bytes).take(LONGEST).read_to_end(&mut json).ok()?;
            serde_json::from_slice(&json).ok()
        };
        // One that cannot be read is as good as none: what is in `tasks` holds.
        if let Some(tasks) = unpacked() {
            self.tasks = tasks;
        }
        self.encoded_tasks = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Phase;

    #[test]
    fn what_is_packed_comes_out_the_same_and_is_much_smaller() {
        let task = |number: usize| TaskStatus {
            name: format!("task-{number}"),
            phase: Phase::Succeeded,
            pod_name: Some(format!("workflow-task-{number}")),
            node_name: Some("node".to_owned()),
            ..TaskStatus::default()
        };
        let full = ObservatoryStatus { tasks: (0..1000).map(task).collect(), ..Default::default() };
        let mut packed = full.clone();
        packed.pack();
        packed.tasks.clear();
        let size = |status: &ObservatoryStatus| serde_json::to_vec(status).expect("JSON").len();
        assert!(size(&packed) * 5 < size(&full), "{} of {}", size(&packed), size(&full));
        packed.unpack();
        assert_eq!(packed, full);
    }

    #[test]
    fn what_cannot_be_unpacked_changes_nothing() {
        let task = TaskStatus { name: "a".to_owned(), ..TaskStatus::default() };
        let mut status = ObservatoryStatus {
            tasks: vec![task.clone()],
            encoded_tasks: Some("no gzip".to_owned()),
            ..Default::default()
        };
        status.unpack();
        assert_eq!((status.tasks, status.encoded_tasks), (vec![task], None));
    }
}
