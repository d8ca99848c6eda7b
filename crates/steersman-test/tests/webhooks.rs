//! The framework's webhooks, called by our API server over HTTPS on loopback, in real time.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use serde_json::json;
use steersman::{
    Error,
    webhook::{
        Admission, Certificates, Defaulter, FailurePolicy, Findings, Lifetimes, Operation, Reach, Validator,
        WebhookOptions, Webhooks,
    },
};
use steersman_test::{Cluster, Running};

/// Does what the object's data asks for.
struct Obedient;

impl Validator for Obedient {
    type Object = ConfigMap;
    const OPERATIONS: &'static [Operation] = &[Operation::Create, Operation::Update, Operation::Delete];

    async fn create(&self, object: &ConfigMap, admission: &Admission) -> Result<Findings, Error> {
        let mut findings = Findings::new();
        match asked(object).as_str() {
            "refuse" => {
                findings.invalid("data.ask", "refuse", format!("{} asked for it", admission.user));
                findings.required("data.more", "");
            }
            "warn" => findings.warn("mind the gap"),
            "fail" => return Err(Error::msg("the oracle is closed")),
            "panic" => panic!("the oracle fell over"),
            "hang" => std::future::pending().await,
            _ => {}
        }
        Ok(findings)
    }

    async fn update(&self, object: &ConfigMap, old: &ConfigMap, _: &Admission) -> Result<Findings, Error> {
        let mut findings = Findings::new();
        if asked(object) != asked(old) {
            findings.forbidden("data.ask", "may not be changed");
        }
        Ok(findings)
    }

    async fn delete(&self, object: &ConfigMap, _: &Admission) -> Result<Findings, Error> {
        let mut findings = Findings::new();
        if asked(object) == "stay" {
            findings.forbidden("metadata", "it asked to stay");
        }
        Ok(findings)
    }
}

/// Signs every object.
struct Signs;

impl Defaulter for Signs {
    type Object = ConfigMap;

    async fn default(&self, object: &mut ConfigMap, admission: &Admission) -> Result<(), Error> {
        let data = object.data.get_or_insert_default();
        data.entry("signed".to_owned()).or_insert_with(|| admission.user.clone());
        Ok(())
    }
}

fn asked(object: &ConfigMap) -> String {
    object.data.as_ref().and_then(|data| data.get("ask")).cloned().unwrap_or_default()
}

fn config_map(name: &str, ask: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("ask".to_owned(), ask.to_owned())])),
        ..ConfigMap::default()
    }
}

fn options() -> WebhookOptions {
    WebhookOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..WebhookOptions::default() }
}

/// A cluster with these webhooks in place.
async fn cluster(options: WebhookOptions) -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    let running = run(&cluster, "oracle", options).await;
    (cluster, running)
}

async fn run(cluster: &Cluster, name: &str, options: WebhookOptions) -> Running {
    let webhooks = Webhooks::new(options).validator(Obedient).defaulter(Signs);
    let manager = cluster.manager(cluster.options(name)).webhooks(webhooks);
    let running = cluster.run_manager(manager);
    cluster.wait_for_object::<ValidatingWebhookConfiguration>(name).await;
    running
}

fn maps(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client(), "default")
}

