{
  // The same arithmetic as `attention`, for the parts of the book that can be moved by hand.
  const softmax = (scores) => {
    const largest = Math.max(...scores);
    const exponentials = scores.map((score) => Math.exp(score - largest));
    const total = exponentials.reduce((a, b) => a + b);
    return exponentials.map((e) => e / total);
  };
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const times = (matrix, vector) => matrix.map((row) => dot(row, vector));

  function startWords(play) {
    const example = JSON.parse(play.dataset.example);
    const vectors = example.vectors.map((vector) => [...vector]);
    const plane = play.querySelector(".plane");
    const words = [...plane.querySelectorAll(".word")];
    const rows = [...play.querySelectorAll("tbody tr")];
    const [scaled, masked] = [play.querySelector(".scaled"), play.querySelector(".masked")];

    function show() {
      const query = times(example.query, vectors[example.place]);
      const readable = vectors.filter((_, i) => !masked.checked || i <= example.place);
      const scale = scaled.checked ? 1 / Math.sqrt(query.length) : 1;
      const weights = softmax(readable.map((vector) => scale * dot(query, times(example.key, vector))));
      const values = readable.map((vector) => times(example.value, vector));
      const mixture = values[0].map((_, k) => dot(weights, values.map((value) => value[k])));
      vectors.forEach((vector, i) => {
        words[i].setAttribute("transform", `translate(${100 * vector[0]} ${100 - 100 * vector[1]})`);
        const cells = rows[i].querySelectorAll("td");
        vector.forEach((x, k) => { cells[k].textContent = x.toFixed(2); });
        rows[i].querySelector("output").textContent = i < weights.length ? weights[i].toFixed(3) : "hidden";
        rows[i].querySelector(".bar").style.setProperty("--w", 100 * (weights[i] ?? 0));
      });
      const ring = plane.querySelector(".mixture");
      ring.setAttribute("cx", 100 * mixture[0]);
      ring.setAttribute("cy", 100 - 100 * mixture[1]);
      play.querySelector(".mix").textContent = `(${mixture.map((x) => x.toFixed(3)).join(", ")})`;
    }

    const clamp = (x) => Math.min(1, Math.max(0, Math.round(100 * x) / 100));
    function move(i, x, y) {
      vectors[i] = [clamp(x), clamp(y)];
      show();
    }
    words.forEach((word, i) => {
      word.addEventListener("pointerdown", (event) => word.setPointerCapture(event.pointerId));
      word.addEventListener("pointermove", (event) => {
        if (!word.hasPointerCapture(event.pointerId)) return;
        const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(plane.getScreenCTM().inverse());
        move(i, at.x / 100, 1 - at.y / 100);
      });
      word.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
        if (!step) return;
        event.preventDefault();
        move(i, vectors[i][0] + 0.05 * step[0], vectors[i][1] + 0.05 * step[1]);
      });
    });
    for (const box of [scaled, masked]) box.addEventListener("change", show);
    play.querySelector(".reset").addEventListener("click", () => {
      example.vectors.forEach((vector, i) => { vectors[i] = [...vector]; });
      [scaled.checked, masked.checked] = [true, false];
      show();
    });
  }

  function startSoftmax(play) {
    const { draws, widths } = JSON.parse(play.dataset.scores);
    const slider = play.querySelector("input");
    const halves = [...play.querySelectorAll(".half")];

    // What is left of a random slope behind a softmax: the norm of diag(w) - w w^T, against a flat row's.
    function passed(weights) {
      const power = (p) => weights.reduce((sum, w) => sum + w ** p, 0);
      const n = weights.length;
      return Math.sqrt(Math.max(0, power(2) - 2 * power(3) + power(2) ** 2)) / (Math.sqrt(n - 1) / n);
    }
    slider.addEventListener("input", () => {
      const width = widths[slider.value];
      play.querySelector(".width").textContent = width;
      slider.setAttribute("aria-valuetext", width);
      halves.forEach((half, number) => {
        const weights = softmax(draws.map((draw) => draw * (number === 0 ? 1 : Math.sqrt(width))));
        half.querySelectorAll(".bars i").forEach((bar, i) => bar.style.setProperty("--w", 100 * weights[i]));
        half.querySelector(".largest").textContent = Math.max(...weights).toFixed(3);
        half.querySelector(".passed").textContent = passed(weights).toFixed(3);
      });
    });
  }

  document.querySelectorAll(".play.words").forEach(startWords);
  document.querySelectorAll(".play.softmax").forEach(startSoftmax);
  // Without a script nothing can be moved, and so nothing looks as if it could.
  document.querySelectorAll(".play [disabled]").forEach((part) => { part.disabled = false; });
}
