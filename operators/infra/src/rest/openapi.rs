//! `/openapi.json`: the API described for programs.

use serde_json::{Map, Value, json};

/// The description of the API.
pub(super) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Infrastructure controller", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": paths(),
        "components": {"schemas": schemas()},
    })
}

fn paths() -> Value {
    let id =
        |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "integer"}});
    let part =
        |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let query =
        |name: &str| json!({"name": name, "in": "query", "required": false, "schema": {"type": "string"}});
    let cursor = || {
        json!({"name": "cursor", "in": "query", "required": false, "schema": {"type": "integer"},
        "description": "the id that the page before ended with"})
    };
    let limit = |usual: u32| {
        json!({"name": "limit", "in": "query", "required": false,
        "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": usual}})
    };
    let health =
        || operation("Whether the service and its store work", &[], None, &[("200", "Health")], &["503"]);
    let docs = || {
        let mut docs = operation("This description for people", &[], None, &[("200", "")], &[]);
        docs["responses"]["200"]["content"] = json!({"text/html": {"schema": {"type": "string"}}});
        docs
    };
    let (kind, one) = (id("resource_type_id"), id("resource_id"));
    json!({
        "/": {"get": operation("What this is", &[], None, &[("200", "Health")], &[])},
        "/health": {"get": health()},
        "/docs": {"get": docs()},
        "/api/v1/plugins/actions": {"get": operation("The action plugins", &[], None, &[("200", "Plugins")], &[])},
        "/api/v1/plugins/inputs": {"get": operation("The input plugins", &[], None, &[("200", "Plugins")], &[])},
        "/api/v1/resource-types": {
            "get": operation("List resource types", &[query("name"), query("status"), limit(100)], None, &[("200", "ResourceTypes")], &["422"]),
            "post": operation("Create a resource type", &[], Some("ResourceTypeCreate"), &[("201", "ResourceType")], &["409", "413", "422"]),
        },
        "/api/v1/resource-types/{resource_type_id}": {
            "get": operation("Get a resource type", std::slice::from_ref(&kind), None, &[("200", "ResourceType")], &["404", "422"]),
            "put": operation("Change a resource type", std::slice::from_ref(&kind), Some("ResourceTypeUpdate"), &[("200", "ResourceType")], &["404", "409", "413", "422"]),
            "delete": operation("Delete a resource type that nothing uses", std::slice::from_ref(&kind), None, &[("204", "")], &["404", "409", "422"]),
        },
        "/api/v1/resource-types/{name}/{version}": {
            "get": operation("Get a resource type by name and version", &[part("name"), part("version")], None, &[("200", "ResourceType")], &["404"]),
        },
        "/api/v1/resources": {
            "get": operation("List resources, newest first", &[query("status"), query("action_plugin"), query("resource_type_name"), query("fields"), cursor(), limit(100)], None, &[("200", "Resources")], &["422"]),
            "post": operation("Create a resource", &[], Some("ResourceCreate"), &[("201", "Resource")], &["400", "409", "413", "422"]),
        },
        "/api/v1/resources/{resource_id}": {
            "get": operation("Get a resource", &[one.clone(), query("fields")], None, &[("200", "Resource")], &["404", "422"]),
            "put": operation("Change a resource", std::slice::from_ref(&one), Some("ResourceUpdate"), &[("200", "Resource")], &["400", "404", "409", "413", "422"]),
            "delete": operation("Delete a resource and destroy what it stands for", &[one.clone(), query("orphan"), query("force")], None, &[("202", "Accepted")], &["404", "422"]),
        },
        "/api/v1/resources/by-name/{resource_type_name}/{resource_type_version}/{name}": {
            "get": operation("Get a resource by its type and name", &[part("resource_type_name"), part("resource_type_version"), part("name")], None, &[("200", "Resource")], &["404"]),
        },
        "/api/v1/resources/{resource_id}/reconcile": {
            "post": operation("Reconcile a resource now", std::slice::from_ref(&one), None, &[("202", "Accepted")], &["404", "422"]),
        },
        "/api/v1/resources/{resource_id}/history": {
            "get": operation("The attempts for a resource, newest first", &[one.clone(), limit(10), cursor(), query("fields")], None, &[("200", "History")], &["404", "422"]),
        },
        "/api/v1/resources/{resource_id}/outputs": {
            "get": operation("What the last successful attempt brought forth", std::slice::from_ref(&one), None, &[("200", "Outputs")], &["404", "422"]),
        },
    })
}

