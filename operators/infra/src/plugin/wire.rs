//! The contract as lines of JSON.
//!
//! ```text
//! host ──▶ {"id":7,"method":"Apply","params":{"task":{…}}}        one line, one request
//! host ◀── {"id":7,"result":{"state":"done","outputs":{…}}}       one line, one answer
//! host ◀── {"id":7,"error":{"kind":"transient","message":"…"}}
//! host ◀── {"log":{"level":"info","message":"…"}}                 at any time
//! ```
//! Requests begin with `id` and `method`, in this order and without spaces, so that a shell can
//! read them. Both sides ignore fields that they do not know.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::{ActionError, CONTRACT, Capability, Description, Task};

/// One question.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// What the answer refers to.
    pub id: u64,
    /// The question.
    #[serde(flatten)]
    pub call: Call,
}

/// What a plugin can be asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params")]
pub enum Call {
    /// Who are you? The first question, always.
    Describe(Hello),
    /// Take the operator's settings. The second question, always.
    Configure {
        /// The operator's settings for the plugin.
        settings: Map<String, Value>,
    },
    /// Are configuration and parameters complete?
    Validate {
        /// What is to be done.
        task: Task,
    },
    /// What would change?
    Plan {
        /// What is to be done.
        task: Task,
    },
    /// Make it so, or begin to.
    Apply {
        /// What is to be done.
        task: Task,
    },
    /// Take it away, or begin to.
    Destroy {
        /// What is to be done.
        task: Task,
    },
    /// Is it still as it should be?
    DetectDrift {
        /// What should be.
        task: Task,
    },
    /// What are the outputs of what is there?
    Outputs {
        /// What should be.
        task: Task,
    },
    /// Stop what is under way.
    Cancel {
        /// What is being done.
        task: Task,
        /// What was kept of it.
        checkpoint: Option<Value>,
    },
    /// How does it stand? Without a checkpoint: has it begun at all?
    Resume {
        /// What is being done.
        task: Task,
        /// What was kept of it.
        checkpoint: Option<Value>,
    },
}

impl Call {
    /// Its name on the wire.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Describe(_) => "Describe",
            Self::Configure { .. } => "Configure",
            Self::Validate { .. } => "Validate",
            Self::Plan { .. } => "Plan",
            Self::Apply { .. } => "Apply",
            Self::Destroy { .. } => "Destroy",
            Self::DetectDrift { .. } => "DetectDrift",
            Self::Outputs { .. } => "Outputs",
            Self::Cancel { .. } => "Cancel",
            Self::Resume { .. } => "Resume",
        }
    }

    /// Whether something may have been done although no answer came.
    pub(super) fn acts(&self) -> bool {
        matches!(self, Self::Apply { .. } | Self::Destroy { .. } | Self::Resume { .. })
    }
}

/// What the operator says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the contract that it speaks.
    pub contract: String,
    /// What it can do beyond the first version of the contract.
    pub capabilities: Vec<String>,
}

impl Hello {
    /// What this operator says.
    pub fn ours() -> Self {
        Self { contract: CONTRACT.to_owned(), capabilities: vec!["log".into(), "resume".into()] }
    }
}

/// What a plugin says about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Introduction {
    /// The version of the contract that it speaks.
    pub contract: String,
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// What it can do. Names that are not known here are of later versions, and ignored.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

impl Introduction {
    /// What it means to this operator, under the name that the operator gave the plugin.
    ///
    /// # Errors
    /// When the plugin speaks another contract.
    pub fn understand(&self, name: &str) -> Result<Description, String> {
        let major = |version: &str| version.split('.').next().and_then(|number| number.parse::<u32>().ok());
        if major(&self.contract) != major(CONTRACT) {
            return Err(format!(
                "it speaks version {:?} of the plugin contract, and this operator {CONTRACT}; use a plugin made for {CONTRACT}",
                self.contract
            ));
        }
        let known = |name: &String| serde_json::from_value::<Capability>(Value::String(name.clone())).ok();
        let capabilities: Vec<Capability> = self.capabilities.iter().filter_map(known).collect();
        Ok(Description::new(name, &self.version, capabilities))
    }
}

