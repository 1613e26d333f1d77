//! What is read of the machine for a channel: passwords, keys, certificates.
//!
//! Invariants: a secret is in a regular file that only root or the daemon's user owns and only the
//! owner can read, or is a credential of systemd; it is in no answer, event, log or error. Reading
//! has a bound: where the disk does not answer, what was read before is used. What was read is read
//! again after an attempt that failed.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::daemon::rounds;

/// How long the disk may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a secret, and of a file of certificates.
const SECRET_BYTES_MAX: u64 = 4 << 10;
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    Credential(String),
}

impl Place {
    /// By what a channel names; `None` where it names neither.
    pub(super) fn of(file: Option<&PathBuf>, credential: Option<&String>) -> Option<Place> {
        let file = file.cloned().map(Place::File);
        file.or_else(|| credential.cloned().map(Place::Credential))
    }

    /// The secret, without the end of its line. May block.
    pub(super) fn read(&self) -> Result<String, String> {
        let (path, own) = match self {
            Place::File(path) => (path.clone(), true),
            Place::Credential(name) => {
                let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or_else(|| {
                    format!(
                        "credential {name}: systemd gave this daemon none; the unit needs \
                         LoadCredential={name}:FILE"
                    )
                })?;
                // Systemd alone can write there, and its access lists show as bits of the group.
                (Path::new(&folder).join(name), false)
            }
        };
        let bytes = read(&path, SECRET_BYTES_MAX, own)?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| format!("{} is no text", path.display()))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(format!("{} is empty", path.display())),
            secret => Ok(secret.to_owned()),
        }
    }
}

/// A regular file of a bounded size; with `secret` one that others cannot read.
fn read(path: &Path, most: u64, secret: bool) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = File::options().read(true).custom_flags(nonblock).open(path);
    let file = opened.map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let shown = path.display();
    if !about.is_file() {
        return Err(format!("{shown} is no regular file"));
    }
    let us = rustix::process::geteuid().as_raw();
    if secret && ![0, us].contains(&about.uid()) {
        let owner = about.uid();
        return Err(format!(
            "{shown} belongs to user {owner}: chown {us} {shown}"
        ));
    }
    if secret && about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o7777;
        return Err(format!(
            "{shown} can be read by others (mode {mode:04o}): chmod 600 {shown}"
        ));
    }
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match bytes.len() as u64 > most {
        true => Err(format!("{shown} has more than {most} bytes")),
        false => Ok(bytes),
    }
}

/// The certificates of a file. May block.
pub(super) fn pem(path: &Path) -> Result<Vec<u8>, String> {
    read(path, CERTIFICATES_BYTES_MAX, false)
}

/// How to speak TLS: with the certificates of this file, or with the machine's. May block.
pub(super) fn tls(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in CertificateDer::pem_slice_iter(&pem(path)?) {
                let added = certificate.map(|certificate| roots.add(certificate));
                if !matches!(added, Ok(Ok(()))) {
                    return Err(format!("{}: a certificate in it is none", path.display()));
                }
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(match ca_file {
            Some(path) => format!("{} holds no certificate", path.display()),
            None => "this machine has no certificates of authorities: install ca-certificates, or \
                     give ca_file"
                .to_owned(),
        });
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}

/// What was read, for as long as it is good.
pub(super) struct Kept<T> {
    value: Option<T>,
    reading: Option<rounds::Came<Result<T, String>>>,
    doubtful: bool,
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept {
            value: None,
            reading: None,
            doubtful: true,
        }
    }
}

impl<T: Clone + Send + 'static> Kept<T> {
    /// It is to be read again.
    pub(super) fn doubt(&mut self) {
        self.doubtful = true;
    }

    pub(super) async fn get(
        &mut self,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        if let Some(value) = self.value.as_ref().filter(|_| !self.doubtful) {
            return Ok(value.clone());
        }
        // One that hangs is waited for again, so that no more of them hang.
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => none.insert(rounds::blocking(read).map_err(|error| error.to_string())?),
        };
        let Ok(done) = tokio::time::timeout(PATIENCE, reading).await else {
            return self.value.clone().ok_or_else(|| {
                let seconds = PATIENCE.as_secs();
                format!("its secret or certificates could not be read within {seconds} s")
            });
        };
        self.reading = None;
        let value = done.map_err(|_| "its thread is gone".to_owned())???;
        self.doubtful = false;
        self.value = Some(value.clone());
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_that_others_can_read_is_not_used_and_never_shown() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("password");
        fs::write(&path, "s3cret\n").expect("written");
        let place = Place::File(path.clone());
        for mode in [0o640, 0o604, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            let error = place.read().expect_err("not used");
            assert!(
                error.contains("chmod 600") && !error.contains("s3cret"),
                "{error}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        assert_eq!(place.read().as_deref(), Ok("s3cret"));
        fs::write(&path, "\n").expect("written");
        assert!(place.read().is_err());
        assert!(Place::File(dir.path().to_owned()).read().is_err());
    }
}
