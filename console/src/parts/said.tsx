// Messages about what was done, in a corner, read out by screen readers.

import { useSyncExternalStore } from "react";
import { Alert, AlertActionCloseButton, AlertGroup } from "@patternfly/react-core";

import { t } from "../i18n";

interface Saying {
  id: number;
  title: string;
  notes: string[];
  variant: "success" | "warning";
}

let sayings: Saying[] = [];
let last = 0;
const listeners = new Set<() => void>();

function put(all: Saying[]): void {
  sayings = all;
  for (const listener of listeners) listener();
}

function add(saying: Omit<Saying, "id">): void {
  last += 1;
  put([...sayings.slice(-3), { id: last, ...saying }]);
}

/** What was done, with notes of the daemon. */
export function say(title: string, notes: string[] = []): void {
  add({ title, notes, variant: "success" });
}

/** What was not done, and why. */
export function warn(title: string, notes: string[] = []): void {
  add({ title, notes, variant: "warning" });
}

export function Sayings() {
  const all = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => sayings,
  );
  const drop = (id: number) => put(sayings.filter((one) => one.id !== id));
  return (
    <AlertGroup isToast isLiveRegion>
      {all.map(({ id, title, notes, variant }) => (
        <Alert component="p"
          key={id}
          variant={variant}
          title={title}
          timeout={8000}
          onTimeout={() => drop(id)}
          actionClose={<AlertActionCloseButton aria-label={t("close")} onClose={() => drop(id)} />}
        >
          {notes.map((note) => (
            <p key={note} lang={variant === "success" ? "en" : undefined}>
              {note}
            </p>
          ))}
        </Alert>
      ))}
    </AlertGroup>
  );
}
