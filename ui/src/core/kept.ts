/** What the browser keeps for the next visit. A page from a file may have no storage: then it lasts as long as the page. */

export function kept(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // As said above.
  }
}
