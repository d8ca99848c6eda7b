//! An operator that runs in a test.

use steersman::{Cache, CancellationToken, Manager, ManagerError, Metrics};
use tokio::task::JoinHandle;

/// A manager that runs in the background of a test. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), ManagerError>>>,
    cache: Cache,
    metrics: Metrics,
}

impl Running {
    pub(crate) fn start(manager: Manager) -> Self {
        let stop = CancellationToken::new();
        let (cache, metrics) = (manager.cache(), manager.metrics());
        let task = tokio::spawn(manager.run(stop.clone()));
        Self { stop, task: Some(task), cache, metrics }
    }

    /// Its cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Its metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The sum of a metric over all series that begin like this, such as
    /// `reconcile_total{controller="webapp"`.
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.encode();
        let values = text
            .lines()
            .filter(|line| line.starts_with(series))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Stops it in good order.
    ///
    /// # Panics
    /// When it ended with an error.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Err(error) = self.join().await {
            panic!("the manager failed: {error}");
        }
    }

    /// Waits for it to end by itself.
    ///
    /// # Errors
    /// Those of the manager.
    ///
    /// # Panics
    /// When the manager panicked.
    pub async fn join(&mut self) -> Result<(), ManagerError> {
        match self.task.take() {
            Some(task) => match task.await {
                Ok(result) => result,
                Err(error) if error.is_cancelled() => Ok(()),
                Err(error) => panic!("the manager panicked: {error}"),
            },
            None => Ok(()),
        }
    }

    /// Ends it at once, as a crash would: nothing is finished or handed back.
    pub async fn kill(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Cancelled is what we asked for.
            let _ = task.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
