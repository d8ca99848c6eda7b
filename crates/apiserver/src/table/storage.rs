//! Where data is kept: volumes, claims and their drivers.

use serde_json::Value;

use super::column::{BuiltIn, Cell, age, column, list, name, text, wide};

pub(super) static VOLUMES: &[BuiltIn] = &[
    name(),
    column("Capacity", "string", Cell::Text("/spec/capacity/storage")),
    column("Access Modes", "string", Cell::Code(|volume| access_modes(volume, "/spec/accessModes"))),
    column("Reclaim Policy", "string", Cell::Text("/spec/persistentVolumeReclaimPolicy")),
    column("Status", "string", Cell::Code(volume_phase)),
    column(
        "Claim",
        "string",
        Cell::Code(|volume| match text(volume, "/spec/claimRef/name") {
            name if name.is_empty() => "".into(),
            name => format!("{}/{name}", text(volume, "/spec/claimRef/namespace")).into(),
        }),
    ),
    column("StorageClass", "string", Cell::Text("/spec/storageClassName")),
    column("VolumeAttributesClass", "string", Cell::TextOr("/spec/volumeAttributesClassName", "<unset>")),
    column("Reason", "string", Cell::Text("/status/reason")),
    age(),
    wide("VolumeMode", Cell::TextOr("/spec/volumeMode", "<unset>")),
];

pub(super) static VOLUME_CLAIMS: &[BuiltIn] = &[
    name(),
    column("Status", "string", Cell::Code(volume_phase)),
    column("Volume", "string", Cell::Text("/spec/volumeName")),
    column(
        "Capacity",
        "string",
        Cell::Code(|claim| {
            if text(claim, "/spec/volumeName").is_empty() {
                "".into()
            } else {
                text(claim, "/status/capacity/storage").into()
            }
        }),
    ),
    column(
        "Access Modes",
        "string",
        Cell::Code(|claim| {
            if text(claim, "/spec/volumeName").is_empty() {
                "".into()
            } else {
                access_modes(claim, "/status/accessModes")
            }
        }),
    ),
    column("StorageClass", "string", Cell::Text("/spec/storageClassName")),
    column("VolumeAttributesClass", "string", Cell::TextOr("/spec/volumeAttributesClassName", "<unset>")),
    age(),
    wide("VolumeMode", Cell::TextOr("/spec/volumeMode", "<unset>")),
];

pub(super) static STORAGE_CLASSES: &[BuiltIn] = &[
    column(
        "Name",
        "string",
        Cell::Code(|class| {
            let name = text(class, "/metadata/name");
            let default =
                &class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
            if default { format!("{name} (default)").into() } else { name.into() }
        }),
    ),
    column("Provisioner", "string", Cell::Text("/provisioner")),
    column("ReclaimPolicy", "string", Cell::TextOr("/reclaimPolicy", "Delete")),
    column("VolumeBindingMode", "string", Cell::TextOr("/volumeBindingMode", "Immediate")),
    column("AllowVolumeExpansion", "string", Cell::Flag("/allowVolumeExpansion")),
    age(),
];

pub(super) static VOLUME_ATTACHMENTS: &[BuiltIn] = &[
    name(),
    BuiltIn { name: "Attacher", kind: "string", priority: 0, cell: Cell::Text("/spec/attacher") },
    column("PV", "string", Cell::Text("/spec/source/persistentVolumeName")),
    column("Node", "string", Cell::Text("/spec/nodeName")),
    column("Attached", "boolean", Cell::Flag("/status/attached")),
    age(),
];

pub(super) static VOLUME_ATTRIBUTES_CLASSES: &[BuiltIn] =
    &[name(), column("DriverName", "string", Cell::Text("/driverName")), age()];

pub(super) static CSI_NODES: &[BuiltIn] =
    &[name(), column("Drivers", "integer", Cell::Count("/spec/drivers")), age()];

pub(super) static CSI_DRIVERS: &[BuiltIn] = &[
    name(),
    column(
        "AttachRequired",
        "boolean",
        Cell::Code(|driver| driver["spec"]["attachRequired"].as_bool().unwrap_or(true).into()),
    ),
    column("PodInfoOnMount", "boolean", Cell::Flag("/spec/podInfoOnMount")),
    column("StorageCapacity", "boolean", Cell::Flag("/spec/storageCapacity")),
    column("TokenRequests", "string", Cell::Code(token_requests)),
    column("RequiresRepublish", "boolean", Cell::Flag("/spec/requiresRepublish")),
    column(
        "Modes",
        "string",
        Cell::Code(|driver| {
            let modes: Vec<&str> =
                list(driver, "/spec/volumeLifecycleModes").filter_map(Value::as_str).collect();
            if modes.is_empty() { "<none>".into() } else { modes.join(",").into() }
        }),
    ),
    age(),
];

pub(super) static CSI_CAPACITIES: &[BuiltIn] = &[
    name(),
    column("StorageClassName", "string", Cell::Text("/storageClassName")),
    column("Capacity", "string", Cell::Text("/capacity")),
];

fn token_requests(driver: &Value) -> Value {
    if driver["spec"]["tokenRequests"].is_null() {
        return "<unset>".into();
    }
    let audiences: Vec<String> =
        list(driver, "/spec/tokenRequests").map(|request| text(request, "/audience")).collect();
    audiences.join(",").into()
}

fn volume_phase(volume: &Value) -> Value {
    if volume["metadata"]["deletionTimestamp"].is_null() {
        text(volume, "/status/phase").into()
    } else {
        "Terminating".into()
    }
}

fn access_modes(object: &Value, place: &str) -> Value {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "",
    };
    let modes: Vec<&str> = list(object, place).filter_map(Value::as_str).map(short).collect();
    modes.join(",").into()
}
