// The page's only script: inline ones are forbidden by the server's content security policy.
import { startPage } from "./explorer.js";

startPage(document.getElementById("app"), (place) => import(`/place/${place}.js`));
