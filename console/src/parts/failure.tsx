// A failure as the daemon tells it: what was found, and what to do.

import { Alert } from "@patternfly/react-core";

import { ApiFailure } from "../door";
import { t } from "../i18n";

export function Failure({ failure, title }: { failure: ApiFailure; title?: string }) {
  return (
    <Alert component="p" variant="danger" isInline title={title ?? t("failure.title")} className="failure">
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
  if (error instanceof ApiFailure) return error;
  throw error;
}
