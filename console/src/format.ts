// Numbers, sizes, times and durations as people read them.

import { locale, plural, t } from "./i18n";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function number(value: number, digits: number): string {
  return new Intl.NumberFormat(locale, { maximumFractionDigits: digits }).format(value);
}

/** A size in binary units, three digits of it. */
export function bytes(value: number): string {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${number(value, digits)} ${UNITS[unit]}`;
}

export const rate = (bytesPerSecond: number): string => `${bytes(bytesPerSecond)}/s`;

export const count = (value: number): string => number(value, value < 10 ? 1 : 0);

export const percent = (share: number): string =>
  new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 }).format(share);

export function micros(us: number): string {
  if (us < 1000) return `${number(us, 0)} µs`;
  if (us < 1e6) return `${number(us / 1e3, us < 1e4 ? 1 : 0)} ms`;
  return `${number(us / 1e6, 1)} s`;
}

export function duration(seconds: number): string {
  if (seconds < 60) return plural("time.seconds", Math.max(1, Math.round(seconds)));
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return plural("time.minutes", minutes);
  const [hours, rest] = [Math.floor(minutes / 60), minutes % 60];
  if (hours < 24) return `${plural("time.hours", hours)} ${plural("time.minutes", rest)}`;
  return `${plural("time.days", Math.floor(hours / 24))} ${plural("time.hours", hours % 24)}`;
}

/** A time of the API (RFC 3339) in the reader's time zone. */
export function moment(text: string): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return text;
  return time.toLocaleString(locale, { dateStyle: "medium", timeStyle: "medium" });
}

const SIZE = /^\s*(\d+(?:[.,]\d+)?)\s*(?:([KMGTPE])(?:i?B)?|B)?\s*$/i;

/** Bytes of a size that was typed, as 100G or 1.5 TiB; undefined where it is none. */
export function parseSize(text: string): number | undefined {
  const found = SIZE.exec(text);
  if (!found?.[1]) return undefined;
  const power = found[2] ? "KMGTPE".indexOf(found[2].toUpperCase()) + 1 : 0;
  return Math.round(Number(found[1].replace(",", ".")) * 1024 ** power);
}

/** A slot as the page calls it. */
export const slotName = (slot: number | null): string =>
  slot === null ? t("member.spare") : t("member.slot", { slot });
