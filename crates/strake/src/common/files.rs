//! Files that the program keeps or is given: read with a bound, replaced as a whole.
//!
//! Invariants: of what is no regular file nothing is read; a file is replaced by rename, never
//! written in place. Deliberately absent: what the files hold.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// How the name of a file begins that is to replace another and does not yet.
pub(crate) const UNNAMED: &str = ".strake-";

/// Nothing that is read whole is as large.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What a regular file holds. Of anything else nothing is read: a FIFO would be waited for.
pub(crate) fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        let why = "it is no regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if about.len() > FILE_BYTES_MAX {
        let why = format!("it has {} bytes, more than {FILE_BYTES_MAX}", about.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Puts a file in place of another, whole or not at all.
pub(crate) fn replace_bytes(target: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(target).is_ok_and(|there| !there.is_file()) {
        let why = "it is no regular file, which could be replaced";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let folder = target.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(UNNAMED)
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(target)?;
    File::open(folder)?.sync_all()
}
