//! Reading logs back: the last lines, since a time, or as they come.

use std::collections::VecDeque;
use std::path::Path;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncSeekExt, BufReader};
use tokio::sync::{mpsc, watch};

use super::line::{End, Line};
use super::rotated;

/// What of a log is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LogQuery {
    /// Only the last so many lines.
    pub(crate) tail: Option<usize>,
    /// Only what was written at or after this time.
    pub(crate) since: Option<Timestamp>,
    /// Each line begins with its time.
    pub(crate) timestamps: bool,
    /// At most so many bytes.
    pub(crate) limit: Option<u64>,
}

impl LogQuery {
    /// A line as it is shown; `None` when it is not wanted.
    fn show(&self, raw: &[u8]) -> Option<Vec<u8>> {
        let line = Line::parse(raw)?;
        if self.since.is_some_and(|since| line.time().is_some_and(|at| at < since)) {
            return None;
        }
        let mut shown = Vec::with_capacity(raw.len());
        if self.timestamps {
            shown.extend_from_slice(line.at.as_bytes());
            shown.push(b' ');
        }
        shown.extend_from_slice(line.text);
        if line.end == End::Full {
            shown.push(b'\n');
        }
        Some(shown)
    }
}

/// Sends a log; with `growing`, until the container ends or the receiver is dropped.
pub(crate) async fn send(
    path: &Path,
    query: &LogQuery,
    mut growing: Option<watch::Receiver<u64>>,
    target: &mpsc::Sender<Bytes>,
) -> std::io::Result<()> {
    let mut left = query.limit.unwrap_or(u64::MAX);
    let mut reader = Lines::open(path).await?;
    let mut earlier = VecDeque::new();
    if let Ok(mut older) = Lines::open(&rotated(path)).await {
        while let Some(line) = older.next().await? {
            keep(&mut earlier, query, &line);
        }
    }
    // What is known now is cut to the wanted tail; what comes later is all sent.
    while let Some(line) = reader.next().await? {
        keep(&mut earlier, query, &line);
    }
    for shown in earlier {
        if !emit(shown, &mut left, target).await {
            return Ok(());
        }
    }
    while let Some(more) = &mut growing {
        let complete = tokio::select! {
            changed = more.changed() => changed.is_err(),
            () = target.closed() => return Ok(()),
        };
        loop {
            while let Some(line) = reader.next().await? {
                if let Some(shown) = query.show(&line)
                    && !emit(shown, &mut left, target).await
                {
                    return Ok(());
                }
            }
            if !reader.replaced(path).await {
                break;
            }
            reader = Lines::open(path).await?;
        }
        if complete {
            return Ok(());
        }
    }
    Ok(())
}

fn keep(kept: &mut VecDeque<Vec<u8>>, query: &LogQuery, line: &[u8]) {
    let Some(shown) = query.show(line) else { return };
    kept.push_back(shown);
    if query.tail.is_some_and(|tail| kept.len() > tail) {
        kept.pop_front();
    }
}

/// Sends a line; false when no more is wanted.
async fn emit(mut shown: Vec<u8>, left: &mut u64, target: &mpsc::Sender<Bytes>) -> bool {
    if shown.len() as u64 > *left {
        shown.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
    }
    *left -= shown.len() as u64;
    target.send(Bytes::from(shown)).await.is_ok() && *left > 0
}

/// The last lines of a log as text, for a termination message.
pub(crate) async fn tail(path: &Path, lines: usize, bytes: usize) -> Option<String> {
    let query = LogQuery { tail: Some(lines), ..LogQuery::default() };
    let mut reader = Lines::open(path).await.ok()?;
    let mut kept = VecDeque::new();
    while let Some(line) = reader.next().await.ok()? {
        keep(&mut kept, &query, &line);
    }
    let text: Vec<u8> = kept.into_iter().flatten().collect();
    let start = text.len().saturating_sub(bytes);
    (!text.is_empty()).then(|| String::from_utf8_lossy(&text[start..]).into_owned())
}

