//! Which program an image name stands for.
//!
//! There is no container engine, so an image is looked up in a table: what the user mapped, our
//! own image, nginx, and base images whose command runs on the host. Anything else cannot be had,
//! and says how it could be; never is something else run silently.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// An image name and the program it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mapping {
    /// The image without its tag. A `*` at the end stands for anything.
    pub image: String,
    /// Program and arguments that take the place of the image's entry point. Empty: the
    /// container's own `command` is run on the host.
    #[serde(default)]
    pub command: Vec<String>,
    /// Arguments that take the place of the image's default ones.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables that the image would set.
    #[serde(default)]
    pub env: std::collections::BTreeMap<String, String>,
}

impl Mapping {
    /// Reads `image=program [arguments…]`, the form of the command line.
    ///
    /// # Errors
    /// When there is no `=`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (image, command) = text.split_once('=').ok_or_else(|| {
            format!("\"{text}\" is not of the form IMAGE=PROGRAM; example: redis=/usr/bin/redis-server")
        })?;
        Ok(Mapping {
            image: image.trim().to_string(),
            command: command.split_whitespace().map(str::to_string).collect(),
            args: Vec::new(),
            env: std::collections::BTreeMap::new(),
        })
    }
}

/// What runs for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Program {
    /// This command line; the container's `command` replaces the first part and `args` the second.
    Command {
        /// The entry point. Empty when the container must bring a `command`.
        entry: Vec<String>,
        /// Its default arguments.
        args: Vec<String>,
        /// Variables that the image sets.
        env: Vec<(String, String)>,
    },
    /// The host's nginx, with a configuration that is generated for the pod.
    Nginx(PathBuf),
}

/// Why an image cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    #[error(
        "no program stands for image \"{0}\": there is no container engine here. {help}",
        help = how_to_map(.0)
    )]
    Unknown(String),
    #[error(
        "image \"{0}\" is run with the host's programs and needs a `command`. Set one, or: {help}",
        help = how_to_map(.0)
    )]
    NoCommand(String),
    #[error(
        "image \"{0}\" stands for the host's nginx, which is not installed. Install it (Debian: \
         apt install nginx-light), or: {help}",
        help = how_to_map(.0)
    )]
    NoNginx(String),
    #[error("image name \"{0}\" is invalid")]
    Invalid(String),
}

fn how_to_map(image: &str) -> String {
    format!(
        "Map it to a program of this machine: kubectl -n kube-system create configmap image-map \
         --from-literal=images='{image}=/path/to/program' (one such line for each image)"
    )
}

/// Base images whose command runs on the host.
const BASES: [&str; 14] = [
    "alpine",
    "bash",
    "busybox",
    "curlimages/curl",
    "debian",
    "debian-slim",
    "fedora",
    "golang",
    "node",
    "perl",
    "python",
    "ruby",
    "rust",
    "ubuntu",
];

/// Our own image: the running binary.
pub(crate) const OWN: &str = "steersman.io/steer";

/// The table of images.
#[derive(Debug, Clone)]
pub(crate) struct ImageMap {
    /// In the order in which they are looked at.
    mappings: Vec<Mapping>,
    program: PathBuf,
}

impl ImageMap {
    /// The built-in images and these, which come first.
    pub(crate) fn new(mappings: Vec<Mapping>, program: PathBuf) -> Self {
        ImageMap { mappings, program }
    }

    /// The same with mappings of the ConfigMap `kube-system/image-map` behind the options' own.
    pub(crate) fn with(&self, more: &[Mapping]) -> Self {
        let mut map = self.clone();
        map.mappings.extend_from_slice(more);
        map
    }

    /// Finds the program for a container that has a command or not.
    pub(crate) fn find(&self, image: &str, command: &[String]) -> Result<Program, ImageError> {
        let name = base_name(image).ok_or_else(|| ImageError::Invalid(image.to_string()))?;
        if let Some(mapping) = self.mappings.iter().find(|one| matches(&one.image, image, &name)) {
            if mapping.command.is_empty() && command.is_empty() {
                return Err(ImageError::NoCommand(image.to_string()));
            }
            return Ok(Program::Command {
                entry: mapping.command.clone(),
                args: mapping.args.clone(),
                env: mapping.env.clone().into_iter().collect(),
            });
        }
        if name == OWN {
            return Ok(Program::Command {
                entry: vec![self.program.display().to_string()],
                args: vec!["serve-echo".to_string()],
                env: Vec::new(),
            });
        }
        if name == "nginx" && command.is_empty() {
            return find_nginx().map(Program::Nginx).ok_or_else(|| ImageError::NoNginx(image.to_string()));
        }
        if BASES.contains(&name.as_str()) || name == "nginx" {
            return match command.is_empty() {
                true => Err(ImageError::NoCommand(image.to_string())),
                false => Ok(Program::Command { entry: vec![], args: vec![], env: vec![] }),
            };
        }
        if name == "pause" || name.ends_with("/pause") {
            return Ok(Program::Command {
                entry: vec![self.program.display().to_string()],
                args: vec!["pause".to_string()],
                env: Vec::new(),
            });
        }
        Err(ImageError::Unknown(image.to_string()))
    }

