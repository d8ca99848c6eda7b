//! The root file system of a container: the host's, read-only, with the pod's own folders and
//! volumes in their places.
//!
//! A mount needs something to be mounted on. Where a volume's path does not exist on the host,
//! the folders above it are *opened up*: replaced by new folders that hold a link to every entry
//! of the original (kept at `/.host`), so that the missing entry can be added beside them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::pivot_root;

use super::step;
use crate::runtime::message::{Access, Mount};

/// Where the host's root stays visible.
const HOST: &str = ".host";
/// Folders that every container has of its own, empty.
const FRESH: [&str; 3] = ["/tmp", "/run", "/var/tmp"];

/// Keeps the pod's mounts from reaching the host, and shows `/proc` of the pod's own processes.
pub(super) fn make_private() -> io::Result<()> {
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .map_err(|error| step("private mounts", error))?;
    // Refused where parts of the host's /proc are hidden (inside another container): the host's
    // remains visible then.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let _ = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);
    Ok(())
}

/// Assembles the root on `mount_point` and enters it.
pub(super) fn enter(mount_point: &Path, mounts: &[Mount]) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| step("mount namespace", error))?;
    let tmpfs = |target: &Path| {
        mount(Some("tmpfs"), target, Some("tmpfs"), MsFlags::MS_NOSUID, Some("mode=755"))
            .map_err(|error| step("tmpfs", error))
    };
    tmpfs(mount_point)?;
    let root = mount_point;
    fs::create_dir(root.join(HOST))?;
    bind(Path::new("/"), &root.join(HOST), Access::ReadOnly)?;

    let targets: Vec<PathBuf> = mounts.iter().map(|one| resolve(&one.target)).collect();
    let fresh: Vec<PathBuf> = FRESH.iter().map(|one| resolve(Path::new(one))).collect();
    let plan = Plan {
        root,
        open: folders_to_open(&targets, |path| path.symlink_metadata().is_ok()),
        mount_points: targets.iter().chain(&fresh).cloned().collect(),
    };
    for entry in fs::read_dir("/")? {
        plan.place_top(&entry?.path())?;
    }
    for fresh in fresh.iter().filter(|one| !plan.open.contains(*one)) {
        let target = inside(root, fresh);
        fs::create_dir_all(&target)?;
        tmpfs(&target)?;
        fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
    }
    // Parents before children, whatever order they were written in.
    let mut order: Vec<usize> = (0..mounts.len()).collect();
    order.sort_by_key(|index| targets[*index].components().count());
    for index in order {
        let target = inside(root, &targets[index]);
        let source = &mounts[index].source;
        make_mount_point(source, &target)
            .and_then(|()| bind(source, &target, mounts[index].access))
            .map_err(|error| step(&format!("mount at {}", targets[index].display()), error))?;
    }
    std::env::set_current_dir(root)?;
    pivot_root(".", ".").map_err(|error| step("pivot_root", error))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|error| step("leave old root", error))?;
    std::env::set_current_dir("/")
}

/// How the host's folders appear in the new root.
struct Plan<'a> {
    root: &'a Path,
    /// Folders to open up.
    open: BTreeSet<PathBuf>,
    /// Paths that will be mounted on.
    mount_points: BTreeSet<PathBuf>,
}

impl Plan<'_> {
    /// Puts one entry of the host's `/` into the new root.
    fn place_top(&self, path: &Path) -> io::Result<()> {
        let target = inside(self.root, path);
        let data = path.symlink_metadata()?;
        if data.is_symlink() {
            return symlink(fs::read_link(path)?, target);
        }
        if !data.is_dir() {
            return Ok(());
        }
        fs::create_dir(&target)?;
        if self.open.contains(path) {
            return self.open_up(path);
        }
        match path.to_str() {
            Some("/tmp" | "/run") => Ok(()),
            Some("/proc") => bind(path, &target, Access::ReadWrite),
            _ => bind(path, &target, Access::ReadOnly),
        }
    }

    /// Fills a new folder with links to the entries of the host's folder of that name. What leads
    /// to a mount point must be real, because an absolute link points elsewhere until the root
    /// is entered.
    fn open_up(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let target = inside(self.root, &path);
            if self.open.contains(&path) {
                fs::create_dir(&target)?;
                self.open_up(&path)?;
            } else if path == Path::new("/dev/shm") {
                fs::create_dir(&target)?;
                fs::set_permissions(&target, std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
            } else if self.mount_points.contains(&path) {
                make_mount_point(&path, &target)?;
            } else if self.mount_points.iter().any(|one| one.starts_with(&path)) {
                fs::create_dir(&target)?;
                bind(&path, &target, Access::ReadOnly)?;
            } else {
                symlink(inside(&Path::new("/").join(HOST), &path), target)?;
            }
        }
        Ok(())
    }
}

