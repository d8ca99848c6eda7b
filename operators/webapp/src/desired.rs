//! What a WebApp declares: its Deployment and its Service.

use crate::overlay::overlay;
use crate::types::{Resources, SecurityProfile, ServiceType};
use crate::{OPERATOR, WebApp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, PodSecurityContext, PodSpec, PodTemplateSpec,
    ResourceRequirements, SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;

/// The label that says who looks after an object.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label that names the application; pods are selected by it.
pub(crate) const NAME: &str = "app.kubernetes.io/name";
/// The container that runs the application.
pub(crate) const CONTAINER: &str = "webapp";

/// Why no Deployment and Service can be made for a WebApp, in words for its user.
pub(crate) fn problem(webapp: &WebApp) -> Option<String> {
    let name = webapp.name_any();
    let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let ends = name.starts_with(|first: char| first.is_ascii_lowercase()) && !name.ends_with('-');
    if name.len() <= 63 && letters && ends {
        return None;
    }
    Some(format!(
        "the Service of a WebApp has its name, and \"{name}\" cannot be the name of a Service: at most 63 \
         lower-case letters, digits and dashes, beginning with a letter; create the WebApp under another name"
    ))
}

/// The labels by which the pods of a WebApp are found.
pub(crate) fn selector(webapp: &WebApp) -> BTreeMap<String, String> {
    [(NAME, webapp.name_any()), (MANAGED_BY, OPERATOR.to_owned())]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

/// The same as text, as the scale subresource shows it.
pub(crate) fn selector_text(webapp: &WebApp) -> String {
    let pairs: Vec<String> = selector(webapp).iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

fn meta(webapp: &WebApp) -> ObjectMeta {
    ObjectMeta {
        name: Some(webapp.name_any()),
        namespace: webapp.namespace(),
        labels: Some(selector(webapp)),
        ..ObjectMeta::default()
    }
}

/// The Deployment that runs a WebApp; `replicas` is none where an autoscaler decides.
///
/// # Errors
/// When the pod template of the WebApp is none; the text says where.
pub(crate) fn deployment(webapp: &WebApp, replicas: Option<i32>) -> Result<Deployment, String> {
    Ok(Deployment {
        metadata: meta(webapp),
        spec: Some(DeploymentSpec {
            replicas,
            selector: LabelSelector { match_labels: Some(selector(webapp)), ..LabelSelector::default() },
            template: template(webapp)?,
            ..DeploymentSpec::default()
        }),
        status: None,
    })
}

/// The pods of a WebApp: what its fields say, with its own template laid over.
pub(crate) fn template(webapp: &WebApp) -> Result<PodTemplateSpec, String> {
    let spec = &webapp.spec;
    let restricted = spec.security_profile == Some(SecurityProfile::Restricted);
    let made = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(selector(webapp)), ..ObjectMeta::default() }),
        spec: Some(PodSpec {
            containers: vec![container(webapp)],
            image_pull_secrets: given(spec.image_pull_secrets.clone()),
            security_context: restricted.then(|| PodSecurityContext {
                run_as_non_root: Some(true),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".into(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        }),
    };
    let Some(own) = &spec.pod_template else { return Ok(made) };
    let unusable = |error: serde_json::Error| format!("spec.podTemplate is no pod template: {error}");
    let mut whole = serde_json::to_value(&made).map_err(unusable)?;
    overlay(&mut whole, own);
    let mut whole: PodTemplateSpec = serde_json::from_value(whole).map_err(unusable)?;
    // Pods that their own Deployment does not find would be made without end.
    whole.metadata.get_or_insert_default().labels.get_or_insert_default().extend(selector(webapp));
    Ok(whole)
}

fn container(webapp: &WebApp) -> Container {
    let spec = &webapp.spec;
    let port = EnvVar { name: "PORT".into(), value: Some(spec.port.to_string()), ..EnvVar::default() };
    let others = spec.env.iter().filter(|variable| variable.name != "PORT").cloned();
    Container {
        name: CONTAINER.into(),
        image: Some(spec.image.clone()),
        image_pull_policy: spec.image_pull_policy.map(|policy| format!("{policy:?}")),
        command: given(spec.command.clone()),
        args: given(spec.args.clone()),
        ports: Some(vec![ContainerPort {
            name: Some("http".into()),
            container_port: spec.port,
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        env: Some(std::iter::once(port).chain(others).collect()),
        env_from: given(spec.env_from.clone()),
        resources: spec.resources.as_ref().map(resources),
        readiness_probe: spec.readiness_probe.clone(),
        liveness_probe: spec.liveness_probe.clone(),
        startup_probe: spec.startup_probe.clone(),
        security_context: (spec.security_profile == Some(SecurityProfile::Restricted)).then(|| {
            SecurityContext {
                allow_privilege_escalation: Some(false),
                read_only_root_filesystem: Some(true),
                capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".into()]) }),
                ..SecurityContext::default()
            }
        }),
        ..Container::default()
    }
}

fn given<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

fn resources(resources: &Resources) -> ResourceRequirements {
    let quantities = |map: &BTreeMap<String, IntOrString>| {
        let text = |value: &IntOrString| match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        let map: BTreeMap<String, Quantity> =
            map.iter().map(|(name, value)| (name.clone(), Quantity(text(value)))).collect();
        (!map.is_empty()).then_some(map)
    };
    ResourceRequirements {
        requests: quantities(&resources.requests),
        limits: quantities(&resources.limits),
        ..ResourceRequirements::default()
    }
}

/// The Service through which a WebApp is reached.
pub(crate) fn service(webapp: &WebApp) -> Service {
    let settings = webapp.spec.service.clone().unwrap_or_default();
    let mut metadata = meta(webapp);
    if !settings.annotations.is_empty() {
        metadata.annotations = Some(settings.annotations);
    }
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: settings.kind.map(|kind| format!("{kind:?}")),
            cluster_ip: settings.headless.then(|| "None".into()),
            selector: Some(selector(webapp)),
            ports: Some(vec![ServicePort {
                name: Some("http".into()),
                port: settings.port.unwrap_or(webapp.spec.port),
                target_port: Some(IntOrString::Int(webapp.spec.port)),
                protocol: Some("TCP".into()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// The annotation in which a node says where on its machine a Service can be reached.
const PUBLISHED: &str = "steersman.io/address";

/// Where a WebApp is reached: at its load balancer, on this machine, or within the cluster.
pub(crate) fn url(webapp: &WebApp, service: &Service) -> String {
    let settings = webapp.spec.service.clone().unwrap_or_default();
    let port = settings.port.unwrap_or(webapp.spec.port);
    let at = |host: &str| if port == 80 { format!("http://{host}") } else { format!("http://{host}:{port}") };
    if settings.kind == Some(ServiceType::LoadBalancer) {
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()?.first());
        let host = ingress.and_then(|ingress| ingress.hostname.as_deref().or(ingress.ip.as_deref()));
        if let Some(host) = host {
            return at(host);
        }
    }
    match service.annotations().get(PUBLISHED) {
        Some(address) => format!("http://{address}"),
        None => at(&format!("{}.{}.svc", webapp.name_any(), webapp.namespace().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebAppSpec;
    use serde_json::{Value, json};

    fn webapp(name: &str) -> WebApp {
        let spec = json!({"image": "nginx:1.25", "replicas": 3, "port": 8080});
        with(name, spec)
    }

    fn with(name: &str, spec: Value) -> WebApp {
        let spec: WebAppSpec = serde_json::from_value(spec).expect("a spec");
        WebApp::new(name, spec)
    }

    #[test]
    fn deployment_and_service_carry_the_webapps_name_and_agree_on_labels_and_port() {
        let webapp = webapp("nginx-app");
        let (deployment, service) = (deployment(&webapp, Some(3)).expect("a Deployment"), service(&webapp));
        assert_eq!(deployment.name_any(), "nginx-app");
        assert_eq!(service.name_any(), "nginx-app");
        let spec = deployment.spec.expect("a spec");
        let template = spec.template.metadata.and_then(|meta| meta.labels);
        assert_eq!(spec.replicas, Some(3));
        assert_eq!(spec.selector.match_labels, template);
        let service = service.spec.expect("a spec");
        assert_eq!(service.selector, template);
        let container = &spec.template.spec.expect("a pod").containers[0];
        assert_eq!(container.ports.as_ref().map(|ports| ports[0].container_port), Some(8080));
        assert_eq!(container.env.as_ref().and_then(|env| env[0].value.clone()).as_deref(), Some("8080"));
        assert_eq!(
            service.ports.map(|ports| (ports[0].port, ports[0].target_port.clone())),
            Some((8080, Some(IntOrString::Int(8080))))
        );
    }

    #[test]
    fn every_optional_field_finds_its_place() {
        let webapp = with(
            "web",
            json!({
                "image": "i:1", "replicas": 1, "port": 8080, "command": ["serve"], "args": ["-v"],
                "env": [{"name": "A", "value": "1"}, {"name": "PORT", "value": "no"}],
                "envFrom": [{"configMapRef": {"name": "settings"}}],
                "resources": {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"cpu": "2"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
                "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "registry"}],
                "securityProfile": "Restricted",
                "service": {"type": "NodePort", "port": 80, "annotations": {"a": "b"}},
                "podTemplate": {
                    "metadata": {"annotations": {"x": "y"}, "labels": {NAME: "other", "team": "a"}},
                    "spec": {"nodeSelector": {"disk": "ssd"}, "containers": [
                        {"name": "webapp", "workingDir": "/srv"}, {"name": "sidecar", "image": "s:1"}]},
                },
            }),
        );
        let template = template(&webapp).expect("a template");
        let whole = serde_json::to_value(&template).expect("JSON");
        let pod = &whole["spec"];
        let main = &pod["containers"][0];
        assert_eq!(
            (&main["name"], &main["workingDir"], &main["image"]),
            (&json!("webapp"), &json!("/srv"), &json!("i:1"))
        );
        assert_eq!(main["env"], json!([{"name": "PORT", "value": "8080"}, {"name": "A", "value": "1"}]));
        assert_eq!(
            main["resources"],
            json!({"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "2"}})
        );
        assert_eq!((&main["imagePullPolicy"], &main["command"]), (&json!("Always"), &json!(["serve"])));
        assert_eq!(main["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(
            (&pod["containers"][1]["name"], &pod["nodeSelector"]["disk"]),
            (&json!("sidecar"), &json!("ssd"))
        );
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(whole["metadata"]["labels"][NAME], "web", "the selector must find its pods");
        assert_eq!(whole["metadata"]["labels"]["team"], "a");
        let service = service(&webapp);
        assert_eq!(service.annotations()["a"], "b");
        let spec = service.spec.expect("a spec");
        assert_eq!(
            (spec.type_.as_deref(), spec.ports.map(|ports| ports[0].port)),
            (Some("NodePort"), Some(80))
        );
    }

    #[test]
    fn a_pod_template_that_is_none_is_explained() {
        let webapp = with("web", json!({"image": "i:1", "podTemplate": {"spec": {"containers": 7}}}));
        let problem = deployment(&webapp, None).expect_err("no template");
        assert!(problem.starts_with("spec.podTemplate is no pod template: "), "{problem}");
    }

    #[test]
    fn the_address_is_the_best_there_is() {
        let mut webapp = webapp("web");
        webapp.metadata.namespace = Some("shop".into());
        let mut service = service(&webapp);
        assert_eq!(url(&webapp, &service), "http://web.shop.svc:8080");
        service.annotations_mut().insert(PUBLISHED.into(), "127.0.0.1:20001".into());
        assert_eq!(url(&webapp, &service), "http://127.0.0.1:20001");
        webapp.spec.service =
            serde_json::from_value(json!({"type": "LoadBalancer", "port": 80})).expect("settings");
        service.status = serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}))
            .expect("a status");
        assert_eq!(url(&webapp, &service), "http://192.0.2.7");
    }

    #[test]
    fn names_that_no_service_can_have_are_explained() {
        for name in ["nginx-app", "a", "x9"] {
            assert_eq!(problem(&webapp(name)), None, "{name}");
        }
        for name in ["1st", "a.b", "-a", "a-", &"x".repeat(64)] {
            let problem = problem(&webapp(name)).unwrap_or_default();
            assert!(problem.contains("create the WebApp under another name"), "{name}: {problem}");
        }
    }
}
