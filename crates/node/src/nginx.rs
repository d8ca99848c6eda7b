//! The configuration with which the host's nginx stands for the image `nginx`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
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
    listen: Option<IpAddr>,
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
    fs::write(&configuration, text(&ports(container), folder, listen, &html, sites))?;
    let prefix = folder.display().to_string();
    let configuration = configuration.display().to_string();
    let arguments = ["-p", &prefix, "-e", "stderr", "-c", &configuration];
    Ok(std::iter::once(program).chain(arguments.map(String::from)).collect())
}

fn ports(container: &Container) -> Vec<i32> {
    let declared: Vec<i32> = container
        .ports
        .iter()
        .flatten()
        .filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"))
        .map(|port| port.container_port)
        .collect();
    if declared.is_empty() { vec![80] } else { declared }
}

fn text(ports: &[i32], folder: &Path, listen: Option<IpAddr>, html: &Path, sites: Option<&str>) -> String {
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
            for port in ports {
                let _ = match listen {
                    Some(address) => writeln!(text, "        listen {address}:{port};"),
                    None => writeln!(text, "        listen {port};"),
                };
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
        let shown = text(&[8080], Path::new("/pod"), None, Path::new("/pod/html"), None);
        assert!(shown.contains("listen 8080;"), "{shown}");
        assert!(shown.contains("root /pod/html;"), "{shown}");
        let here = Some(IpAddr::from([127, 64, 0, 2]));
        let shown = text(&[80], Path::new("/pod"), here, Path::new("/pod/html"), None);
        assert!(shown.contains("listen 127.64.0.2:80;"), "{shown}");
    }
}
