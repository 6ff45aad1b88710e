"use strict";
// Lets the reader choose the character that asks. The page already shows one for each text.

const bytes = (side) => Uint8Array.from(atob(side.dataset.weights), (c) => c.charCodeAt(0));

function start(reading) {
  const buttons = [...reading.querySelectorAll(".asker button")];
  const length = buttons.length;
  const sides = [...reading.querySelectorAll(".side")].map((side) => ({
    weights: bytes(side),
    rows: [...side.querySelectorAll(".row:not(.effect) .cells")].map((cells) => [...cells.children]),
    effects: [...side.querySelectorAll(".effect, .effect-words")],
    readout: side.querySelector(".readout span"),
  }));

  function show(place) {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-pressed", i === place);
      button.tabIndex = i === place ? 0 : -1;
    });
    for (const side of sides) {
      side.rows.forEach((cells, row) => {
        cells.forEach((cell, i) => {
          const share = side.weights[(row * length + place) * length + i] / 255;
          cell.style.setProperty("--w", 100 * Math.sqrt(share));
          cell.classList.toggle("asks", i === place);
        });
      });
      // What decides was measured for one place only.
      side.effects.forEach((part) => part.classList.toggle("stale", place !== Number(reading.dataset.place)));
      const shares = [...side.weights.subarray(place * length, (place + 1) * length)].map((byte, i) => [byte / 2.55, i]);
      const most = shares.sort((a, b) => b[0] - a[0]).slice(0, 3);
      const words = most.map(([share, i]) => `\u201c${buttons[i].textContent}\u201d at ${i}: ${Math.round(share)} %`);
      side.readout.textContent = words.join(", ");
    }
  }

  reading.querySelector(".asker").addEventListener("keydown", (event) => {
    const now = buttons.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: length - 1 }[event.key];
    if (now < 0 || next === undefined || !buttons[next]) return;
    event.preventDefault();
    buttons[next].focus();
  });
  buttons.forEach((button, i) => {
    for (const name of ["pointerenter", "focus", "click"]) button.addEventListener(name, () => show(i));
  });
}

document.querySelectorAll(".reading").forEach((reading) => {
  // Weights are unpacked when a text is first touched, so that the page opens at once.
  let started = false;
  for (const name of ["pointerenter", "focusin"]) {
    reading.addEventListener(name, () => {
      if (!started) start(reading);
      started = true;
    });
  }
});
