/** The component of each place: the file of its folder that has its name, such as lens/Lens.svelte. */

import type { Component } from "svelte";
import type { PlaceName } from "../state/places";

const components = import.meta.glob<Component>("./*/*.svelte", { eager: true, import: "default" });

export function componentOf(place: PlaceName): Component {
  return components[`./${place}/${place.charAt(0).toUpperCase()}${place.slice(1)}.svelte`]!;
}
