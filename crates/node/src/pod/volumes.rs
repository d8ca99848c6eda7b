//! A pod's volumes as folders on the host.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeMount, VolumeProjection,
};
use tokio::time::Instant;

use super::env::{self, expand, optional};
use super::fields::{self, Surroundings};
use super::lookup::{Lookup, LookupError};
use super::tokens::Renewal;
use crate::runtime::{Access, Mount, PodFolder};

/// Why a volume cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    #[error("volume \"{volume}\": {source}")]
    Lookup {
        volume: String,
        #[source]
        source: LookupError,
    },
    #[error("volume \"{volume}\": references non-existent key: {key}")]
    Key { volume: String, key: String },
    #[error("volume \"{volume}\": {message}")]
    Invalid { volume: String, message: String },
    #[error("volume \"{volume}\": {source}")]
    Io {
        volume: String,
        #[source]
        source: io::Error,
    },
}

/// Volumes that are ready, and what could not be honoured.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Where each volume lies.
    folders: BTreeMap<String, PathBuf>,
    /// Sentences for a Warning event.
    pub(crate) warnings: Vec<String>,
    /// Tokens that end before the pod does.
    tokens: Vec<Renewal>,
}

/// Files by their path in the volume, with their permission bits.
type Files = BTreeMap<String, (Vec<u8>, u32)>;

/// Writes every volume of a pod.
pub(crate) async fn prepare(
    pod: &Pod,
    folder: &PodFolder,
    around: &Surroundings,
    lookup: &impl Lookup,
) -> Result<Prepared, VolumeError> {
    let mut prepared = Prepared::default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    for volume in volumes {
        let place = place(pod, folder, around, lookup, volume, &mut prepared).await?;
        prepared.folders.insert(volume.name.clone(), place);
    }
    Ok(prepared)
}

async fn place(
    pod: &Pod,
    folder: &PodFolder,
    around: &Surroundings,
    lookup: &impl Lookup,
    volume: &Volume,
    prepared: &mut Prepared,
) -> Result<PathBuf, VolumeError> {
    let target = folder.volume(&volume.name);
    let io = |source| VolumeError::Io { volume: volume.name.clone(), source };
    if let Some(host) = &volume.host_path {
        let path = PathBuf::from(&host.path);
        match host.type_.as_deref() {
            Some("DirectoryOrCreate") => fs::create_dir_all(&path).map_err(io)?,
            Some("FileOrCreate") if !path.exists() => {
                fs::File::create(&path).map_err(io)?;
            }
            _ => {}
        }
        if !path.exists() {
            let message = format!("hostPath {} does not exist", host.path);
            return Err(VolumeError::Invalid { volume: volume.name.clone(), message });
        }
        return Ok(path);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let kept = folder.claim(namespace, &claim.claim_name).map_err(io)?;
        fs::create_dir_all(&kept).map_err(io)?;
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o777)).map_err(io)?;
        return Ok(kept);
    }
    fs::create_dir_all(&target).map_err(io)?;
    if volume.empty_dir.is_some() {
        fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).map_err(io)?;
        return Ok(target);
    }
    let files = match projections(volume) {
        Some((mode, projections)) => {
            let source = Source { pod, around, lookup, volume: &volume.name, folder: &target, mode };
            let mut files = Files::new();
            for projection in projections {
                files.extend(source.files(&projection, prepared).await?);
            }
            files
        }
        None => {
            prepared.warnings.push(format!(
                "volume \"{}\" is of a kind that this node does not have; it is an empty folder",
                volume.name
            ));
            fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).map_err(io)?;
            return Ok(target);
        }
    };
    write(&target, &files).map_err(io)?;
    Ok(target)
}

