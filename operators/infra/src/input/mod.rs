//! How events come in, beside the REST API.
//!
//! ```text
//!   webhook ┐                          ┌ taken: acknowledged
//!   polling ├─▶ mapping ─▶ intake ─────┼ poison: parked with the reason, acknowledged
//!   rabbitmq│   (an event) (written    └ not now: kept, tried again
//!   sqs     ┘               once)
//! ```
//! Every input acknowledges a message after its effect is written, and every event takes effect
//! once, however often it is delivered ([`intake`]).

mod amqp;
pub mod event;
pub mod intake;
mod polling;
mod rabbitmq;
mod sqs;
mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;
use steersman::{CancellationToken, Clock, Manager};

pub(crate) use polling::PLACES;
pub use polling::Polling;
pub use rabbitmq::RabbitMq;
pub use sqs::Sqs;
pub use webhook::{Reply, Scheme, Webhook};

use crate::action::Registry;
use crate::action::web::{PrivateAddresses, Web, WebOptions};
use intake::Intake;

/// One way in.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "plugin", rename_all = "lowercase")]
pub enum Input {
    /// Others call us.
    Webhook(Webhook),
    /// We ask others.
    Polling(Polling),
    /// A queue of RabbitMQ.
    RabbitMq(RabbitMq),
    /// A queue of Amazon SQS.
    Sqs(Sqs),
}

impl Input {
    /// The kinds of inputs.
    pub const PLUGINS: [&str; 4] = ["polling", "rabbitmq", "sqs", "webhook"];

    fn plugin(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Polling(_) => "polling",
            Self::RabbitMq(_) => "rabbitmq",
            Self::Sqs(_) => "sqs",
        }
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Webhook(webhook) => webhook.check(),
            Self::Polling(polling) => polling.check(),
            Self::RabbitMq(rabbitmq) => rabbitmq.check(),
            Self::Sqs(sqs) => sqs.check(),
        }
    }
}

/// All ways in, by the names that the operator gave them.
#[derive(Clone, Debug, Default)]
pub struct Inputs(Arc<BTreeMap<String, Input>>);

impl Inputs {
    /// Reads them from JSON: `{"orders": {"plugin": "rabbitmq", …}, …}`. Those of a plugin that
    /// `enabled` refuses are left out.
    ///
    /// # Errors
    /// With the input and what is wrong about it; secrets are not repeated.
    pub fn parse(text: &str, enabled: impl Fn(&str) -> bool) -> Result<Self, String> {
        let all: BTreeMap<String, Value> = serde_json::from_str(text)
            .map_err(|error| format!("it is no JSON object of objects: {error}"))?;
        let mut inputs = BTreeMap::new();
        for (name, settings) in all {
            let input = Input::deserialize(settings).map_err(|error| format!("{name}: {error}"))?;
            input.check().map_err(|why| format!("{name}: {why}"))?;
            if enabled(input.plugin()) {
                inputs.insert(name, input);
            }
        }
        Ok(Self(Arc::new(inputs)))
    }

    /// The webhook of this name.
    pub fn webhook(&self, name: &str) -> Option<&Webhook> {
        match self.0.get(name) {
            Some(Input::Webhook(webhook)) => Some(webhook),
            _ => None,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets a manager run those that go and fetch, while it leads.
    #[must_use]
    pub fn add_to(
        &self,
        mut manager: Manager,
        namespace: &str,
        plugins: &Registry,
        clock: &Clock,
    ) -> Manager {
        for (name, input) in self.0.iter() {
            if matches!(input, Input::Webhook(_)) {
                continue;
            }
            let (client, namespace, plugins) = (manager.client(), namespace.to_owned(), plugins.clone());
            let (name, input, clock) = (name.clone(), input.clone(), Clock::clone(clock));
            manager = manager.runnable(format!("input-{name}"), move |stop| async move {
                run(&name, &input, client, &namespace, plugins, clock, stop).await
            });
        }
        manager
    }
}

async fn run(
    name: &str,
    input: &Input,
    client: Client,
    namespace: &str,
    plugins: Registry,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), steersman::Error> {
    let intake = Intake::new(&client, namespace, plugins, clock);
    // The operator names these addresses, not a resource.
    let web = || {
        let options = WebOptions { private_addresses: PrivateAddresses::Allow, ..WebOptions::default() };
        Web::new(options).map_err(steersman::Error::from)
    };
    match input {
        Input::Webhook(_) => {}
        Input::Polling(polling) => {
            let state = Api::namespaced(client, namespace);
            polling.run(name, &web()?, &state, &intake, &stop).await;
        }
        Input::RabbitMq(rabbitmq) => rabbitmq.run(name, &intake, &stop).await,
        Input::Sqs(sqs) => sqs.run(name, &web()?, &intake, &stop).await,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_read_and_what_is_wrong_is_named() {
        let all = Inputs::parse(
            r#"{"a": {"plugin": "rabbitmq", "url": "amqp://localhost", "queue": "q"},
                "b": {"plugin": "webhook", "secret": "0123456789abcdef"},
                "c": {"plugin": "polling", "url": "http://x/"},
                "d": {"plugin": "sqs", "queue_url": "http://x/q", "access_key_id": "k", "secret_access_key": "s"}}"#,
            |plugin| plugin != "sqs",
        )
        .expect("inputs");
        assert_eq!(all.0.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(all.webhook("b").is_some() && all.webhook("a").is_none());
        for (text, why) in [
            ("[]", "it is no JSON object of objects"),
            (r#"{"a": {"plugin": "carrier-pigeon"}}"#, "a: unknown variant `carrier-pigeon`"),
            (r#"{"a": {"plugin": "rabbitmq", "url": "amqp://h"}}"#, "a: missing field `queue`"),
            (
                r#"{"a": {"plugin": "rabbitmq", "url": "http://me:hunter22@h", "queue": "q"}}"#,
                "a: the address \"h\"",
            ),
            (r#"{"a": {"plugin": "webhook", "secret": "short"}}"#, "a: secret must have"),
            (
                r#"{"a": {"plugin": "polling", "url": "http://x", "interval_seconds": 0}}"#,
                "a: interval_seconds",
            ),
            (
                r#"{"a": {"plugin": "polling", "url": "http://x", "mapping": {"nmae": "/n"}}}"#,
                "a: mapping has",
            ),
        ] {
            let error = Inputs::parse(text, |_| true).expect_err(text);
            assert!(error.starts_with(why), "{text}: {error}");
        }
    }
}
