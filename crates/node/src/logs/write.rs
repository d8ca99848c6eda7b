//! Writing what a container says into its log file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

use super::line::{End, Output, append};
use super::rotated;
use crate::options::Clock;

/// A longer line is cut into parts of this size, as container runtimes do.
const LINE: usize = 16 * 1024;
/// A log that is longer than this is put aside, and replaces what was put aside before.
const LONGEST: u64 = 10 * 1024 * 1024;

/// Writes both outputs until both are closed. `grown` wakes those who follow.
pub(crate) async fn record(
    path: PathBuf,
    stdout: impl AsyncRead + Unpin,
    stderr: impl AsyncRead + Unpin,
    grown: watch::Sender<u64>,
    clock: Clock,
) {
    let mut file = match LogFile::create(&path) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "cannot write a log");
            return;
        }
    };
    let mut out = Source::new(stdout, Output::Stdout);
    let mut err = Source::new(stderr, Output::Stderr);
    while out.open || err.open {
        let mut entries = Vec::new();
        tokio::select! {
            () = out.fill(), if out.open => out.drain(&mut entries, &clock),
            () = err.fill(), if err.open => err.drain(&mut entries, &clock),
        }
        if entries.is_empty() {
            continue;
        }
        match file.write(&entries) {
            Ok(()) => grown.send_modify(|bytes| *bytes += entries.len() as u64),
            Err(error) => tracing::warn!(%error, path = %path.display(), "cannot write a log"),
        }
    }
}

/// One of the outputs with the line that is not complete yet.
struct Source<R> {
    reader: R,
    output: Output,
    open: bool,
    pending: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Source<R> {
    fn new(reader: R, output: Output) -> Self {
        Source { reader, output, open: true, pending: Vec::new() }
    }

    /// Reads once. Cancel safe, because the buffer is kept.
    async fn fill(&mut self) {
        self.pending.reserve(LINE);
        match self.reader.read_buf(&mut self.pending).await {
            Ok(0) | Err(_) => self.open = false,
            Ok(_) => {}
        }
    }

    /// Moves complete lines out.
    fn drain(&mut self, entries: &mut Vec<u8>, clock: &Clock) {
        let now = clock();
        let mut done = 0;
        loop {
            let rest = &self.pending[done..];
            match rest.iter().take(LINE).position(|byte| *byte == b'\n') {
                Some(position) => {
                    append(entries, now, self.output, End::Full, &rest[..position]);
                    done += position + 1;
                }
                None if rest.len() >= LINE => {
                    append(entries, now, self.output, End::Part, &rest[..LINE]);
                    done += LINE;
                }
                None => break,
            }
        }
        self.pending.drain(..done);
        if !self.open && !self.pending.is_empty() {
            append(entries, now, self.output, End::Part, &std::mem::take(&mut self.pending));
        }
    }
}

struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl LogFile {
    fn create(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(LogFile { path: path.to_path_buf(), file, size })
    }

    fn write(&mut self, entries: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size + entries.len() as u64 > LONGEST {
            std::fs::rename(&self.path, rotated(&self.path))?;
            *self = LogFile::create(&self.path.clone())?;
        }
        self.file.write_all(entries)?;
        self.size += entries.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    async fn written(stdout: &[u8], stderr: &[u8]) -> String {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("c").join("0.log");
        let (grown, _) = watch::channel(0);
        let clock: Clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        record(path.clone(), stdout, stderr, grown, clock).await;
        std::fs::read_to_string(path).expect("a log")
    }

    #[tokio::test]
    async fn lines_of_both_outputs_are_recorded() {
        let text = written(b"one\ntwo\n", b"oops\n").await;
        let mut lines: Vec<&str> = text.lines().map(|line| &line[31..]).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["stderr F oops", "stdout F one", "stdout F two"]);
    }

    #[tokio::test]
    async fn what_is_not_ended_by_a_line_feed_is_a_part() {
        assert!(written(b"no end", b"").await.ends_with(" stdout P no end\n"));
        let long = vec![b'x'; LINE + 3];
        let text = written(&[&long[..], b"\n"].concat(), b"").await;
        let tags: Vec<&str> = text.lines().map(|line| &line[38..39]).collect();
        assert_eq!(tags, ["P", "F"]);
    }
}
