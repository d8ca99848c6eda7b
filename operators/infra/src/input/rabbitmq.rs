//! RabbitMQ, and what speaks AMQP 0-9-1 like it.
//!
//! A message is acknowledged after its effect is written. One that can never take effect is
//! published to the parking queue with the reason, and acknowledged once the broker has confirmed
//! that. One that may take effect later is tried again and keeps its place meanwhile; when the
//! connection breaks, the broker delivers again what was not acknowledged.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use steersman::CancellationToken;

use super::amqp::{self, AmqpError, Connection, Delivery, Incoming};
use super::event::Mapping;
use super::intake::{Intake, IntakeError};
use super::webhook::hex;

/// How many messages the broker sends ahead.
const PREFETCH: u16 = 16;
/// How long to wait after a failure, at most.
const LONGEST: Duration = Duration::from_secs(30);

/// A queue that is listened to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitMq {
    /// Where the broker is: `amqp://user:password@host:5672/vhost`, or `amqps://…`.
    pub url: String,
    /// The queue. It must be there.
    pub queue: String,
    /// Where messages go that can never take effect; made if it is not there. `<queue>.parked`.
    pub parking_queue: Option<String>,
    /// Where the event is in a message.
    #[serde(default)]
    pub mapping: Mapping,
}

impl RabbitMq {
    /// Whether this can be used.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.queue.is_empty() {
            return Err("queue is empty".into());
        }
        amqp::check(&self.url).map_err(|error| error.to_string())?;
        self.mapping.check()
    }

    /// Listens until told to stop.
    pub(super) async fn run(&self, name: &str, intake: &Intake, stop: &CancellationToken) {
        let mut failures: u32 = 0;
        loop {
            let parking = self.parking_queue.clone().unwrap_or_else(|| format!("{}.parked", self.queue));
            let opened = tokio::select! {
                () = stop.cancelled() => return,
                opened = Connection::open(&self.url, &self.queue, &parking, PREFETCH) => opened,
            };
            let why = match opened {
                Err(why) => why,
                Ok(connection) => {
                    failures = 0;
                    tracing::info!(input = name, queue = self.queue, "listening");
                    let mut consumer =
                        Consumer { name, mapping: &self.mapping, intake, parking, parked: HashMap::new() };
                    match consumer.run(connection, stop).await {
                        Ok(()) => return,
                        Err(why) => why,
                    }
                }
            };
            tracing::warn!(input = name, %why, "the queue cannot be used");
            let wait = Duration::from_millis(500).saturating_mul(1 << failures.min(10)).min(LONGEST);
            failures = failures.saturating_add(1);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

struct Consumer<'a> {
    name: &'a str,
    mapping: &'a Mapping,
    intake: &'a Intake,
    parking: String,
    /// Messages that wait for the broker to confirm that they are parked, by that number.
    parked: HashMap<u64, u64>,
}

impl Consumer<'_> {
    /// Takes message after message, in their order, while the connection is kept alive.
    async fn run(&mut self, mut connection: Connection, stop: &CancellationToken) -> Result<(), AmqpError> {
        let mut waiting: VecDeque<Delivery> = VecDeque::new();
        loop {
            let Some(delivery) = waiting.pop_front() else {
                let incoming = tokio::select! {
                    () = stop.cancelled() => break,
                    incoming = connection.next() => incoming?,
                };
                self.sort(incoming, &mut waiting, &mut connection).await?;
                continue;
            };
            let taken = {
                let (name, mapping, intake) = (self.name, self.mapping, self.intake);
                let mut taking = std::pin::pin!(take(name, mapping, intake, &delivery));
                loop {
                    tokio::select! {
                        () = stop.cancelled() => {
                            connection.close().await;
                            return Ok(());
                        }
                        taken = taking.as_mut() => break taken,
                        incoming = connection.next() => {
                            let incoming = incoming?;
                            self.sort(incoming, &mut waiting, &mut connection).await?;
                        }
                    }
                }
            };
            match taken {
                Ok(()) => connection.acknowledge(delivery.tag).await?,
                Err(why) => {
                    tracing::warn!(input = self.name, why, "a message was parked");
                    let headers = BTreeMap::from([
                        ("x-steersman-reason", why),
                        ("x-steersman-input", self.name.to_owned()),
                    ]);
                    let id = delivery.id.as_deref();
                    let number = connection.publish(&self.parking, id, &headers, &delivery.body).await?;
                    self.parked.insert(number, delivery.tag);
                }
            }
        }
        connection.close().await;
        Ok(())
    }

    async fn sort(
        &mut self,
        incoming: Incoming,
        waiting: &mut VecDeque<Delivery>,
        connection: &mut Connection,
    ) -> Result<(), AmqpError> {
        match incoming {
            Incoming::Delivery(delivery) => waiting.push_back(delivery),
            Incoming::Confirmed { number, all_before } => {
                let mut done: Vec<u64> = match all_before {
                    true => self.parked.keys().copied().filter(|parked| *parked <= number).collect(),
                    false => vec![number],
                };
                done.sort_unstable();
                for number in done {
                    if let Some(tag) = self.parked.remove(&number) {
                        connection.acknowledge(tag).await?;
                    }
                }
            }
            // Nothing is lost: the message is delivered again with the next connection.
            Incoming::NotConfirmed { .. } => {
                return Err(AmqpError::Refused(format!("{} takes no messages", self.parking)));
            }
        }
        Ok(())
    }
}

/// Makes a message take effect, however long that takes; or says why it never will.
async fn take(name: &str, mapping: &Mapping, intake: &Intake, delivery: &Delivery) -> Result<(), String> {
    let event = mapping.read_bytes(&delivery.body)?;
    // Without any id a message is the same as long as it says the same.
    let id = event.id.clone().or_else(|| delivery.id.clone());
    let id = id.unwrap_or_else(|| hex(&Sha256::digest(&delivery.body)));
    let mut failures: u32 = 0;
    loop {
        match intake.take(name, &id, &event).await {
            Ok(_) => return Ok(()),
            Err(IntakeError::Poison(why)) => return Err(why),
            Err(IntakeError::Later(why)) => {
                tracing::warn!(input = name, why, "a message waits");
                let wait = Duration::from_millis(250).saturating_mul(1 << failures.min(10)).min(LONGEST);
                failures = failures.saturating_add(1);
                tokio::time::sleep(wait).await;
            }
        }
    }
}
