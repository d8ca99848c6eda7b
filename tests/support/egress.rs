//! A way from a real API server to Services, which only our node reaches.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the node takes the API server's connections to webhooks, and what tells the API server so.
pub struct Egress {
    /// For `steer node --egress-socket`.
    pub socket: PathBuf,
    configuration: PathBuf,
}

impl Egress {
    pub fn new(folder: &Path) -> Self {
        let (socket, configuration) = (folder.join("egress.sock"), folder.join("egress.yaml"));
        let selection = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- name: cluster\n  \
             connection:\n    proxyProtocol: HTTPConnect\n    transport:\n      uds:\n        udsName: {}\n",
            socket.display()
        );
        fs::write(&configuration, selection).unwrap();
        Self { socket, configuration }
    }

    /// For `kube-apiserver`.
    pub fn flag(&self) -> String {
        format!("--egress-selector-config-file={}", self.configuration.display())
    }
}
