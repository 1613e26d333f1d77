// What a level is good for: how many drives it survives, and what its members can do at most.
//
// Capacity is the daemon's to say (a dry run of `create`); these follow from the level alone.

import { plural, t } from "./i18n";

export interface Shape {
  /** Any so many members may be lost. */
  survives: number;
  /** In each group, where there are groups. */
  grouped: boolean;
  /** Members that carry data of a full stripe. */
  data: number;
}

const PARITIES: Record<string, number> = { "0": 0, "5": 1, "6": 2, "7.3": 3 };
const GROUPS: Record<string, number> = { "50": 1, "60": 2, "70": 3 };

export function shape(level: string, members: number, group: number | null): Shape | undefined {
  const parities = PARITIES[level];
  if (parities !== undefined) {
    return { survives: parities, grouped: false, data: members - parities };
  }
  const ofGroup = GROUPS[level];
  if (ofGroup !== undefined) {
    if (!group) return undefined;
    const groups = Math.floor(members / group);
    return { survives: ofGroup, grouped: true, data: members - groups * ofGroup };
  }
  if (level === "1") return { survives: members - 1, grouped: false, data: 1 };
  if (level === "10") {
    const copies = group ?? 2;
    return { survives: copies - 1, grouped: true, data: Math.floor(members / copies) };
  }
  const both = /^(\d+)\+(\d+)$/.exec(level);
  if (both) return { survives: Number(both[2]), grouped: false, data: Number(both[1]) };
  return undefined;
}

/** How many lost drives an array with all its members survives. */
export function tolerance(
  level: string,
  members: number,
  group: number | null,
): string | undefined {
  const known = shape(level, members, group);
  if (!known) return undefined;
  if (known.survives === 0) return t("survives.none");
  return known.grouped
    ? plural("survives.group", known.survives)
    : plural("survives", known.survives);
}