/// Every kind of volume that is made of files is a projection of its sources.
fn projections(volume: &Volume) -> Option<(i32, Vec<VolumeProjection>)> {
    use k8s_openapi::api::core::v1::{ConfigMapProjection, DownwardAPIProjection, SecretProjection};
    const MODE: i32 = 0o644;
    if let Some(map) = volume.config_map.clone() {
        let config_map =
            Some(ConfigMapProjection { name: map.name, items: map.items, optional: map.optional });
        let projection = VolumeProjection { config_map, ..VolumeProjection::default() };
        return Some((map.default_mode.unwrap_or(MODE), vec![projection]));
    }
    if let Some(secret) = volume.secret.clone() {
        let mode = secret.default_mode.unwrap_or(MODE);
        let secret = Some(SecretProjection {
            name: secret.secret_name.unwrap_or_default(),
            items: secret.items,
            optional: secret.optional,
        });
        return Some((mode, vec![VolumeProjection { secret, ..VolumeProjection::default() }]));
    }
    if let Some(downward) = volume.downward_api.clone() {
        let mode = downward.default_mode.unwrap_or(MODE);
        let downward_api = Some(DownwardAPIProjection { items: downward.items });
        return Some((mode, vec![VolumeProjection { downward_api, ..VolumeProjection::default() }]));
    }
    let projected = volume.projected.clone()?;
    Some((projected.default_mode.unwrap_or(MODE), projected.sources.unwrap_or_default()))
}

struct Source<'a, L> {
    pod: &'a Pod,
    around: &'a Surroundings,
    lookup: &'a L,
    volume: &'a str,
    folder: &'a Path,
    mode: i32,
}

impl<L: Lookup> Source<'_, L> {
    async fn files(
        &self,
        projection: &VolumeProjection,
        prepared: &mut Prepared,
    ) -> Result<Files, VolumeError> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or("default");
        let failed = |source| VolumeError::Lookup { volume: self.volume.to_string(), source };
        if let Some(source) = &projection.config_map {
            let found = self.lookup.config_map(namespace, &source.name).await;
            let found = optional(found, source.optional).map_err(failed)?;
            let entries = found.map(env::files).unwrap_or_default();
            return self.select(entries, source.items.as_deref(), source.optional);
        }
        if let Some(source) = &projection.secret {
            let found = self.lookup.secret(namespace, &source.name).await;
            let found = optional(found, source.optional).map_err(failed)?;
            let data = found.and_then(|secret| secret.data).unwrap_or_default();
            let entries = data.into_iter().map(|(key, value)| (key, value.0)).collect();
            return self.select(entries, source.items.as_deref(), source.optional);
        }
        if let Some(source) = &projection.downward_api {
            return source.items.iter().flatten().map(|item| self.downward(item)).collect();
        }
        if let Some(source) = &projection.service_account_token {
            let token = self.lookup.token(self.pod, source.audience.as_deref(), source.expiration_seconds);
            return match token.await {
                Ok(token) => {
                    let mode = self.bits(None);
                    prepared.tokens.push(Renewal::of(&token, self.folder.to_owned(), mode, source));
                    Ok(self.one(&source.path, token.text.into_bytes(), None))
                }
                Err(error @ LookupError::NotFound { .. }) => {
                    prepared.warnings.push(format!("volume \"{}\" has no token: {error}", self.volume));
                    Ok(Files::new())
                }
                Err(error) => Err(failed(error)),
            };
        }
        prepared.warnings.push(format!(
            "volume \"{}\" has a source that this node does not have; it is left out",
            self.volume
        ));
        Ok(Files::new())
    }

    fn one(&self, path: &str, content: Vec<u8>, mode: Option<i32>) -> Files {
        Files::from([(path.to_string(), (content, self.bits(mode)))])
    }

    fn bits(&self, mode: Option<i32>) -> u32 {
        u32::try_from(mode.unwrap_or(self.mode)).unwrap_or(0o644)
    }

    fn select(
        &self,
        mut entries: BTreeMap<String, Vec<u8>>,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files, VolumeError> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            let files = entries.into_iter().map(|(key, value)| self.one(&key, value, None));
            return Ok(files.flatten().collect());
        };
        let mut files = Files::new();
        for item in items {
            match entries.remove(&item.key) {
                Some(value) => files.extend(self.one(&item.path, value, item.mode)),
                None if optional == Some(true) => {}
                None => {
                    let volume = self.volume.to_string();
                    return Err(VolumeError::Key { volume, key: item.key.clone() });
                }
            }
        }
        Ok(files)
    }

    fn downward(&self, item: &DownwardAPIVolumeFile) -> Result<(String, (Vec<u8>, u32)), VolumeError> {
        let invalid = |message| VolumeError::Invalid { volume: self.volume.to_string(), message };
        let value = if let Some(reference) = &item.field_ref {
            fields::field(self.pod, self.around, &reference.field_path).map_err(invalid)?
        } else if let Some(reference) = &item.resource_field_ref {
            let spec = self.pod.spec.as_ref();
            let container = spec
                .into_iter()
                .flat_map(|spec| &spec.containers)
                .find(|container| Some(&container.name) == reference.container_name.as_ref());
            let container =
                container.ok_or_else(|| invalid("resourceFieldRef names no container of the pod".into()))?;
            fields::resource(container, self.around, reference).map_err(invalid)?
        } else {
            String::new()
        };
        Ok((item.path.clone(), (value.into_bytes(), self.bits(item.mode))))
    }
}

