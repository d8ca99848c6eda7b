//! Who may read the operators' metrics, as `steer run` is told.

use std::path::PathBuf;

use clap::Args;
use steersman::{SecureMetrics, webhook::Certificates};

/// How metrics are kept from strangers.
#[derive(Args, Debug, Clone)]
pub(crate) struct MetricsArgs {
    /// Serve metrics over HTTPS, to callers with a bearer token of the cluster who may get /metrics
    #[arg(
        long,
        env = "STEER_METRICS_SECURE",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    metrics_secure: bool,
    /// With --metrics-secure: folder with tls.crt and tls.key, read again when they change; without it the
    /// operator makes a certificate for itself
    #[arg(long, alias = "metrics-cert-path", env = "STEER_METRICS_CERT_DIR", value_name = "DIR")]
    metrics_cert_dir: Option<PathBuf>,
    /// Whether metrics are also served over HTTP/2; HTTP/1.1 is what every scraper speaks
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    enable_http2: bool,
}

impl MetricsArgs {
    /// How to secure metrics, if they are to be.
    pub(crate) fn secure(&self) -> Option<SecureMetrics> {
        if self.enable_http2 {
            tracing::warn!("metrics and health are served over HTTP/1.1; --enable-http2 changes nothing");
        }
        if !self.metrics_secure {
            if self.metrics_cert_dir.is_some() {
                tracing::warn!(
                    "metrics are served over plain HTTP; --metrics-cert-dir needs --metrics-secure"
                );
            }
            return None;
        }
        let certificates = self.metrics_cert_dir.as_ref().map_or(Certificates::Ephemeral, |dir| {
            Certificates::Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key"), ca: None }
        });
        Some(SecureMetrics { certificates, ..SecureMetrics::default() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        metrics: MetricsArgs,
    }

    #[test]
    fn metrics_are_secured_where_that_is_asked_for() {
        let secure = |args: &[&str]| Only::parse_from([&["steer"], args].concat()).metrics.secure();
        assert!(secure(&[]).is_none());
        assert!(secure(&["--metrics-secure=false", "--enable-http2", "--metrics-cert-dir=a"]).is_none());
        let own = secure(&["--metrics-secure"]).map(|secure| secure.certificates);
        assert!(matches!(own, Some(Certificates::Ephemeral)));
        let files = secure(&["--metrics-secure=true", "--metrics-cert-path=/certs"]);
        let Some(Certificates::Files { certificate, key, ca: None }) =
            files.map(|secure| secure.certificates)
        else {
            panic!("files were named");
        };
        assert_eq!((certificate.to_str(), key.to_str()), (Some("/certs/tls.crt"), Some("/certs/tls.key")));
    }
}
