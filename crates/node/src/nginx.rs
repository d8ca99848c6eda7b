//! The configuration with which the host's nginx stands for the image `nginx`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Container;

use crate::runtime::Mount;

const PAGE: &str = "<!DOCTYPE html>\n<html>\n<head><title>Welcome to nginx!</title></head>\n\
<body>\n<h1>Welcome to nginx!</h1>\n</body>\n</html>\n";
const HTML: &str = "/usr/share/nginx/html";

/// Writes the configuration into the container's own folder and returns the command line.
pub(crate) fn command(
    program: &Path,
    container: &Container,
    folder: &Path,
    listen: impl Fn(u16) -> String,
    mounts: &[Mount],
) -> io::Result<Vec<String>> {
    let program = program.display().to_string();
    let at = |target: &str| mounts.iter().find(|mount| mount.target == Path::new(target));
    if at("/etc/nginx/nginx.conf").is_some() || at("/etc/nginx").is_some() {
        let arguments = ["-c", "/etc/nginx/nginx.conf", "-g", "daemon off;"];
        return Ok(std::iter::once(program).chain(arguments.map(String::from)).collect());
    }
    fs::create_dir_all(folder.join("temp"))?;
    let html = match at(HTML) {
        Some(_) => PathBuf::from(HTML),
        None => {
            let html = folder.join("html");
            fs::create_dir_all(&html)?;
            fs::write(html.join("index.html"), PAGE)?;
            html
        }
    };
    let configuration = folder.join("nginx.conf");
    let sites = at("/etc/nginx/conf.d").map(|_| "/etc/nginx/conf.d/*.conf");
    let listen: Vec<String> = ports(container).into_iter().map(listen).collect();
    fs::write(&configuration, text(&listen, folder, &html, sites))?;
    let prefix = folder.display().to_string();
    let configuration = configuration.display().to_string();
    let arguments = ["-p", &prefix, "-e", "stderr", "-c", &configuration];
    Ok(std::iter::once(program).chain(arguments.map(String::from)).collect())
}

fn ports(container: &Container) -> Vec<u16> {
    let declared: Vec<u16> = container
        .ports
        .iter()
        .flatten()
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect();
    if declared.is_empty() { vec![80] } else { declared }
}

fn text(listen: &[String], folder: &Path, html: &Path, sites: Option<&str>) -> String {
    let folder = folder.display();
    let mut text = format!(
        "daemon off;\npid {folder}/nginx.pid;\nerror_log stderr notice;\nworker_processes 1;\n\
         events {{ worker_connections 512; }}\nhttp {{\n    access_log /dev/stdout;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "    {kind}_temp_path {folder}/temp/{kind};");
    }
    if Path::new("/etc/nginx/mime.types").is_file() {
        text.push_str("    include /etc/nginx/mime.types;\n");
    } else {
        text.push_str("    types { text/html html htm; text/css css; text/javascript js; }\n");
    }
    match sites {
        Some(sites) => {
            let _ = writeln!(text, "    include {sites};");
        }
        None => {
            text.push_str("    server {\n");
            for address in listen {
                let _ = writeln!(text, "        listen {address};");
            }
            let html = html.display();
            let _ = writeln!(text, "        root {html};\n        index index.html;\n    }}");
        }
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_listens_on_the_container_ports() {
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "c", "ports": [{"containerPort": 8080}, {"containerPort": 53, "protocol": "UDP"}],
        }))
        .expect("a container");
        assert_eq!(ports(&container), [8080]);
        let listen = ["127.64.0.2:8080".to_string()];
        let shown = text(&listen, Path::new("/pod"), Path::new("/pod/html"), None);
        assert!(shown.contains("listen 127.64.0.2:8080;"), "{shown}");
        assert!(shown.contains("root /pod/html;"), "{shown}");
        let sites = Some("/etc/nginx/conf.d/*.conf");
        let shown = text(&listen, Path::new("/pod"), Path::new("/pod/html"), sites);
        assert!(shown.contains("include /etc/nginx/conf.d/*.conf;"), "{shown}");
        assert!(!shown.contains("listen"), "{shown}");
    }
}
