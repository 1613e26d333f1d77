//! Any bytes that an NBD client may send: no decoder panics or believes a length beyond its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strake_runtime::export::nbd::wire;

fuzz_target!(|bytes: &[u8]| wire::decode_anything(bytes));
