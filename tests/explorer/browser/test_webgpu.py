"""Texts that a file with a large model writes with WebGPU, on chromium's software adapter."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clearhead import config as c
from clearhead.explorer.export import contents
from clearhead.explorer.export.page import Format, html_of, rounded_model
from clearhead.explorer.session import Session
from tests.explorer.browser.page import eventually
from tests.explorer.conftest import _ARGUMENTS, EXECUTABLES
from tests.explorer.traced import CONFIGS, LLAMA, inputs, model_of, stack

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SOFTWARE = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
WIDE = c.ModelConfig(decoder=stack(**{**LLAMA, "n_heads": 2, "n_kv_heads": 1}, d_model=32, d_ff=64))
WRITERS = {name: config for name, config in CONFIGS.items() if config.decoder is not None} | {"wide": WIDE}
CHECKED = """
{
  const reader = clearheadWebGPU, nothing = { length: 0, kept: new Map() };
  globalThis.checked = { reads: 0, worst: 0, why: "not asked" };
  clearheadWebGPU = async (decoding, room) => {
    const made = await reader(decoding, room, ALWAYS), read = made.read.bind(made), ids = [];
    checked.measured = made.measured;
    made.read = async (past, more) => {
      if (checked.reads === LOST) (await devices.at(-1)).destroy();
      const { logits, past: next } = await read(past, more);
      ids.push(...more);
      const own = decoding.read(nothing, ids).logits, size = Math.max(1, ...own.map(Math.abs));
      own.forEach((x, i) => (checked.worst = Math.max(checked.worst, Math.abs(x - logits[i]) / size)));
      checked.reads += 1;
      return { logits, past: next };
    };
    return made;
  };
  const devices = [], { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = function (...how) {
    return devices[devices.push(requestDevice.apply(this, how)) - 1];
  };
}
"""
"""Compares every answer with that of WebAssembly, and destroys the device before one of them."""

Write = Callable[..., "tuple[Page, dict[str, Any]]"]


@pytest.fixture(scope="module")
def software(chromium: Browser) -> Iterator[Browser]:
    """A browser whose WebGPU is computed by the processor."""
    executable = next(filter(None, map(shutil.which, EXECUTABLES)))
    browser = chromium.browser_type.launch(executable_path=executable, args=[*_ARGUMENTS, *SOFTWARE])
    page = browser.new_page()
    page.goto(Path(__file__).as_uri())
    if not page.evaluate("async () => Boolean(await navigator.gpu?.requestAdapter())"):
        browser.close()
        pytest.skip("this chromium was built without a software adapter for WebGPU")
    page.close()
    yield browser
    browser.close()


@pytest.fixture
def write(software: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Opens a file where it writes, and waits for its text."""
    page = software.new_context(offline=True, locale="en-GB").new_page()
    built = contents.static_file

    def written(config: c.ModelConfig, live: Format, *, always: bool, lost: int = -1) -> tuple[Page, dict[str, Any]]:
        script = CHECKED.replace("ALWAYS", str(always).lower()).replace("LOST", str(lost))
        monkeypatch.setattr(contents, "static_file", lambda name: built(name) + script.encode())
        model, matrices = rounded_model(model_of(config), live)
        source, target = inputs(config)
        session = Session(model, name="writer", text=source, target=target, matrices=matrices)
        file = tmp_path / "a.html"
        file.write_bytes(html_of(session, session.start))
        page.goto(file.as_uri() + "#v=1&view=generation")
        page.locator(".texts .text button").first.wait_for(timeout=60_000)
        return page, page.workers[0].evaluate("checked")

    yield written
    page.context.close()


@pytest.mark.parametrize("name", WRITERS)
def test_every_mechanism_computes_what_webassembly_computes(write: Write, name: str) -> None:
    page, checked = write(WRITERS[name], "int4" if name == "wide" else "int8", always=True)
    assert checked["measured"]["why"] is None
    assert checked["reads"] > 2
    assert checked["worst"] < 1e-5
    assert page.get_by_text("Computed by WebGPU").count() == 1


def test_a_lost_device_loses_no_number(write: Write) -> None:
    page, checked = write(WRITERS["decoder_rotary_grouped"], "int8", always=True, lost=2)
    assert checked["reads"] > 3
    assert checked["worst"] < 1e-5
    assert page.get_by_text("WebAssembly computes here, not WebGPU: ").count() == 1


def test_a_trial_says_which_one_computes(write: Write) -> None:
    page, checked = write(WRITERS["decoder_pre_learned"], "int8", always=False)
    gpu, wasm = checked["measured"]["webgpu"], checked["measured"]["wasm"]
    winner = "WebGPU" if gpu < wasm else "WebAssembly"
    eventually(lambda: _says(page, f"Computed by {winner}: in a trial WebGPU took"))


def _says(page: Page, text: str) -> None:
    assert page.get_by_text(text).count() == 1
