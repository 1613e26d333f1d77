// The page: where it is, what every view has, which view is shown.

import { useEffect, useState, type ReactNode } from "react";
import {
  Alert,
  Masthead,
  MastheadBrand,
  MastheadContent,
  MastheadMain,
  Nav,
  NavItem,
  NavList,
  Page,
  PageSection,
  SkipToContent,
  Spinner,
  Title,
} from "@patternfly/react-core";

import { door } from "./door";
import { t, type Key } from "./i18n";
import { useLive } from "./live";
import { Failure } from "./parts/failure";
import { Sayings } from "./parts/said";
import { AlertsView } from "./views/alerts";
import { ArrayView } from "./views/array";
import { CreateView } from "./views/create";
import { DrivesView } from "./views/drives";
import { EventsView } from "./views/eventlog";
import { meant, Overview } from "./views/overview";
import { PoolsView } from "./views/pools";

/** The parts of the address behind `#/`. */
export function useRoute(): string[] {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const listen = () => setRoute(read());
    window.addEventListener("hashchange", listen);
    return () => window.removeEventListener("hashchange", listen);
  }, []);
  return route;
}

const VIEWS: [string, Key][] = [
  ["", "nav.overview"],
  ["drives", "nav.drives"],
  ["pools", "nav.pools"],
  ["events", "nav.events"],
  ["alerts", "nav.alerts"],
];

function view(route: string[]): ReactNode {
  const [first = "", second, third] = route;
  switch (first) {
    case "":
      return <Overview />;
    case "array":
      return <ArrayView key={second} name={second ?? ""} tab={third ?? "members"} />;
    case "create":
      return <CreateView />;
    case "drives":
      return <DrivesView />;
    case "pools":
      return <PoolsView />;
    case "events":
      return <EventsView />;
    case "alerts":
      return <AlertsView />;
    default:
      return <Alert component="p" variant="warning" isInline title={t("nav.nowhere", { place: first })} />;
  }
}

function Link() {
  const { link, failure, arrays } = useLive();
  if (failure) return <Failure failure={failure} refused={t("failure.read")} />;
  if (link === "lost") {
    return (
      <Alert component="p" variant="warning" isInline title={t("link.lost")}>
        {t("link.lost.more")}
      </Alert>
    );
  }
  if (!arrays) return <Spinner aria-label={t("loading")} />;
  return null;
}

export function App() {
  const route = useRoute();
  const { arrays, link, version } = useLive();
  const shown = arrays && link !== "over";
  const place = route[0] ?? "";
  const key = VIEWS.find(([name]) => name === place)?.[1];
  useEffect(() => {
    const text = route[1] ?? "";
    const name = place === "array" ? (meant(arrays ?? [], text)[0]?.name ?? text) : key && t(key);
    document.title = name ? `${name} – Strake` : "Strake";
  }, [place, route, key, arrays]);
  const masthead = (
    <Masthead display={{ default: "inline" }}>
      <MastheadMain>
        <MastheadBrand>
          <span className="brand">
            <img src="strake.svg" alt="" />
            Strake
          </span>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <span className="quiet version">{version && t("version", { version: version.version })}</span>
      </MastheadContent>
    </Masthead>
  );
  return (
    <Page
      masthead={door.name === "cockpit" ? undefined : masthead}
      skipToContent={
        <SkipToContent
          href="#content"
          onClick={(event) => {
            // The address is the page's own.
            event.preventDefault();
            document.getElementById("content")?.focus();
          }}
        >
          {t("nav.skip")}
        </SkipToContent>
      }
      horizontalSubnav={
        <Nav variant="horizontal-subnav" aria-label={t("nav")}>
          <NavList>
            {VIEWS.map(([name, label]) => (
              <NavItem
                key={name}
                to={`#/${name}`}
                isActive={name === place || (name === "" && ["array", "create"].includes(place))}
              >
                {t(label)}
              </NavItem>
            ))}
          </NavList>
        </Nav>
      }
      mainContainerId="content"
      mainAriaLabel="Strake"
    >
      <PageSection isFilled>
        <div className="stack">
          {!shown && <Title headingLevel="h1">Strake</Title>}
          <Link />
          {shown && view(route)}
        </div>
      </PageSection>
      <Sayings />
    </Page>
  );
}
