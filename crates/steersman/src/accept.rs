//! Takes connections in, so many at a time, until it is told to stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Gives each connection a task of its own, at most `limit` of them at once; further ones wait
/// in the listener's backlog.
///
/// Returns when `stop` is cancelled, nobody listens any more and the last task has ended: tasks
/// that would go on must look at `stop` themselves.
pub async fn accept<S, T>(listener: TcpListener, limit: usize, stop: &CancellationToken, mut serve: S)
where
    S: FnMut(TcpStream) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(limit));
    loop {
        let place = Arc::clone(&places).acquire_owned();
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = async { (place.await, listener.accept().await) } => accepted,
        };
        let (Ok(place), Ok((stream, _))) = accepted else {
            // Out of file descriptors or the like: do not spin.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let served = serve(stream);
        connections.spawn(async move {
            served.await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}