/// A refusal on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What it means.
    pub kind: FaultKind,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// How long the other side wants to be left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<f64>,
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// Nothing was done; trying again may help.
    Transient,
    /// Nothing was done, and trying again will not help before something is changed.
    Permanent,
    /// It may have been done.
    Unknown,
    /// The plugin does not know the method.
    Unsupported,
}

impl From<Fault> for ActionError {
    fn from(fault: Fault) -> Self {
        let Fault { kind, message, retry_after_seconds } = fault;
        match kind {
            FaultKind::Transient => Self::Transient {
                message,
                retry_after: retry_after_seconds.and_then(|it| Duration::try_from_secs_f64(it).ok()),
            },
            FaultKind::Permanent => Self::Permanent(message),
            FaultKind::Unknown => Self::Unknown(message),
            FaultKind::Unsupported => Self::Permanent(format!("the plugin does not do this: {message}")),
        }
    }
}

/// Something that a plugin wants to be read by people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// `debug`, `info`, `warn` or `error`.
    #[serde(default)]
    pub level: String,
    /// What.
    pub message: String,
}

/// One line of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// An answer to the request with this id.
    Answer(u64, Result<Value, Fault>),
    /// Something for people.
    Log(Log),
}

impl Said {
    /// Reads a line.
    ///
    /// # Errors
    /// With what is wrong about it.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        let shown = || {
            let text = String::from_utf8_lossy(line);
            let end = text.char_indices().nth(120).map_or(text.len(), |(at, _)| at);
            format!("{:?}", &text[..end])
        };
        let value: Value =
            serde_json::from_slice(line).map_err(|error| format!("is no JSON ({error}): {}", shown()))?;
        let Value::Object(mut fields) = value else {
            return Err(format!("is no JSON object: {}", shown()));
        };
        if let Some(log) = fields.remove("log") {
            let log = serde_json::from_value(log)
                .map_err(|error| format!("is no log line ({error}): {}", shown()))?;
            return Ok(Self::Log(log));
        }
        let Some(id) = fields.get("id").and_then(Value::as_u64) else {
            return Err(format!("has neither id nor log: {}", shown()));
        };
        match (fields.remove("error"), fields.remove("result")) {
            (Some(error), _) if !error.is_null() => {
                let fault = serde_json::from_value(error)
                    .map_err(|error| format!("has an error that is none ({error}): {}", shown()))?;
                Ok(Self::Answer(id, Err(fault)))
            }
            (_, Some(result)) => Ok(Self::Answer(id, Ok(result))),
            _ => Err(format!("has neither result nor error: {}", shown())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_answers_are_explained() {
        for (line, why) in [
            ("hello", "is no JSON"),
            ("[1]", "is no JSON object"),
            ("{}", "has neither id nor log"),
            (r#"{"id": -1, "result": {}}"#, "has neither id nor log"),
            (r#"{"id": 1}"#, "has neither result nor error"),
            (r#"{"id": 1, "error": {"kind": "odd"}}"#, "has an error that is none"),
            (r#"{"log": 5}"#, "is no log line"),
        ] {
            let error = Said::read(line.as_bytes()).expect_err(line);
            assert!(error.starts_with(why), "{line}: {error}");
        }
        let long = format!("\"{}", "x".repeat(5000));
        assert!(Said::read(long.as_bytes()).expect_err("no JSON").len() < 300);
    }

    #[test]
    fn what_is_not_known_is_ignored() {
        let line = br#"{"id": 1, "result": null, "later": true}"#;
        assert_eq!(Said::read(line), Ok(Said::Answer(1, Ok(Value::Null))));
        let introduction: Introduction = serde_json::from_str(
            r#"{"contract": "1.9", "name": "x", "capabilities": ["plan", "fly"], "later": 1}"#,
        )
        .expect("understood");
        let known = introduction.understand("mine").expect("the same major version");
        assert_eq!(known, Description::new("mine", "", [Capability::Plan]));
    }

    #[test]
    fn another_major_version_is_refused_with_what_to_do() {
        for contract in ["2.0", "0.9", "", "one"] {
            let other = Introduction {
                contract: contract.into(),
                name: "x".into(),
                version: String::new(),
                capabilities: Vec::new(),
            };
            let error = other.understand("x").expect_err(contract);
            assert!(error.contains("use a plugin made for 1.0"), "{error}");
        }
    }
}
