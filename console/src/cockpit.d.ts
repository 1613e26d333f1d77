// What the page uses of Cockpit's base1/cockpit.js.

export interface CockpitHttpRequest extends Promise<string> {
  stream(callback: (data: string) => void): CockpitHttpRequest;
  response(callback: (status: number, headers: Record<string, string>) => void): CockpitHttpRequest;
  close(problem?: string): void;
}

export interface CockpitHttp {
  request(options: {
    method: string;
    path: string;
    headers?: Record<string, string>;
    /** Without one, even an empty one, the bridge waits for more. */
    body: string;
  }): CockpitHttpRequest;
}

/** What Cockpit says of administrative access. */
export interface CockpitSuperuser {
  /** `init` while it is not known, `none`, or what gives it. */
  Current: string;
  addEventListener(event: "changed", callback: () => void): void;
}

declare global {
  interface Window {
    cockpit?: {
      language?: string;
      dbus(
        name: null,
        options: { bus: "internal" },
      ): { proxy(name: string, path: string): CockpitSuperuser };
      /** The endpoint is the path of a socket. */
      http(endpoint: string, options: { superuser: "require" | "try" }): CockpitHttp;
    };
  }
}
