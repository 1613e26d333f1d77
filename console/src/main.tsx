import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import "@patternfly/react-core/dist/styles/base.css";
import "./page.css";
import { App } from "./app";
import { language } from "./i18n";
import { begin } from "./live";
import { followTheme } from "./theme";

document.documentElement.lang = language;
followTheme();
begin();
createRoot(document.getElementById("page")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
