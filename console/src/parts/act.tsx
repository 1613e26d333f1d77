// A dialog that asks the daemon for a change.
//
// Order: what is chosen → a dry run, which shows what would be done or why not → the change. What
// destroys data has its button disabled until the name is typed.

import { useEffect, useState, type ReactNode } from "react";
import {
  Alert,
  Button,
  Form,
  FormGroup,
  FormHelperText,
  HelperText,
  HelperTextItem,
  Modal,
  ModalBody,
  ModalFooter,
  ModalHeader,
  TextInput,
} from "@patternfly/react-core";

import type { ApiFailure } from "../door";
import { door } from "../door";
import { t } from "../i18n";
import { refresh } from "../live";
import { asFailure, Failure } from "./failure";
import { say, warn } from "./said";

/** What most answers have; answers about what was made have other fields. */
interface Answer {
  array?: string;
  pool?: string;
  device?: string | null;
  what?: string;
  notes?: string[];
}

export interface Request {
  method: string;
  path: string;
  /** Undefined while something is still to be chosen. */
  body: object | undefined;
}

type Plan = { answer: Answer } | { failure: ApiFailure } | undefined;

/** What was done, and to what. */
function told({ array, pool, device, what }: Answer): string | undefined {
  return what && [array ?? pool ?? device, what].filter(Boolean).join(": ");
}

/**
 * What a dry run of a request answers; it is asked again when the request changes.
 *
 * Nothing is asked of what deletes: whatever lies between may drop the body of such a request, and
 * then the dry run would be none.
 */
export function usePlan<T extends Answer = Answer>({ method, path, body }: Request): {
  answer?: T;
  failure?: ApiFailure;
} {
  const [plan, setPlan] = useState<Plan>();
  const text = body && JSON.stringify(body);
  useEffect(() => {
    setPlan(undefined);
    if (text === undefined || method === "DELETE") return;
    let stale = false;
    const timer = window.setTimeout(() => {
      door
        .request<T>(method, path, { ...(JSON.parse(text) as object), dry_run: true })
        .then(
          (answer) => stale || setPlan({ answer }),
          (error: unknown) => stale || setPlan({ failure: asFailure(error) }),
        );
    }, 200);
    return () => {
      stale = true;
      window.clearTimeout(timer);
    };
  }, [method, path, text]);
  return (plan ?? {}) as { answer?: T; failure?: ApiFailure };
}

export function Act(props: {
  title: string;
  about?: ReactNode;
  request: Request;
  submit: string;
  danger?: boolean;
  /** A name that has to be typed. */
  typed?: string;
  /** What was done, where the answer does not say so. */
  done?: string;
  /** What the dialog is about has changed, so that it means something else now. */
  stale?: string;
  onDone?: (answer: Answer) => void;
  onClose: () => void;
  children?: ReactNode;
}) {
  const { title, about, request, submit, danger, typed, done, stale, onDone, onClose, children } =
    props;
  const [name, setName] = useState("");
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState<ApiFailure>();
  const plan = usePlan(request);
  const { method, path, body } = request;
  const text = JSON.stringify(body);
  useEffect(() => setFailure(undefined), [text]);
  const planned = method === "DELETE" ? body !== undefined : plan.answer !== undefined;
  const ready = planned && stale === undefined && (typed === undefined || name === typed);
  // What is under way may be the reason of the change, and a failure stays to be read.
  const close = stale !== undefined && !busy && !failure;
  useEffect(() => {
    if (!close) return;
    warn(t("act.stale"), [stale]);
    onClose();
  }, [close]);
  const act = async () => {
    if (!ready || busy) return;
    setBusy(true);
    try {
      const answer = await door.request<Answer>(method, path, body);
      say(done ?? told(answer) ?? title, answer.notes);
      onDone?.(answer);
      refresh();
      onClose();
    } catch (error) {
      setFailure(asFailure(error));
    } finally {
      setBusy(false);
    }
  };
  const shown = failure ?? plan.failure;
  return (
    <Modal
      isOpen
      variant="medium"
      onClose={onClose}
      aria-labelledby="act-title"
      aria-describedby="act-body"
    >
      <ModalHeader
        title={title}
        labelId="act-title"
        titleIconVariant={danger ? "warning" : undefined}
      />
      <ModalBody id="act-body">
        <Form
          onSubmit={(event) => {
            event.preventDefault();
            void act();
          }}
        >
          {about && <div>{about}</div>}
          {children}
          {typed !== undefined && (
            <FormGroup label={t("act.type", { name: typed })} fieldId="act-name" isRequired>
              <TextInput
                id="act-name"
                value={name}
                autoComplete="off"
                onChange={(_, value) => setName(value)}
              />
              <FormHelperText>
                <HelperText>
                  <HelperTextItem>{t("act.type.why")}</HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
          )}
          <div aria-live="polite">
            {shown && <Failure failure={shown} refused={failure ? undefined : t("act.refused")} />}
            {plan.answer && !failure && (
              <PlanShown answer={plan.answer} danger={danger ?? false} />
            )}
          </div>
        </Form>
      </ModalBody>
      <ModalFooter>
        <Button
          variant={danger ? "danger" : "primary"}
          isDisabled={!ready || busy}
          isLoading={busy}
          onClick={() => void act()}
        >
          {submit}
        </Button>
        <Button variant="link" onClick={onClose}>
          {t("cancel")}
        </Button>
      </ModalFooter>
    </Modal>
  );
}

function PlanShown({ answer, danger }: { answer: Answer; danger: boolean }) {
  const { what, notes = [] } = answer;
  if (!what && notes.length === 0) return null;
  return (
    <Alert component="p" variant={danger ? "warning" : "info"} isInline title={t("act.plan")}>
      {what && <p lang="en">{what}</p>}
      {notes.map((note) => (
        <p key={note} lang="en">
          {note}
        </p>
      ))}
    </Alert>
  );
}