/// Which folders of the host must be opened up so that every target can be a mount point.
/// `/dev` always is: `/dev/termination-log` and `/dev/shm` are each container's own.
fn folders_to_open(targets: &[PathBuf], exists: impl Fn(&Path) -> bool) -> BTreeSet<PathBuf> {
    let mut open = BTreeSet::from([PathBuf::from("/dev")]);
    for target in targets {
        let fresh = FRESH.iter().any(|fresh| target.starts_with(fresh));
        if fresh || exists(target) {
            continue;
        }
        let nearest = target.ancestors().skip(1).find(|path| exists(path));
        for path in nearest.into_iter().flat_map(Path::ancestors) {
            if path != Path::new("/") {
                open.insert(path.to_path_buf());
            }
        }
    }
    open
}

/// Follows the host's links in every part of the path, as far as they exist.
fn resolve(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    let mut rest: Vec<PathBuf> = parts(path);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            result.pop();
            continue;
        }
        let next = result.join(part);
        match fs::read_link(&next) {
            Ok(to) if links < 40 => {
                links += 1;
                if to.is_absolute() {
                    result = PathBuf::from("/");
                }
                rest.extend(parts(&to));
            }
            _ => result = next,
        }
    }
    result
}

/// The parts of a path, last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .rev()
        .collect()
}

/// `path` below `root`.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn make_mount_point(source: &Path, target: &Path) -> io::Result<()> {
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    if source.is_dir() {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::File::create(target).map(drop)
}

fn bind(source: &Path, target: &Path, access: Access) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, flags, None::<&str>)
        .map_err(|error| step(&format!("bind {}", source.display()), error))?;
    match access {
        Access::ReadWrite => Ok(()),
        Access::ReadOnly => make_read_only(target),
    }
}

/// Makes a mount and all below it read-only.
fn make_read_only(target: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(target.as_os_str().as_encoded_bytes())?;
    let attributes =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path ends with NUL and the structure is as large as the size says; both live
    // until the call returns.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(step(&format!("read-only {}", target.display()), io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_for(targets: &[&str], existing: &[&str]) -> Vec<String> {
        let targets: Vec<PathBuf> = targets.iter().map(PathBuf::from).collect();
        let exists = |path: &Path| path == Path::new("/") || existing.iter().any(|e| path == Path::new(e));
        folders_to_open(&targets, exists)
            .into_iter()
            .map(|path| path.display().to_string())
            .filter(|path| path != "/dev")
            .collect()
    }

    #[test]
    fn only_folders_above_a_missing_mount_point_are_opened() {
        let cases: [(&[&str], &[&str], &[&str]); 5] = [
            (&["/etc/config"], &["/etc"], &["/etc"]),
            (&["/etc/hosts"], &["/etc", "/etc/hosts"], &[]),
            (&["/data"], &[], &[]),
            (&["/run/secrets/token"], &["/run"], &[]),
            (&["/usr/share/nginx/html"], &["/usr", "/usr/share"], &["/usr", "/usr/share"]),
        ];
        for (targets, existing, expected) in cases {
            assert_eq!(open_for(targets, existing), expected, "{targets:?}");
        }
    }

    #[test]
    fn a_path_is_followed_without_leaving_the_root() {
        assert_eq!(resolve(Path::new("/../../a/../b")), Path::new("/b"));
        assert_eq!(resolve(Path::new("/no/such/path")), Path::new("/no/such/path"));
    }
}
