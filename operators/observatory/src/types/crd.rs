//! The definition that is installed into a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use super::Observatory;

/// The CustomResourceDefinition of Observatories.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = Observatory::crd();
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns());
    }
    crd
}

fn columns() -> Vec<CustomResourceColumnDefinition> {
    [
        ("Phase", "string", ".status.phase", 0, "How far the workflow has come"),
        ("Tasks", "string", ".status.progress", 0, "Tasks that have succeeded, of all"),
        ("Age", "date", ".metadata.creationTimestamp", 0, ""),
        ("Reason", "string", ".status.reason", 1, "Why the workflow is in its phase"),
        ("Message", "string", ".status.message", 1, "The same in a sentence"),
        ("Next", "date", ".status.nextScheduleTime", 1, "When the next run is due"),
    ]
    .into_iter()
    .map(|(name, r#type, path, priority, description)| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: r#type.to_owned(),
        json_path: path.to_owned(),
        priority: (priority > 0).then_some(priority),
        description: (!description.is_empty()).then(|| description.to_owned()),
        format: None,
    })
    .collect()
}

/// An object with any fields.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Amounts by name: numbers, or numbers with a unit.
pub(super) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schema() -> Value {
        let crd = serde_json::to_value(crd()).expect("JSON");
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    #[test]
    fn names_are_those_of_the_first_version() {
        let crd = serde_json::to_value(crd()).expect("JSON");
        assert_eq!(crd["metadata"]["name"], "observatories.workflow.seventh-horizon.io");
        assert_eq!(crd["spec"]["scope"], "Namespaced");
        assert_eq!(crd["spec"]["names"]["shortNames"], json!(["obs"]));
        assert_eq!(crd["spec"]["versions"][0]["subresources"], json!({"status": {}}));
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().expect("columns");
        let names: Vec<&str> = columns.iter().take(3).filter_map(|column| column["name"].as_str()).collect();
        assert_eq!(names, ["Phase", "Tasks", "Age"]);
    }

    #[test]
    fn required_fields_and_defaults_are_those_of_the_first_version() {
        let schema = schema();
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["required"], json!(["tasks"]));
        assert_eq!(spec["properties"]["tasks"]["minItems"], 1);
        assert_eq!(spec["properties"]["suspend"]["default"], false);
        let concurrent = &spec["properties"]["maxConcurrent"];
        assert_eq!((&concurrent["default"], &concurrent["format"]), (&json!(10), &json!("int32")));
        assert_eq!(concurrent["minimum"].as_f64(), Some(1.0));
        let task = &spec["properties"]["tasks"]["items"];
        assert_eq!(task["required"], json!(["image", "name"]));
        assert_eq!(task["properties"]["env"]["items"]["required"], json!(["name"]));
        let status = &schema["properties"]["status"];
        assert_eq!(status["properties"]["tasks"]["items"]["required"], json!(["name", "phase"]));
        assert_eq!(status["properties"]["phase"]["type"], "string");
        assert!(status["properties"]["phase"]["enum"].is_null(), "phases were never an enumeration");
        assert_eq!(status["properties"]["lastScheduleTime"]["format"], "date-time");
    }

    #[test]
    fn the_manifest_in_the_tree_is_up_to_date() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crd/bases");
        steersman_test::assert_manifest(folder, &crd());
    }

    #[test]
    fn the_sample_in_the_tree_has_no_problems() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/samples/workflow_v1alpha1_observatory.yaml");
        let text = std::fs::read_to_string(path).expect("the sample");
        assert_eq!(crate::cli::lint(&text), Vec::new());
    }
}
