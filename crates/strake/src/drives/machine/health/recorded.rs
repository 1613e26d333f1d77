//! Log pages as drives gave them, beside what other programs, or people, read in them.
//!
//! Invariant: the bytes come from drives, or are laid out by the specification from values that
//! another program printed of a drive; which of the two, and from where, is said in
//! `crates/strake/tests/pages/README.md`.

use super::*;

/// A page of so many bytes: lines of an offset and what lies there, zeros elsewhere.
fn page(text: &str, bytes: usize) -> Vec<u8> {
    let mut page = vec![0; bytes];
    let hex = |digits| usize::from_str_radix(digits, 16).expect("a hexadecimal number");
    for line in text.lines() {
        let (offset, rest) = line.split_once(':').expect("an offset");
        for (at, byte) in rest.split_whitespace().enumerate() {
            page[hex(offset) + at] = u8::try_from(hex(byte)).expect("a byte");
        }
    }
    page
}

fn put(page: &mut [u8], at: usize, value: u128, bytes: usize) {
    page[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// What `nvme smart-log` printed of a drive, as the specification lays it out.
#[derive(Default)]
struct Smart {
    temperature_k: u128,
    spare: u128,
    used: u128,
    units_read: u128,
    units_written: u128,
    hours: u128,
    unsafe_shutdowns: u128,
}

impl Smart {
    fn page(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        put(&mut page, 1, self.temperature_k, 2);
        put(&mut page, 3, self.spare, 1);
        put(&mut page, 5, self.used, 1);
        put(&mut page, 32, self.units_read, 16);
        put(&mut page, 48, self.units_written, 16);
        put(&mut page, 128, self.hours, 16);
        put(&mut page, 144, self.unsafe_shutdowns, 16);
        page
    }
}

#[test]
fn the_smart_log_of_a_consumer_s_drive_is_read_as_its_bytes_say() {
    let health = decode(&Pages {
        smart: page(
            include_str!("../../../../tests/pages/smart-02.hex"),
            PAGE_BYTES,
        ),
        ..Pages::default()
    });
    assert_eq!(health.warnings, [""; 0]);
    assert_eq!(health.temperature_c, 39);
    assert_eq!(health.available_spare_percent, 100);
    assert_eq!(health.percentage_used, 1);
    // 55,377,092 units: 28 TB.
    assert_eq!(health.host_written_bytes, 28_353_071_104_000);
}

#[test]
fn the_ocp_log_of_a_data_centre_s_drive_is_read_as_its_bytes_say() {
    let mut bytes = page(
        include_str!("../../../../tests/pages/ocp-c0.hex"),
        PAGE_BYTES,
    );
    let told = |bytes: &[u8]| {
        let ocp = Some(bytes.to_vec());
        let health = decode(&Pages {
            ocp,
            ..Pages::default()
        });
        (
            health.media_written_bytes,
            health.media_from,
            health.unaligned_ios,
        )
    };
    assert_eq!(told(&bytes), (None, None, None), "nothing says what it is");
    // What was printed ends before the GUID, which the specification gives every such page.
    bytes[496..].copy_from_slice(&OCP_GUID);
    assert_eq!(
        told(&bytes),
        (Some(4_867_569_061_888), Some("ocp"), Some(0))
    );
}

#[test]
fn what_nvme_cli_printed_of_an_ocp_drive_is_read_from_a_page_with_these_values() {
    let mut ocp = vec![0; PAGE_BYTES];
    put(&mut ocp, 0, 39_074_645_999_616, 16);
    put(&mut ocp, 16, 36_265_469_677_568, 16);
    ocp[120] = 1; // per cent free
    put(&mut ocp, 128, 100, 2); // capacitor health
    put(&mut ocp, 152, 0, 8); // namespace utilization
    put(&mut ocp, 494, 2, 2); // version of the page
    // As it is printed: the most significant byte first.
    put(&mut ocp, 496, 0xafd5_14c9_7c6f_4f9c_a4f2_bfea_2810_afc5, 16);
    let smart = Smart {
        temperature_k: 306,
        spare: 100,
        units_read: 14_051_417,
        units_written: 47_217_872,
        hours: 1244,
        unsafe_shutdowns: 52,
        ..Smart::default()
    };
    let health = decode(&Pages {
        smart: smart.page(),
        ocp: Some(ocp),
        ..Pages::default()
    });
    assert_eq!(health.media_written_bytes, Some(39_074_645_999_616));
    assert_eq!(
        (health.media_from, health.unaligned_ios),
        (Some("ocp"), Some(0))
    );
    assert_eq!(
        (health.temperature_c, health.available_spare_percent),
        (33, 100)
    );
    assert_eq!((health.power_on_hours, health.unsafe_shutdowns), (1244, 52));
    assert_eq!(health.host_written_bytes, 24_175_550_464_000);
}

#[test]
fn what_nvme_cli_printed_of_an_intel_drive_is_read_from_a_page_with_these_values() {
    let items: [(u8, u128); 14] = [
        (0xab, 0),
        (0xac, 0),
        (0xad, 4_295_098_369),
        (0xb8, 0),
        (0xc7, 0),
        (0xe2, 65_535),
        (0xe3, 65_535),
        (0xe4, 65_535),
        (0xea, 0),
        (0xf0, 0),
        (0xf3, 0),
        (0xf4, 40_262),
        (0xf5, 45_197),
        (0xf6, 0),
    ];
    let mut page = vec![0; PAGE_BYTES];
    for (item, (key, raw)) in page.chunks_exact_mut(12).zip(items) {
        (item[0], item[3]) = (key, 100);
        put(item, 5, raw, 6);
    }
    let health = decode(&Pages {
        solidigm: Some(page),
        ..Pages::default()
    });
    assert_eq!(health.media_from, Some("solidigm"));
    // 40,262 units of 32 MiB: 1.35 TB.
    assert_eq!(health.media_written_bytes, Some(1_350_968_541_184));
}

#[test]
fn what_an_emulated_drive_gave_is_read_as_nvme_cli_reads_it() {
    let health = decode(&Pages {
        controller: page(
            include_str!("../../../../tests/pages/qemu-controller.hex"),
            4096,
        ),
        smart: page(
            include_str!("../../../../tests/pages/qemu-smart-02.hex"),
            PAGE_BYTES,
        ),
        ..Pages::default()
    });
    assert_eq!((&*health.model, &*health.serial), ("QEMU NVMe Ctrl", "SN3"));
    assert_eq!(
        health.warnings,
        ["available spare below threshold", "media read only"]
    );
    assert_eq!(health.temperature_c, 50);
    // As `nvme smart-log` says: 228 units.
    assert_eq!(health.host_written_bytes, 116_736_000);
    assert_eq!(health.media_written_bytes, None);
}