    /// The user that an image runs as when the pod does not say.
    pub(crate) fn user(&self, image: &str) -> Option<u32> {
        // With a user other than root nginx does not try to change it, which needs more than one.
        (base_name(image).as_deref() == Some("nginx")).then_some(101)
    }
}

/// The name without registry defaults, tag and digest: `docker.io/library/nginx:1.25` is `nginx`.
fn base_name(image: &str) -> Option<String> {
    let name = image.split('@').next()?;
    let name = match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    };
    let valid = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
    if name.is_empty() || !name.chars().all(valid) {
        return None;
    }
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    Some(name.strip_prefix("library/").unwrap_or(name).to_string())
}

fn matches(pattern: &str, image: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => image.starts_with(start) || name.starts_with(start),
        None => pattern == image || pattern == name,
    }
}

/// Looks for nginx where it may be installed.
fn find_nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("nginx"));
    let fixed = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/nginx/sbin/nginx"];
    on_path
        .chain(fixed.iter().map(PathBuf::from))
        .find(|candidate| candidate.is_file())
        .or_else(nginx_of_parts)
}

/// One that the developers' tools have unpacked into the user's cache.
fn nginx_of_parts() -> Option<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => Path::new(&std::env::var_os("HOME")?).join(".cache"),
    };
    let parts = cache.join("steersman").join("parts").join("nginx");
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir(&parts).ok()?.flatten().map(|entry| entry.path()).collect();
    versions.push(parts);
    versions.sort();
    versions
        .iter()
        .rev()
        .flat_map(|folder| ["nginx", "sbin/nginx", "usr/sbin/nginx", "bin/nginx"].map(|one| folder.join(one)))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ImageMap {
        let mappings = vec![
            Mapping::parse("redis=/usr/bin/redis-server --save ''").expect("mapping"),
            Mapping::parse("ghcr.io/acme/*=/opt/acme").expect("mapping"),
        ];
        ImageMap::new(mappings, PathBuf::from("/bin/steer"))
    }

    #[test]
    fn an_image_name_loses_its_registry_default_tag_and_digest() {
        let cases = [
            ("nginx:1.25", Some("nginx")),
            ("docker.io/library/nginx@sha256:abc", Some("nginx")),
            ("localhost:5000/app:v1", Some("localhost:5000/app")),
            ("registry.k8s.io/pause:3.10", Some("registry.k8s.io/pause")),
            ("", None),
            ("bad name", None),
        ];
        for (image, expected) in cases {
            assert_eq!(base_name(image).as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn our_own_image_serves_an_echo_unless_told_otherwise() {
        let program = map().find("steersman.io/steer:latest", &[]).expect("found");
        let Program::Command { entry, args, .. } = program else { panic!("a command") };
        assert_eq!((entry, args), (vec!["/bin/steer".into()], vec!["serve-echo".to_string()]));
    }

    #[test]
    fn a_mapping_comes_before_everything_else_and_may_end_with_a_star() {
        let program = map().find("ghcr.io/acme/web:2", &[]).expect("found");
        assert!(matches!(program, Program::Command { entry, .. } if entry == ["/opt/acme"]));
        assert!(map().find("docker.io/redis:7", &[]).is_ok());
    }

    #[test]
    fn a_base_image_needs_a_command() {
        let command = ["sleep".to_string()];
        assert!(map().find("busybox:1.36", &command).is_ok());
        let error = map().find("busybox:1.36", &[]).expect_err("no command");
        assert!(error.to_string().contains("needs a `command`"), "{error}");
    }

    #[test]
    fn an_unknown_image_says_how_to_map_it() {
        let error = map().find("postgres:16", &["x".into()]).expect_err("unknown");
        assert!(error.to_string().contains("images='postgres:16=/path/to/program'"), "{error}");
        assert!(error.to_string().contains("configmap image-map"), "{error}");
    }

    #[test]
    fn a_mapping_without_a_program_is_refused() {
        let error = Mapping::parse("redis").expect_err("no program");
        assert!(error.contains("IMAGE=PROGRAM"), "{error}");
    }
}
