//! Starting helper processes from a thread that lives as long as the node.
//!
//! A helper asks the kernel for `SIGKILL` when its parent dies, and the kernel means the *thread*
//! that started it. Worker threads come and go; this one does not.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use tokio::sync::oneshot;

use super::channel::{self, AsyncChannel};

/// A helper process and the way to speak with it.
#[derive(Debug)]
pub(super) struct Helper {
    pub(super) process: Child,
    pub(super) channel: AsyncChannel,
}

/// The thread that starts helpers.
#[derive(Debug)]
pub(super) struct Spawner {
    orders: mpsc::SyncSender<Order>,
}

struct Order {
    title: String,
    socket: OwnedFd,
    answer: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    /// Starts the thread; helpers run `program`.
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let program = PathBuf::from(program);
        let (orders, receiver) = mpsc::sync_channel::<Order>(64);
        std::thread::Builder::new().name("spawner".into()).spawn(move || {
            for order in receiver {
                let child = Command::new(&program)
                    .arg("pod-init")
                    .arg(&order.title)
                    .env_clear()
                    // Ctrl-C in a terminal reaches the whole group of the node; helpers end when
                    // the node says so, after their pods had time to end.
                    .process_group(0)
                    .stdin(Stdio::from(order.socket))
                    .stdout(Stdio::null())
                    .spawn();
                let _ = order.answer.send(child);
            }
        })?;
        Ok(Spawner { orders })
    }

    /// Starts a helper; `title` shows in the process list.
    pub(super) async fn spawn(&self, title: &str) -> io::Result<Helper> {
        let (channel, socket) = channel::pair()?;
        let (answer, answered) = oneshot::channel();
        let order = Order { title: title.to_string(), socket, answer };
        let gone = || io::Error::other("the thread that starts processes is gone");
        self.orders.try_send(order).map_err(|error| match error {
            mpsc::TrySendError::Full(_) => io::Error::other("too many pods start at once"),
            mpsc::TrySendError::Disconnected(_) => gone(),
        })?;
        let process = answered.await.map_err(|_| gone())??;
        Ok(Helper { process, channel })
    }
}
