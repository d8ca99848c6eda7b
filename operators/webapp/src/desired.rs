//! What a WebApp declares: its Deployment and its Service.

use crate::{OPERATOR, WebApp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;

/// The label that says who looks after an object.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label that names the application; pods are selected by it.
const NAME: &str = "app.kubernetes.io/name";

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
fn selector(webapp: &WebApp) -> BTreeMap<String, String> {
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

/// The Deployment that runs a WebApp.
pub(crate) fn deployment(webapp: &WebApp) -> Deployment {
    let spec = &webapp.spec;
    let container = Container {
        name: "webapp".into(),
        image: Some(spec.image.clone()),
        ports: Some(vec![ContainerPort {
            name: Some("http".into()),
            container_port: spec.port,
            protocol: Some("TCP".into()),
            ..ContainerPort::default()
        }]),
        env: Some(vec![EnvVar {
            name: "PORT".into(),
            value: Some(spec.port.to_string()),
            ..EnvVar::default()
        }]),
        ..Container::default()
    };
    Deployment {
        metadata: meta(webapp),
        spec: Some(DeploymentSpec {
            replicas: Some(spec.replicas),
            selector: LabelSelector { match_labels: Some(selector(webapp)), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(selector(webapp)), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// The Service through which a WebApp is reached.
pub(crate) fn service(webapp: &WebApp) -> Service {
    Service {
        metadata: meta(webapp),
        spec: Some(ServiceSpec {
            selector: Some(selector(webapp)),
            ports: Some(vec![ServicePort {
                name: Some("http".into()),
                port: webapp.spec.port,
                target_port: Some(IntOrString::Int(webapp.spec.port)),
                protocol: Some("TCP".into()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebAppSpec;

    fn webapp(name: &str) -> WebApp {
        WebApp::new(name, WebAppSpec { image: "nginx:1.25".into(), replicas: 3, port: 8080 })
    }

    #[test]
    fn deployment_and_service_carry_the_webapps_name_and_agree_on_labels_and_port() {
        let webapp = webapp("nginx-app");
        let (deployment, service) = (deployment(&webapp), service(&webapp));
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