fn write(target: &Path, files: &Files) -> io::Result<()> {
    for (path, (content, mode)) in files {
        let path = target.join(inner(path)?);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // Whoever reads the old file goes on reading the old file.
        let fresh = path.with_extension("steersman-new");
        fs::write(&fresh, content)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode & 0o777))?;
        fs::rename(&fresh, &path)?;
    }
    Ok(())
}

/// A path that stays below the folder it is joined to.
fn inner(path: &str) -> io::Result<&Path> {
    let inner = Path::new(path);
    let plain = inner.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    match plain && !path.is_empty() {
        true => Ok(inner),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("path \"{path}\" must be relative and without '..'"),
        )),
    }
}

impl Prepared {
    /// When the next token has to be renewed.
    pub(crate) fn renewal(&self) -> Option<Instant> {
        self.tokens.iter().map(Renewal::at).min()
    }

    /// Renews the tokens whose time has come.
    pub(crate) async fn renew(&mut self, pod: &Pod, lookup: &impl Lookup) {
        let now = Instant::now();
        for token in self.tokens.iter_mut().filter(|token| token.at() <= now) {
            let Some(text) = token.renew(pod, lookup).await else { continue };
            let files = Files::from([(token.path().to_owned(), (text.into_bytes(), token.mode))]);
            if let Err(error) = write(&token.folder, &files) {
                tracing::warn!(%error, pod = pod.metadata.name, "a new token could not be written");
            }
        }
    }

    /// The mounts of one container.
    pub(crate) fn mounts<'a>(
        &self,
        container: &Container,
        known: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Vec<Mount>, VolumeError> {
        let mounts = container.volume_mounts.iter().flatten();
        mounts.map(|mount| self.mount(mount, &known)).collect()
    }

