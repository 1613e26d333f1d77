//! Golden images: what version 1 wrote is read for ever. They are written anew only with
//! `STRAKE_GOLDEN=write`, and a change of one is a change of the format.

use std::path::PathBuf;

use strake_format::*;

use crate::{battery, lists, logs, pools, samples::*, volumes};

/// Compares with, or writes, one image; gives it as it lies in the folder.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/v1")
        .join(name);
    if std::env::var_os("STRAKE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, bytes).expect("the golden folder can be written");
    }
    let image = std::fs::read(&path).expect("the golden image is there");
    assert!(image == bytes, "{name} is not what this version writes");
    image
}

/// A superblock that uses every field.
fn rich() -> Superblock {
    let mut rich = superblock(Level::Raid60, 8, 4, 2);
    rich.name = "Golden_image.v1-of-strake-format".parse().expect("a name");
    rich.strip_bytes = 131_072;
    rich.block_bytes = 512;
    rich.layout = layout(131_072, (1 << 40) + 512);
    rich.write_hole = WriteHole::Degraded;
    rich.clean = true;
    rich.epoch = Epoch(0x0102_0304_0506_0708);
    rich.generation = Generation(0x1112_1314_1516_1718);
    rich.slots[1].state = SlotState::Rebuilding {
        rebuilt_bytes: 1 << 20,
    };
    rich.slots[1].since = Epoch(5);
    rich.slots[3].state = SlotState::Failed;
    rich.slots[3].since = Epoch(6);
    rich.slots[7] = SlotRecord {
        member: MemberUuid::NIL,
        state: SlotState::Missing,
        since: rich.epoch,
        kept: false,
        known: Known::default(),
    };
    rich.slots[3].kept = true;
    rich.whole_since = Epoch(4);
    rich.spares = vec![member(0x71), member(0x72)];
    rich.settings = Settings {
        rebuild_priority: 77,
        read_error_threshold: 12,
        ..Settings::default()
    };
    rich
}

/// A superblock of an array that got its last parity later.
fn raised() -> Superblock {
    let mut raised = superblock(Level::Raid6, 6, 6, 5);
    raised.epoch = Epoch(9);
    (raised.fixed_parities, raised.shape_since) = (1, Epoch(7));
    raised
}

