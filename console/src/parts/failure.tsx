// A failure as the daemon tells it: what was found, and what to do.

import { Alert } from "@patternfly/react-core";

import { ApiFailure } from "../door";
import { t } from "../i18n";
import { over } from "../live";

/** What went wrong, in a line: not all that fails is refused by the daemon. */
function titleOf(failure: ApiFailure): string {
  if (failure.isOver) return t("link.over");
  if (failure.code === "access-denied") return t("link.denied");
  if (failure.code === "server-gone") return t("failure.unreachable");
  return t(failure.isSilence ? "link.lost" : "failure.title");
}

/** `refused` is the title where the daemon answered, and refused. */
export function Failure({ failure, refused }: { failure: ApiFailure; refused?: string }) {
  const known = failure.status > 0 && !failure.isOver && !failure.isSilence;
  const title = known && refused ? refused : titleOf(failure);
  return (
    <Alert component="p" variant="danger" isInline title={title} className="failure">
      <p lang={failure.status > 0 && !failure.isOver ? "en" : undefined}>{failure.found}</p>
      {failure.cure && (
        <p>
          {t("failure.todo")}{" "}
          <strong lang={failure.status > 0 && !failure.isOver ? "en" : undefined}>
            {failure.cure}
          </strong>
        </p>
      )}
      <p className="quiet">{t("failure.code", { code: failure.code })}</p>
    </Alert>
  );
}

/** What a promise was rejected with; what is no failure of the API is a bug and stays one. */
export function asFailure(error: unknown): ApiFailure {
  if (!(error instanceof ApiFailure)) throw error;
  if (error.isOver) over(error);
  return error;
}