/// Complete lines of a file that may still grow.
struct Lines {
    reader: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
    identity: u64,
}

impl Lines {
    async fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path).await?;
        file.rewind().await?;
        let identity = std::os::unix::fs::MetadataExt::ino(&file.metadata().await?);
        Ok(Lines { reader: BufReader::new(file), begun: Vec::new(), identity })
    }

    /// The next line without its line feed; `None` when there is no complete one yet.
    async fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        self.reader.read_until(b'\n', &mut self.begun).await?;
        match self.begun.last() {
            Some(b'\n') => {
                let mut line = std::mem::take(&mut self.begun);
                line.pop();
                Ok(Some(line))
            }
            _ => Ok(None),
        }
    }

    /// Whether another file has taken the place of this one.
    async fn replaced(&self, path: &Path) -> bool {
        let data = tokio::fs::metadata(path).await;
        data.is_ok_and(|data| std::os::unix::fs::MetadataExt::ino(&data) != self.identity)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("0.log");
        let lines = "1970-01-01T00:00:01.000000000Z stdout F one\n\
                     1970-01-01T00:00:02.000000000Z stderr F two\n\
                     1970-01-01T00:00:03.000000000Z stdout P th\n\
                     1970-01-01T00:00:03.000000000Z stdout F ree\n";
        std::fs::write(&path, lines).expect("written");
        path
    }

    async fn read(path: &Path, query: LogQuery) -> String {
        let (sender, mut receiver) = mpsc::channel(100);
        send(path, &query, None, &sender).await.expect("sent");
        drop(sender);
        let mut text = Vec::new();
        while let Some(part) = receiver.recv().await {
            text.extend_from_slice(&part);
        }
        String::from_utf8(text).expect("text")
    }

    #[tokio::test]
    async fn a_log_is_shown_as_it_was_asked_for() {
        let folder = tempfile::tempdir().expect("folder");
        let path = file(folder.path());
        let all = LogQuery::default();
        assert_eq!(read(&path, all.clone()).await, "one\ntwo\nthree\n");
        let since = Timestamp::from_second(2).ok();
        assert_eq!(read(&path, LogQuery { since, ..all.clone() }).await, "two\nthree\n");
        assert_eq!(read(&path, LogQuery { tail: Some(1), ..all.clone() }).await, "ree\n");
        assert_eq!(read(&path, LogQuery { tail: Some(0), ..all.clone() }).await, "");
        assert_eq!(read(&path, LogQuery { limit: Some(5), ..all.clone() }).await, "one\nt");
        let stamped = read(&path, LogQuery { timestamps: true, tail: Some(3), ..all }).await;
        assert!(stamped.starts_with("1970-01-01T00:00:02.000000000Z two\n"), "{stamped}");
    }

    #[tokio::test]
    async fn a_follower_gets_what_comes_and_ends_with_the_container() {
        let folder = tempfile::tempdir().expect("folder");
        let path = file(folder.path());
        let (grown, growing) = watch::channel(0);
        let (sender, mut receiver) = mpsc::channel(100);
        let query = LogQuery::default();
        let reading = tokio::spawn({
            let path = path.clone();
            async move { send(&path, &query, Some(growing), &sender).await }
        });
        let mut log = std::fs::OpenOptions::new().append(true).open(&path).expect("open");
        // Whether the reader has seen the end of the file by now or not, nothing may be missing.
        tokio::task::yield_now().await;
        log.write_all(b"1970-01-01T00:00:04.000000000Z stdout F four\n").expect("written");
        grown.send_modify(|bytes| *bytes += 1);
        drop(grown);
        reading.await.expect("ended").expect("sent");
        let mut text = Vec::new();
        while let Some(part) = receiver.recv().await {
            text.extend_from_slice(&part);
        }
        assert_eq!(String::from_utf8_lossy(&text), "one\ntwo\nthree\nfour\n");
    }
}