/// Superblocks of arrays with data that moves, under the names of their images.
fn moves() -> [(&'static str, Superblock); 4] {
    let moving = Superblock {
        moving: Some(Moving {
            members: 5,
            group_size: 5,
            fixed_parities: 1,
            band_rows: 1,
            moved_rows: 77,
            stopped: false,
        }),
        ..raised()
    };
    let lowered = Superblock {
        moving: Some(Moving {
            members: 6,
            group_size: 6,
            fixed_parities: 0,
            band_rows: 1,
            moved_rows: 13,
            stopped: false,
        }),
        ..raised()
    };
    let mut banded = superblock(Level::Raid50, 6, 3, 2);
    banded.settings.restripe_priority = 7;
    (banded.layout, banded.band_rows) = (layout(262_144, 16 << 20), 4);
    banded.moving = Some(Moving {
        members: 6,
        group_size: 3,
        fixed_parities: 0,
        band_rows: 2,
        moved_rows: 16,
        stopped: true,
    });
    let mut regrouped = superblock(Level::Raid70, 10, 5, 1);
    regrouped.moving = Some(Moving {
        members: 7,
        group_size: 7,
        fixed_parities: 2,
        band_rows: 1,
        moved_rows: 99,
        stopped: false,
    });
    [
        ("superblock-lowered", lowered),
        ("superblock-moving", moving),
        ("superblock-bands", banded),
        ("superblock-groups", regrouped),
    ]
}

/// A superblock that knows something of every member.
fn known() -> Superblock {
    let mut known = superblock(Level::Raid6, 6, 6, 3);
    known.epoch = Epoch(9);
    known.generation = Generation(0x32_1234_5679);
    for row in &mut known.slots {
        row.known = Known::heard(Generation(0x32_1234_5678));
    }
    known.slots[4].state = SlotState::Missing;
    known.slots[4].known = Known::heard(Generation(7)).until(Generation(9));
    known.spares = vec![member(0x71), member(0x72)];
    known.replacements = vec![Replacement {
        member: member(0x72),
        slot: Slot(1),
        rebuilt_bytes: 65536,
        known: Known::heard(Generation(0x32_1234_5677)),
    }];
    known
}

#[test]
fn superblocks_are_what_they_were() {
    let rich = rich();
    let spare = Superblock {
        member: member(0x72),
        role: Role::Spare,
        ..rich.clone()
    };
    let carved = Superblock {
        carved: true,
        ..rich.clone()
    };
    let mut zeroing = superblock(Level::Raid6, 5, 5, 3);
    (zeroing.zeroing, zeroing.settings.init_priority) = (true, 31);
    let mut numbers = superblock(Level::Raid6, 5, 5, 2);
    (numbers.clean, numbers.covered, numbers.numbers_noted) = (true, true, true);
    let mut sessions = superblock(Level::Raid6, 5, 5, 2);
    let session = |first, number| Session {
        first: Generation(first),
        number,
    };
    let all = vec![
        session(0x32_1234_5678, 0x7172_7374),
        session(9, 0),
        session(2, 3),
    ];
    (sessions.generation, sessions.sessions) = (
        Generation(0x32_1234_5679),
        Sessions::new(all).expect("sessions"),
    );
    let mut undecided = superblock(Level::Raid6, 6, 6, 2);
    undecided.undecided = true;
    let mut whole_at = superblock(Level::Raid6, 6, 6, 2);
    whole_at.map_whole_at = true;
    let at_rest = [
        ("superblock-slot", rich),
        ("superblock-spare", spare),
        ("superblock-raised", raised()),
        ("superblock-carved", carved),
        ("superblock-zeroing", zeroing),
        ("superblock-numbers", numbers),
        ("superblock-known", known()),
        ("superblock-sessions", sessions),
        ("superblock-undecided", undecided),
        ("superblock-whole-at", whole_at),
    ];
    for (name, superblock) in at_rest.into_iter().chain(moves()) {
        let offsets = Layout::superblock_offsets(superblock.layout.device_bytes);
        for (copy, offset) in ["first", "last"].into_iter().zip(offsets) {
            let bytes = superblock.encode(offset);
            golden(&format!("{name}-{copy}.bin"), &bytes[..]);
            assert_eq!(
                Superblock::decode(&bytes[..], offset).as_ref(),
                Ok(&superblock)
            );
        }
    }
}

#[test]
fn every_level_is_what_it_was() {
    let mut bytes = Vec::new();
    for (level, members, group_size) in shapes() {
        bytes.extend_from_slice(&superblock(level, members, group_size, 0).encode(4096)[..]);
    }
    let image = golden("levels.bin", &bytes);
    for (block, (level, ..)) in image.chunks(4096).zip(shapes()) {
        assert_eq!(
            Superblock::decode(block, 4096).map(|found| found.level),
            Ok(level)
        );
    }
}

#[test]
fn a_map_page_is_what_it_was() {
    let page = battery::sample_page();
    let image = golden("map-page.bin", &page.encode(8192)[..]);
    assert_eq!(MapPage::decode(&image, 8192).as_ref(), Ok(&page));
    let undecided = MapPage {
        undecided: vec![2, 7],
        ..page
    };
    let image = golden("map-page-undecided.bin", &undecided.encode(8192)[..]);
    assert_eq!(MapPage::decode(&image, 8192).as_ref(), Ok(&undecided));
    let whole_at = MapPage {
        whole_at: 38,
        ..undecided
    };
    let image = golden("map-page-whole-at.bin", &whole_at.encode(8192)[..]);
    assert_eq!(MapPage::decode(&image, 8192), Ok(whole_at));
}

#[test]
fn a_list_of_unreadable_blocks_is_what_it_was() {
    let list = lists::sample_list();
    let image = golden("unreadable.bin", &list.encode(8192, 12288));
    assert_eq!(UnreadableList::decode(&image, 12288), Ok(list));
}

#[test]
fn a_label_of_a_pool_is_what_it_was() {
    let label = pools::sample_label();
    let offsets = Layout::superblock_offsets(label.device_bytes);
    for (name, offset) in ["first", "last"].into_iter().zip(offsets) {
        let image = golden(&format!("pool-label-{name}.bin"), &label.encode(offset)[..]);
        assert_eq!(PoolLabel::decode(&image, offset).as_ref(), Ok(&label));
    }
}

#[test]
fn a_table_of_volumes_is_what_it_was() {
    let table = volumes::sample_table();
    let offset = VOLUME_TABLE_OFFSETS[1];
    let image = golden("volumes.bin", &table.encode(offset));
    assert_eq!(
        VolumeTable::decode(&image, offset, table.array),
        Ok(Some(table))
    );
}

#[test]
fn a_log_batch_is_what_it_was() {
    let batch = logs::sample_batch();
    let image = golden("log-batch.bin", &batch.encode(1 << 20, 16384));
    assert_eq!(
        LogBatch::decode(&image, 1 << 20),
        Ok((batch.clone(), image.len()))
    );
    let forged = LogRecord {
        len: 4096,
        payload: LogPayload::LostStrip {
            column: 5,
            bytes: b"STRKLOG\x1a".repeat(512),
        },
        ..batch.records[0].clone()
    };
    let escaped = LogBatch {
        records: vec![forged],
        ..batch
    };
    let image = golden("log-batch-escaped.bin", &escaped.encode(1 << 20, 4096));
    assert_eq!(
        LogBatch::decode(&image, 1 << 20),
        Ok((escaped, image.len()))
    );
}
