// Light or dark: as Cockpit says where it shows the page, as the system says otherwise.

const DARK = "pf-v6-theme-dark";
const system = window.matchMedia("(prefers-color-scheme: dark)");

function isDark(style: string | null): boolean {
  if (style === "dark") return true;
  if (style === "light") return false;
  return system.matches;
}

function ofCockpit(): string | null {
  try {
    return window.cockpit ? localStorage.getItem("shell:style") : null;
  } catch {
    return null;
  }
}

export function followTheme(): void {
  const apply = (style = ofCockpit()) =>
    document.documentElement.classList.toggle(DARK, isDark(style));
  system.addEventListener("change", () => apply());
  window.addEventListener("storage", (event) => {
    if (event.key === "shell:style") apply();
  });
  // The shell tells its pages so when the user picks another style.
  window.addEventListener("cockpit-style", (event) => {
    apply((event as CustomEvent<{ style?: string }>).detail?.style ?? null);
  });
  apply();
}