    fn mount<'a>(
        &self,
        mount: &VolumeMount,
        known: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Mount, VolumeError> {
        let invalid = |message| VolumeError::Invalid { volume: mount.name.clone(), message };
        let folder =
            self.folders.get(&mount.name).ok_or_else(|| invalid("no such volume in the pod".to_string()))?;
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (Some(path), _) if !path.is_empty() => Some(path.clone()),
            (_, Some(expression)) if !expression.is_empty() => Some(expand(expression, known)),
            _ => None,
        };
        let source = match &sub_path {
            Some(path) => folder.join(inner(path).map_err(|error| invalid(error.to_string()))?),
            None => folder.clone(),
        };
        if !source.exists() {
            fs::create_dir_all(&source).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(Mount {
            source,
            target: Path::new("/").join(&mount.mount_path),
            access: match mount.read_only {
                Some(true) => Access::ReadOnly,
                _ => Access::ReadWrite,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::super::lookup::tests::Table;
    use super::*;

    fn pod(volumes: &serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "b"}},
            "spec": {"containers": [], "volumes": volumes},
        }))
        .expect("a pod")
    }

    async fn prepare_in(
        data: &Path,
        volumes: serde_json::Value,
    ) -> (PodFolder, Result<Prepared, VolumeError>) {
        let (folder, prepared, _) = prepare_with(data, volumes).await;
        (folder, prepared)
    }

    async fn prepare_with(
        data: &Path,
        volumes: serde_json::Value,
    ) -> (PodFolder, Result<Prepared, VolumeError>, Table) {
        let folder = PodFolder::new(data, "uid").expect("plain");
        folder.create().expect("created");
        let table = Table::new(&[("ns/cm", &[("k", "v"), ("l", "w")])], &[("ns/s", &[("p", "q")])]);
        let around = Surroundings {
            address: IpAddr::from([10, 244, 0, 2]),
            host: IpAddr::from([127, 0, 0, 1]),
            cores: 2,
            memory: 1,
        };
        let prepared = prepare(&pod(&volumes), &folder, &around, &table).await;
        (folder, prepared, table)
    }

    #[tokio::test]
    async fn volumes_of_every_kind_become_files() {
        let data = tempfile::tempdir().expect("folder");
        let (folder, prepared) = prepare_in(
            data.path(),
            serde_json::json!([
                {"name": "empty", "emptyDir": {}},
                {"name": "cm", "configMap": {"name": "cm", "items": [{"key": "k", "path": "x/y", "mode": 0o600}]}},
                {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
                {"name": "all", "projected": {"sources": [
                    {"configMap": {"name": "cm"}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                    {"serviceAccountToken": {"path": "token"}},
                ]}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "far", "nfs": {"server": "s", "path": "/"}},
            ]),
        )
        .await;
        let prepared = prepared.expect("prepared");
        let read = |path: &str| fs::read_to_string(folder.path().join("volumes").join(path));
        assert_eq!(read("cm/x/y").expect("file"), "v");
        assert_eq!(read("s/p").expect("file"), "q");
        assert_eq!(read("all/l").expect("file"), "w");
        assert_eq!(read("all/labels").expect("file"), "a=\"b\"");
        assert_eq!(read("all/token").expect("file"), "token 1 for the API server");
        let mode = fs::metadata(folder.volume("s").join("p")).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        assert_eq!(prepared.warnings.len(), 1);
        assert!(prepared.warnings[0].contains("\"far\""), "{:?}", prepared.warnings);
        assert!(data.path().join("claims/ns/c").is_dir(), "what a claim holds outlives its pods");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_renewed_after_four_fifths_of_their_life() {
        let data = tempfile::tempdir().expect("folder");
        let volumes = serde_json::json!([{"name": "v", "projected": {"defaultMode": 0o400, "sources": [
            {"serviceAccountToken": {"path": "a/short", "audience": "vault", "expirationSeconds": 600}},
            {"serviceAccountToken": {"path": "long", "expirationSeconds": 315_360_000}},
        ]}}]);
        let (folder, prepared, table) = prepare_with(data.path(), volumes.clone()).await;
        let mut prepared = prepared.expect("prepared");
        let (pod, begin) = (pod(&volumes), Instant::now());
        let read = |path: &str| fs::read_to_string(folder.volume("v").join(path)).expect("file");
        assert_eq!(prepared.renewal(), Some(begin + Duration::from_secs(480)));
        tokio::time::advance(Duration::from_secs(480)).await;
        // The third request is refused: the old token stays, and is soon tried again.
        prepared.renew(&pod, &table).await;
        assert_eq!(read("a/short"), "token 1 for vault");
        assert_eq!(prepared.renewal(), Some(begin + Duration::from_secs(490)));
        tokio::time::advance(Duration::from_secs(10)).await;
        prepared.renew(&pod, &table).await;
        assert_eq!(read("a/short"), "token 4 for vault");
        assert_eq!(prepared.renewal(), Some(begin + Duration::from_secs(490 + 480)));
        assert_eq!(read("long"), "token 2 for the API server");
        let mode = fs::metadata(folder.volume("v").join("a/short")).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        tokio::time::advance(Duration::from_secs(24 * 3600)).await;
        prepared.renew(&pod, &table).await;
        tokio::time::advance(Duration::from_secs(10)).await;
        prepared.renew(&pod, &table).await;
        assert_eq!(read("long"), "token 7 for the API server", "once a day at least");
    }

    #[tokio::test]
    async fn a_missing_source_or_key_is_named() {
        let data = tempfile::tempdir().expect("folder");
        let missing = serde_json::json!([{"name": "v", "configMap": {"name": "none"}}]);
        let error = prepare_in(data.path(), missing).await.1.expect_err("missing");
        assert_eq!(error.to_string(), "volume \"v\": configmap \"none\" not found");
        let key = serde_json::json!([
            {"name": "v", "secret": {"secretName": "s", "items": [{"key": "z", "path": "z"}]}}
        ]);
        let error = prepare_in(data.path(), key).await.1.expect_err("missing");
        assert_eq!(error.to_string(), "volume \"v\": references non-existent key: z");
    }

    #[tokio::test]
    async fn a_path_cannot_leave_its_volume() {
        let data = tempfile::tempdir().expect("folder");
        let evil = serde_json::json!([
            {"name": "v", "configMap": {"name": "cm", "items": [{"key": "k", "path": "../../x"}]}}
        ]);
        let error = prepare_in(data.path(), evil).await.1.expect_err("refused");
        assert!(error.to_string().contains("without '..'"), "{error}");
    }
}
