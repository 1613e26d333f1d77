//! ISA-L beside our kernels, where this machine has it (Debian: the package `libisal2`).
//!
//! It is loaded while the benchmark runs: no build depends on it. What it puts out must be what our
//! kernels put out; its matrix functions get our coefficients, and its P+Q has the same.
//!
//! Invariant: no function gets fewer bytes in a buffer, or fewer buffers, than it is told.

#![expect(unsafe_code, reason = "functions of another language")]

use libloading::Library;
use std::ffi::{c_int, c_uchar, c_void};
use std::ptr::null_mut;
use strake_parity::{Code, MAX_COLUMNS};

type Blocks = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
type InitTables = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
type Encode =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);
type EncodeUpdate =
    unsafe extern "C" fn(c_int, c_int, c_int, c_int, *mut c_uchar, *mut c_uchar, *mut *mut c_uchar);

/// The library, and its functions, looked up before anything is measured.
pub(crate) struct Isal {
    xor_gen: Blocks,
    pq_gen: Blocks,
    xor_check: Blocks,
    pq_check: Blocks,
    init: InitTables,
    encode: Encode,
    update: EncodeUpdate,
    /// The functions are gone when this is.
    _library: Library,
}

/// Coefficients in the form that its matrix functions want.
pub(crate) struct Tables {
    bytes: Vec<u8>,
    k: usize,
    rows: usize,
}

/// What it has for a code with its own functions, beside those for any matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Xor,
    PQ,
}

impl Own {
    pub(crate) fn of(code: &Code) -> Option<Own> {
        match code.m() {
            1 => Some(Own::Xor),
            2 => Some(Own::PQ),
            _ => None,
        }
    }

    /// Lengths must be multiples of this.
    pub(crate) const GRAIN: usize = 32;
}

fn length(bytes: usize) -> c_int {
    c_int::try_from(bytes).expect("strips are short")
}

impl Isal {
    /// The library, if this machine has it.
    pub(crate) fn load() -> Option<Isal> {
        // SAFETY: the library's initialisation does nothing but choose its functions.
        let library = unsafe { Library::new("libisal.so.2") };
        let library = library.ok()?;
        Some(Isal {
            xor_gen: symbol(&library, "xor_gen"),
            pq_gen: symbol(&library, "pq_gen"),
            xor_check: symbol(&library, "xor_check"),
            pq_check: symbol(&library, "pq_check"),
            init: symbol(&library, "ec_init_tables"),
            encode: symbol(&library, "ec_encode_data"),
            update: symbol(&library, "ec_encode_data_update"),
            _library: library,
        })
    }

    /// A matrix row by row, `k` coefficients each.
    pub(crate) fn tables(&self, k: usize, mut matrix: Vec<u8>) -> Tables {
        let rows = matrix.len() / k;
        let mut bytes = vec![0; 32 * k * rows];
        // SAFETY: k × rows coefficients go in, and 32 bytes for each come out.
        unsafe {
            (self.init)(
                length(k),
                length(rows),
                matrix.as_mut_ptr(),
                bytes.as_mut_ptr(),
            )
        };
        Tables { bytes, k, rows }
    }

    /// Parity of the code by the library's own functions for it; all of one length, a multiple of
    /// [`Own::GRAIN`], each slice at a multiple of that.
    pub(crate) fn generate_own(&self, own: Own, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let function = match own {
            Own::Xor => self.xor_gen,
            Own::PQ => self.pq_gen,
        };
        let parity_pointers = parity.iter_mut().map(|slice| slice.as_mut_ptr());
        blocks(
            function,
            data[0].len(),
            pointers(data).chain(parity_pointers),
        );
    }

    /// As [`Isal::generate_own`], checking what is stored.
    pub(crate) fn check_own(&self, own: Own, data: &[&[u8]], parity: &[&[u8]]) -> bool {
        let function = match own {
            Own::Xor => self.xor_check,
            Own::PQ => self.pq_check,
        };
        blocks(
            function,
            data[0].len(),
            pointers(data).chain(pointers(parity)),
        )
    }

    /// `outputs = matrix · inputs`.
    pub(crate) fn encode(&self, tables: &Tables, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!((inputs.len(), outputs.len()), (tables.k, tables.rows));
        let len = inputs[0].len();
        assert!(inputs.iter().all(|slice| slice.len() == len));
        assert!(outputs.iter().all(|slice| slice.len() == len));
        let (mut sources, _) = listed(pointers(inputs));
        let (mut targets, _) = listed(outputs.iter_mut().map(|slice| slice.as_mut_ptr()));
        // SAFETY: k sources and `rows` targets of `len` bytes each; tables and sources are only
        // read.
        unsafe {
            (self.encode)(
                length(len),
                length(tables.k),
                length(tables.rows),
                tables.bytes.as_ptr().cast_mut(),
                sources.as_mut_ptr(),
                targets.as_mut_ptr(),
            );
        }
    }

    /// `outputs += column of the matrix · delta`.
    pub(crate) fn update(
        &self,
        tables: &Tables,
        column: usize,
        delta: &[u8],
        outputs: &mut [&mut [u8]],
    ) {
        assert!(column < tables.k && outputs.len() == tables.rows);
        assert!(outputs.iter().all(|slice| slice.len() == delta.len()));
        let (mut targets, _) = listed(outputs.iter_mut().map(|slice| slice.as_mut_ptr()));
        // SAFETY: as for `encode`, with one source.
        unsafe {
            (self.update)(
                length(delta.len()),
                length(tables.k),
                length(tables.rows),
                length(column),
                tables.bytes.as_ptr().cast_mut(),
                delta.as_ptr().cast_mut(),
                targets.as_mut_ptr(),
            );
        }
    }
}

fn symbol<T: Copy>(library: &Library, name: &str) -> T {
    // SAFETY: the types above are those of the library's headers (raid.h, erasure_code.h).
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    *symbol.expect("every version of the library has this function")
}

fn blocks(function: Blocks, len: usize, buffers: impl Iterator<Item = *mut c_uchar>) -> bool {
    assert_eq!(len % Own::GRAIN, 0, "the functions have no ends of loops");
    let (mut list, count) = listed(buffers.map(|buffer| buffer.cast::<c_void>()));
    // SAFETY: as many pointers as told, each to `len` bytes; only parities of `generate_own`,
    // which are borrowed for writing, are written.
    unsafe { function(length(count), length(len), list.as_mut_ptr()) == 0 }
}

fn pointers(slices: &[&[u8]]) -> impl Iterator<Item = *mut c_uchar> {
    slices.iter().map(|slice| slice.as_ptr().cast_mut())
}

/// The pointers in an array, without an allocation that would be measured, and how many they are.
fn listed<T>(pointers: impl Iterator<Item = *mut T>) -> ([*mut T; MAX_COLUMNS], usize) {
    let mut list = [null_mut(); MAX_COLUMNS];
    let mut count = 0;
    for pointer in pointers {
        list[count] = pointer;
        count += 1;
    }
    (list, count)
}