async fn refusal(cluster: &Cluster, ask: &str) -> kube::core::Status {
    match maps(cluster).create(&PostParams::default(), &config_map("x", ask)).await {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("{ask} was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn objects_are_completed_judged_and_refused_field_by_field() {
    let (cluster, running) = cluster(options()).await;
    let made = cluster.create(&config_map("fine", "warn")).await;
    assert_eq!(made.data.as_ref().and_then(|data| data.get("signed")).map(String::as_str), Some("admin"));

    let status = refusal(&cluster, "refuse").await;
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        status.message,
        "admission webhook \"validate.configmaps.core\" denied the request: ConfigMap \"x\" is invalid: \
         [data.ask: Invalid value: \"refuse\": admin asked for it, data.more: Required value]"
    );
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    assert_eq!(
        causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>(),
        ["data.ask", "data.more"]
    );

    let patch = kube::api::Patch::Merge(json!({"data": {"ask": "other"}}));
    let changed = maps(&cluster).patch("fine", &Default::default(), &patch).await;
    assert!(
        changed.is_err_and(|error| error.to_string().contains("data.ask: Forbidden: may not be changed"))
    );
    cluster.create(&config_map("stays", "stay")).await;
    let deleted = maps(&cluster).delete("stays", &Default::default()).await;
    assert!(deleted.is_err_and(|error| error.to_string().contains("it asked to stay")));

    let path = "/validate--v1-configmap";
    assert!(
        running
            .metric(&format!("controller_runtime_webhook_requests_total{{webhook=\"{path}\",code=\"200\"}}"))
            >= 5.0
    );
    assert!(
        running.metric(&format!("controller_runtime_webhook_latency_seconds_count{{webhook=\"{path}\"}}"))
            >= 5.0
    );
    running.stop().await;
}

#[tokio::test]
async fn errors_panics_and_hangs_are_for_the_failure_policy_to_decide() {
    let short = Duration::from_secs(1);
    let (cluster, running) = cluster(WebhookOptions { timeout: short, ..options() }).await;
    let failed = "Internal error occurred: failed calling webhook \"validate.configmaps.core\": failed to call webhook: ";
    for (ask, expected) in [
        (
            "fail",
            "an error on the server (\"the oracle is closed\") has prevented the request from succeeding",
        ),
        (
            "panic",
            "an error on the server (\"panic: the oracle fell over [recovered]\") has prevented the request from succeeding",
        ),
        (
            "hang",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
    ] {
        let status = refusal(&cluster, ask).await;
        assert_eq!((status.code, status.message), (500, format!("{failed}{expected}")), "{ask}");
    }
    assert_eq!(running.metric("controller_runtime_webhook_panics_total"), 1.0);
    assert_eq!(running.metric("controller_runtime_webhook_requests_in_flight{"), 0.0);
    // It still works after all that.
    cluster.create(&config_map("fine", "")).await;
    running.stop().await;

    let status = refusal(&cluster, "nothing").await;
    assert!(status.message.contains("connection refused"), "{}", status.message);
    let lenient = WebhookOptions { failure_policy: FailurePolicy::Ignore, timeout: short, ..options() };
    let running = run(&cluster, "oracle", lenient).await;
    cluster
        .wait_until::<ValidatingWebhookConfiguration>("oracle", |configuration| {
            let hooks = configuration.webhooks.iter().flatten();
            hooks.into_iter().all(|hook| hook.failure_policy.as_deref() == Some("Ignore"))
        })
        .await;
    for ask in ["fail", "panic", "hang"] {
        cluster.create(&config_map(ask, ask)).await;
    }
    running.stop().await;
}

/// Two replicas that share a Secret, through several lives of certificates and authorities, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_authorities_rotate_under_load_without_a_failed_call() {
    let cluster = Arc::new(Cluster::start().await);
    let certificates = Certificates::Secret {
        namespace: "default".to_owned(),
        name: "oracle-webhooks".to_owned(),
        lifetimes: Lifetimes {
            authority: Duration::from_secs(9),
            serving: Duration::from_secs(4),
            overlap: Duration::from_secs(2),
            check: Duration::from_millis(100),
        },
    };
    let options = WebhookOptions { certificates, ..options() };
    let first = run(&cluster, "oracle", options.clone()).await;
    // The second replica shares the Secret; the configuration leads to whoever wrote it last.
    let second = run(&cluster, "oracle", options).await;

    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..4)
        .map(|worker| {
            let (cluster, stop, calls) = (Arc::clone(&cluster), Arc::clone(&stop), Arc::clone(&calls));
            tokio::spawn(async move {
                let dry_run = PostParams { dry_run: true, ..PostParams::default() };
                while !stop.load(Ordering::Relaxed) {
                    let object = config_map(&format!("load-{worker}"), "");
                    maps(&cluster).create(&dry_run, &object).await.expect("every call is answered");
                    calls.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        })
        .collect();
    let mut seen: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let secret = cluster.get::<Secret>("oracle-webhooks").await.expect("the Secret");
        let data = secret.data.unwrap_or_default();
        for key in ["ca.crt", "tls.crt"] {
            let value = data.get(key).expect("a certificate").0.clone();
            let values = seen.entry(key).or_default();
            if values.last() != Some(&value) {
                values.push(value);
            }
        }
        if seen["ca.crt"].len() >= 4 && seen["tls.crt"].len() >= 4 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "certificates do not rotate");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for worker in load {
        worker.await.expect("no call failed");
    }
    assert!(calls.load(Ordering::Relaxed) > 100);
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn certificates_in_files_are_read_again_when_they_change() {
    let folder = std::env::temp_dir().join(format!("steersman-webhooks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let write = || {
        let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        std::fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
        std::fs::write(&certificate, pair.cert.pem()).expect("written");
        pair.cert.pem()
    };
    write();
    let files = Certificates::Files {
        certificate: certificate.clone(),
        key: key.clone(),
        ca: Some(certificate.clone()),
    };
    let (cluster, running) =
        cluster(WebhookOptions { certificates: files, reach: Reach::Direct, ..options() }).await;
    cluster.create(&config_map("before", "")).await;
    let second = write();
    cluster
        .wait_until::<ValidatingWebhookConfiguration>("oracle", |configuration| {
            let bundle = |hook: &k8s_openapi::api::admissionregistration::v1::ValidatingWebhook| {
                hook.client_config.ca_bundle.clone().unwrap_or_default().0 == second.as_bytes()
            };
            configuration.webhooks.iter().flatten().all(bundle)
        })
        .await;
    cluster.create(&config_map("after", "")).await;
    running.stop().await;
    let _ = std::fs::remove_dir_all(folder);
}
