/** The component of each place: the file of its folder that has its name, such as lens/Lens.svelte. A place of another
 *  package is drawn by a script of its own. */

import type { Component } from "svelte";
import type { PlaceName } from "../state/places";
import Drawn from "./Drawn.svelte";

const components = import.meta.glob<Component>("./*/*.svelte", { eager: true, import: "default" });

export function componentOf(place: PlaceName): Component {
  return components[`./${place}/${place.charAt(0).toUpperCase()}${place.slice(1)}.svelte`] ?? Drawn;
}
