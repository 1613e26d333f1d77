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
    body?: string;
  }): CockpitHttpRequest;
}

declare global {
  interface Window {
    cockpit?: {
      language?: string;
      http(endpoint: { unix: string }, options: { superuser: "require" | "try" }): CockpitHttp;
    };
  }
}
