//! What a real API server was asked, by whom, from where and with which answer.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// The audit log of an API server.
pub struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// One request that was answered, or has begun to be.
#[derive(Debug)]
pub struct Asked {
    pub user: String,
    pub verb: String,
    pub path: String,
    pub code: u64,
    /// The address that it came from.
    pub from: String,
    /// When it came in, as RFC 3339 in UTC with six digits: texts compare as times do.
    pub at: String,
}

impl Audit {
    /// A log in this folder.
    pub fn new(folder: &Path) -> Self {
        let audit = Self { policy: folder.join("audit-policy.yaml"), log: folder.join("audit.log") };
        // A watch has begun to be answered, and may go on for as long as the test.
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                      rules:\n- level: Metadata\n";
        fs::write(&audit.policy, policy).unwrap();
        audit
    }

    /// What kube-apiserver must be told.
    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
        ]
    }

    /// Everything that was answered so far.
    pub fn read(&self) -> Vec<Asked> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .map(|event| {
                let text =
                    |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                Asked {
                    user: text("/user/username"),
                    verb: text("/verb"),
                    path: text("/requestURI"),
                    code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
                    from: text("/sourceIPs/0"),
                    at: text("/requestReceivedTimestamp"),
                }
            })
            .collect()
    }

    /// Requests of service accounts outside of Kubernetes' own namespaces that were denied.
    pub fn denied(&self) -> Vec<Asked> {
        let of_an_operator = |asked: &Asked| {
            asked
                .user
                .strip_prefix("system:serviceaccount:")
                .is_some_and(|name| !name.starts_with("kube-system:"))
        };
        self.read().into_iter().filter(|asked| asked.code == 403 && of_an_operator(asked)).collect()
    }
}
