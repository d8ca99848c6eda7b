//! The Helm chart's templates, from the manifests in `config/`.
//!
//! The chart holds the same objects as the packages, text for text, but for the places that values fill. So
//! neither can change without the other: `cargo xtask generate --check` would tell.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::generate::{GeneratedFile, Outcome};

const CHART: &str = "charts/steersman";
const IMAGE: &str = "image: steersman.io/steer:latest";

/// An operator's packages in `config/` and how its values are called.
const OPERATORS: [(&str, &[&str]); 4] = [
    ("webapp", &["rbac", "manager", "webhook"]),
    ("observatory", &["observatory"]),
    ("infra", &["infra"]),
    ("elasti", &["elasti"]),
];

/// What there should be of the chart.
pub(crate) fn generate(root: &Path) -> anyhow::Result<Outcome> {
    let mut files = Vec::new();
    for (operator, packages) in OPERATORS {
        let mut template = format!(
            "{{{{- /* Written by `cargo xtask generate` from config/. */}}}}\n{{{{- if .Values.{operator}.enabled }}}}\n"
        );
        for package in packages {
            for manifest in manifests(&root.join("config").join(package))? {
                let text = fs::read_to_string(&manifest)
                    .with_context(|| format!("reading {}", manifest.display()))?;
                for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
                    let filled = fill(document, operator)
                        .with_context(|| format!("making a template of {}", manifest.display()))?;
                    let _ = write!(template, "---\n{filled}");
                }
            }
        }
        template.push_str("{{- end }}\n");
        let path = Path::new(CHART).join("templates").join(format!("{operator}.yaml"));
        files.push(GeneratedFile { path, contents: template.into_bytes() });
    }
    for entry in fs::read_dir(root.join("config/crd/bases"))? {
        let entry = entry?;
        let path = Path::new(CHART).join("crds").join(entry.file_name());
        files.push(GeneratedFile { path, contents: fs::read(entry.path())? });
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(Outcome::Files(files))
}

/// The files that a kustomization lists. Definitions are in a folder of their own in a chart.
fn manifests(package: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let file = package.join("kustomization.yaml");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let listed = text.lines().skip_while(|line| *line != "resources:").skip(1);
    let listed = listed.map_while(|line| line.strip_prefix("  - ")).filter(|name| *name != "../crd");
    let listed: Vec<PathBuf> = listed.map(|name| package.join(name)).collect();
    if listed.is_empty() {
        bail!("{} lists no resources", file.display());
    }
    Ok(listed)
}

/// A manifest with values in place of what users choose.
fn fill(document: &str, operator: &str) -> anyhow::Result<String> {
    if document.contains("{{") {
        bail!("what Helm takes for a template stands in it");
    }
    if !document.contains("kind: Deployment\n") {
        return Ok(document.to_owned());
    }
    let values = match document.contains("\n  name: elasti-resolver\n") {
        true => ".Values.elasti.resolver".to_owned(),
        false => format!(".Values.{operator}"),
    };
    let mut filled = Filled { text: String::new(), done: 0 };
    let mut lines = document.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let word = line.trim_start();
        match word.split_once(": ").map_or(word, |(key, _)| key) {
            "replicas" if indent.len() == 2 => {
                filled.line(&format!("{indent}replicas: {{{{ {values}.replicas }}}}"));
            }
            "serviceAccountName" => {
                filled.line(&format!(
                    "{line}\n{indent}{{{{- with {values}.podSpec }}}}\n{indent}{{{{- toYaml . | nindent {} }}}}\n{indent}{{{{- end }}}}",
                    indent.len()
                ));
            }
            "image" if word == IMAGE => {
                filled.line(&format!(
                    "{indent}image: {{{{ .Values.image.repository }}}}:{{{{ .Values.image.tag }}}}\n\
                     {indent}{{{{- with .Values.image.pullPolicy }}}}\n\
                     {indent}imagePullPolicy: {{{{ . }}}}\n{indent}{{{{- end }}}}"
                ));
            }
            "args" => {
                let given = word.trim_start_matches("args: [").trim_end_matches(']');
                let given: Vec<String> = given.split(", ").map(|argument| format!("{argument:?}")).collect();
                filled.line(&format!(
                    "{indent}args: {{{{ concat (list {}) {values}.extraArgs | toJson }}}}",
                    given.join(" ")
                ));
            }
            "resources:" => {
                let deeper = |next: &&str| next.starts_with(indent) && next[indent.len()..].starts_with("  ");
                while lines.next_if(deeper).is_some() {}
                let room = indent.len() + 2;
                filled.line(&format!(
                    "{indent}resources:\n{indent}  {{{{- toYaml {values}.resources | nindent {room} }}}}"
                ));
            }
            _ => {
                let _ = writeln!(filled.text, "{line}");
            }
        }
    }
    match filled.done {
        5 => Ok(filled.text),
        other => bail!(
            "of replicas, serviceAccountName, image ({IMAGE}), args and resources {other} were found, each is expected once"
        ),
    }
}

struct Filled {
    text: String,
    /// How many places were filled.
    done: usize,
}

impl Filled {
    fn line(&mut self, text: &str) {
        self.done += 1;
        self.text.push_str(text);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 2\n  \
         template:\n    spec:\n      serviceAccountName: web\n      containers:\n        - name: manager\n          \
         image: steersman.io/steer:latest\n          args: [run, web]\n          resources:\n            limits:\n              \
         memory: 1Gi\n          ports: []\n";

    #[test]
    fn what_users_choose_becomes_values_and_the_rest_stays() {
        let filled = fill(DEPLOYMENT, "webapp").expect("a template");
        for expected in [
            "  replicas: {{ .Values.webapp.replicas }}\n",
            "          image: {{ .Values.image.repository }}:{{ .Values.image.tag }}\n",
            "          args: {{ concat (list \"run\" \"web\") .Values.webapp.extraArgs | toJson }}\n",
            "            {{- toYaml .Values.webapp.resources | nindent 12 }}\n          ports: []\n",
        ] {
            assert!(filled.contains(expected), "{expected:?} is not in\n{filled}");
        }
        assert!(!filled.contains("memory: 1Gi"));
    }

    #[test]
    fn a_deployment_that_looks_otherwise_is_refused() {
        let other = DEPLOYMENT.replace("steer:latest", "steer:v1");
        let error = fill(&other, "webapp").expect_err("no image").to_string();
        assert!(error.contains("4 were found"), "{error}");
        assert!(fill("{{ x }}", "webapp").is_err());
    }
}