fn operation(
    summary: &str,
    parameters: &[Value],
    body: Option<&str>,
    success: &[(&str, &str)],
    errors: &[&str],
) -> Value {
    let content = |schema: &str| json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}});
    let mut responses = Map::new();
    for (code, schema) in success {
        let mut response = json!({"description": "Success"});
        if !schema.is_empty() {
            response["content"] = content(schema);
        }
        responses.insert((*code).to_owned(), response);
    }
    // Who may ask is decided before everything else, and the store may be gone at any time.
    for code in errors.iter().copied().chain(["401", "403", "503"]) {
        responses.insert(code.to_owned(), json!({"description": meaning(code), "content": content("Error")}));
    }
    let mut operation = json!({"summary": summary, "parameters": parameters, "responses": responses});
    if let Some(body) = body {
        operation["requestBody"] = json!({"required": true, "content": content(body)});
    }
    operation
}

fn meaning(code: &str) -> &'static str {
    match code {
        "400" => "Does not fit: the type, the plugin or the schema say no; detail says why",
        "401" => "A token is needed",
        "403" => "Not from this web page or under this name",
        "404" => "There is none",
        "409" => "Exists already, is in use, or was changed by somebody else",
        "413" => "Too large",
        "422" => "Cannot be read; detail lists every problem with its place",
        _ => "The store or the history cannot be reached; try again later",
    }
}

fn schemas() -> Value {
    let list = |of: &str| json!({"type": "array", "items": {"$ref": format!("#/components/schemas/{of}")}});
    let free = || json!({"type": "object", "additionalProperties": true});
    let text = || json!({"type": "string"});
    let maybe = || json!({"type": ["string", "null"]});
    let time = || json!({"type": ["string", "null"], "format": "date-time"});
    let number = || json!({"type": "integer"});
    let maybe_free = || json!({"type": ["object", "null"], "additionalProperties": true});
    json!({
        "Health": {"type": "object", "required": ["status", "service"], "properties": {"status": text(), "service": text()}},
        "Plugins": {"type": "array", "items": {"type": "object", "required": ["name", "version"], "properties": {"name": text(), "version": text()}}},
        "Error": {"type": "object", "required": ["detail"], "properties": {"detail": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object",
            "required": ["type", "loc", "msg"], "properties": {"type": text(), "loc": {"type": "array"}, "msg": text()}}}]}}},
        "Accepted": {"type": "object", "required": ["message", "resource_id"], "properties": {"message": text(), "resource_id": number()}},
        "ResourceType": {"type": "object",
            "required": ["id", "name", "version", "schema", "description", "status", "metadata", "created_at", "updated_at"],
            "properties": {"id": {"type": ["integer", "null"]}, "name": text(), "version": text(), "schema": free(), "description": maybe(),
                "status": {"enum": ["active", "deprecated"]}, "metadata": free(), "created_at": time(), "updated_at": time()}},
        "ResourceTypes": list("ResourceType"),
        "ResourceTypeCreate": {"type": "object", "required": ["name", "version", "schema"],
            "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 255}, "version": {"type": "string", "minLength": 1, "maxLength": 50},
                "schema": free(), "description": maybe(), "metadata": maybe_free()}},
        "ResourceTypeUpdate": {"type": "object", "properties": {"schema": maybe_free(), "description": maybe(),
            "status": {"enum": ["active", "deprecated", null]}, "metadata": maybe_free()}},
        "Resource": {"type": "object",
            "required": ["id", "name", "resource_type_name", "resource_type_version", "action_plugin", "status", "status_message",
                "generation", "observed_generation", "created_at", "updated_at", "last_reconcile_time"],
            "properties": {"id": {"type": ["integer", "null"]}, "name": text(), "resource_type_name": text(), "resource_type_version": text(),
                "action_plugin": text(), "status": {"enum": ["pending", "reconciling", "ready", "failed", "deleting"]}, "status_message": maybe(),
                "generation": number(), "observed_generation": number(), "created_at": time(), "updated_at": time(), "last_reconcile_time": time()}},
        "Resources": list("Resource"),
        "ResourceCreate": {"type": "object", "required": ["name", "resource_type_name", "resource_type_version", "spec"],
            "properties": {"name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
                "resource_type_name": {"type": "string", "minLength": 1}, "resource_type_version": {"type": "string", "minLength": 1},
                "action_plugin": {"type": "string", "default": "terraform"}, "spec": free(), "plugin_config": maybe_free(), "metadata": maybe_free()}},
        "ResourceUpdate": {"type": "object", "properties": {"spec": maybe_free(), "plugin_config": maybe_free(),
            "expected_generation": {"type": ["integer", "null"], "description": "409 unless the generation is still this"}}},
        "HistoryEntry": {"type": "object",
            "required": ["id", "resource_id", "generation", "success", "phase", "error_message", "resources_created", "resources_updated", "resources_deleted", "reconcile_time"],
            "properties": {"id": number(), "resource_id": number(), "generation": number(), "success": {"type": "boolean"}, "phase": text(),
                "error_message": maybe(), "resources_created": number(), "resources_updated": number(), "resources_deleted": number(), "reconcile_time": time()}},
        "History": list("HistoryEntry"),
        "Outputs": {"type": "object", "required": ["outputs"], "properties": {"outputs": free()}},
    })
}
