// Texts of the page, in the languages that strings/ has.
//
// The language is Cockpit's where Cockpit shows the page, the browser's otherwise. What the daemon
// says (what it found, what to do) is English in every language.

import de from "../strings/de.json";
import en from "../strings/en.json";

export type Key = keyof typeof en;
type Texts = Record<Key, string>;

const languages: Record<string, Texts> = { en, de };

function wanted(): string[] {
  const cookie = /(?:^|;\s*)CockpitLang=([^;]+)/.exec(document.cookie)?.[1];
  const ofCockpit = window.cockpit ? (window.cockpit.language ?? cookie) : undefined;
  return [...(ofCockpit ? [ofCockpit] : []), ...navigator.languages];
}

const known = (tag: string): string => tag.slice(0, 2).toLowerCase();

/** For numbers and times, which differ between countries of one language. */
export const locale =
  wanted()
    .map((tag) => tag.replace("_", "-"))
    .find((tag) => known(tag) in languages) ?? "en";

export const language = known(locale);

const texts: Texts = languages[language] ?? en;

export type Values = Record<string, string | number>;

/** The text of a key, with {names} replaced. */
export function t(key: Key, values: Values = {}): string {
  return texts[key].replace(/\{(\w+)\}/g, (all, name: string) => String(values[name] ?? all));
}

/** Of two texts, `key.one` and `key.other`, the one for a number, which is {n}. */
export function plural(key: string, n: number, values: Values = {}): string {
  const form = new Intl.PluralRules(language).select(n) === "one" ? "one" : "other";
  return t(`${key}.${form}` as Key, { n, ...values });
}

/** The text for a name of the API, such as a state; the name itself where a newer daemon has it. */
export function named(group: string, name: string): string {
  const key = `${group}.${name}`;
  return key in texts ? texts[key as Key] : name;
}
