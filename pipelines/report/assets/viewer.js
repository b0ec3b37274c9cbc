"use strict";
// Plays the recorded cut: halves, springs and knife in 3D, the force below, one clock for both.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const short = (text) => new Int16Array(bytes(text));
  const faces = new Int32Array(bytes(data.faces)), side = short(data.side), onCut = short(data.on_cut);
  // The optimised cut and, if it was recorded, the vertical one: the same body and clock, frames of their own.
  const cuts = [data, data.vertical].filter(Boolean).map((source) => ({
    source, vertices: short(source.vertices), displacement: short(source.displacement),
    plus: short(source.plus), minus: short(source.minus), remaining: short(source.remaining), time: source.time_s,
  }));
  const [main, other] = cuts;
  const frames = data.time_s.length, count = main.displacement.length / frames, springs = main.remaining.length / frames;
  const shown = { frame: 0, playing: true };
  $("outcome").textContent = data.outcome;
  $("time").max = frames - 1;

  // ---- scales
  const most = Math.max(data.max_displacement_m, 1e-6);
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const table = (colours) => colours.map((hex) => rgb(hex).map(linear));
  const surfaceColours = table(data.surface_colours), springColours = table(data.spring_colours);
  const pick = (colours, share) => colours[Math.round(255 * Math.min(1, Math.max(0, share)))];
  const plain = rgb("#e3a857").map(linear), flesh = rgb("#f3e6c4").map(linear);
  for (const [title, colours, low, high] of [
    ["displacement [mm]", data.surface_colours, "0", (1e3 * most).toFixed(1)],
    ["springs: remaining stiffness [-]", data.spring_colours, "0, cut", "1, whole"],
  ]) {
    const box = document.createElement("div"), bar = document.createElement("i"), ends = document.createElement("span");
    box.className = "scale"; box.append(title, bar, ends);
    bar.style.background = `linear-gradient(to right, ${colours.filter((_, i) => i % 15 === 0).join(",")})`;
    for (const text of [low, high]) { const end = document.createElement("b"); end.textContent = text; ends.append(end); }
    $("scales").append(box);
  }

  // ---- 3D
  let renderer = null;
  try { renderer = new THREE.WebGLRenderer({ canvas: $("view"), antialias: true, preserveDrawingBuffer: true }); }
  catch { $("no-webgl").hidden = false; }
  const scene = new THREE.Scene(), camera = new THREE.PerspectiveCamera(35, 1, 0.001, 5);
  const low = [1e9, 1e9, 1e9], high = [-1e9, -1e9, -1e9];
  for (let i = 0; i < 3 * count; i++) { const v = main.vertices[i] * data.grain_m; low[i % 3] = Math.min(low[i % 3], v); high[i % 3] = Math.max(high[i % 3], v); }
  const size = Math.max(...high.map((v, i) => v - low[i]));
  const middle = new THREE.Vector3(0, 0.5 * (low[1] + high[1]), 0.5 * (low[2] + high[2]));
  scene.add(new THREE.AmbientLight(0xffffff, 1.1));
  const sun = new THREE.DirectionalLight(0xffffff, 2.2); sun.position.set(1.2, 2.5, 1.6); scene.add(sun);
  const back = new THREE.DirectionalLight(0xffffff, 0.9); back.position.set(-1.5, 1.0, -1.2); scene.add(back);
  const grid = new THREE.GridHelper(0.2, 20, 0xaab1ba, 0xaab1ba); grid.position.z = middle.z; grid.material.transparent = true; grid.material.opacity = 0.45; scene.add(grid);

  // A body of revolution about y from rings of [height, radius].
  function lathe(rings) {
    const around = 20, at = [], index = [];
    for (const [height, radius] of rings) for (let k = 0; k < around; k++) {
      const angle = (2 * Math.PI * k) / around;
      at.push(radius * Math.cos(angle), height, radius * Math.sin(angle));
    }
    for (let r = 0; r + 1 < rings.length; r++) for (let k = 0; k < around; k++) {
      const a = r * around + k, b = r * around + ((k + 1) % around), c = a + around, d = b + around;
      index.push(a, c, b, b, c, d);
    }
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(at), 3));
    geometry.setIndex(index); geometry.computeVertexNormals();
    return geometry;
  }

  const { length_m: length, height_m: height, spine_m: spine } = data.blade;
  const section = [[0, 0], [spine / 2, height], [-spine / 2, height]], corner = [];
  for (const z of [-length / 2, length / 2]) for (const [x, y] of section) corner.push(x, y, z);
  const blade = new THREE.BufferGeometry();
  blade.setAttribute("position", new THREE.BufferAttribute(new Float32Array(corner), 3));
  blade.setIndex([0, 1, 4, 0, 4, 3, 1, 2, 5, 1, 5, 4, 2, 0, 3, 2, 3, 5, 0, 2, 1, 3, 4, 5]);
  const wedge = blade.toNonIndexed(); wedge.computeVertexNormals();
  const rim = [[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [0, 3], [1, 4], [2, 5]].flat().flatMap((i) => corner.slice(3 * i, 3 * i + 3));
  const outline = new THREE.BufferGeometry();
  outline.setAttribute("position", new THREE.BufferAttribute(new Float32Array(rim), 3));

  const strongest = Math.max(...cuts.flatMap((cut) => cut.source.force_n), 1e-9), longest = 0.75 * size; // of the force arrow
  for (const cut of cuts) {
    cut.group = new THREE.Group(); scene.add(cut.group);
    // One mesh per half. Triangles have vertices of their own: the cut face is flesh, and edges stay sharp.
    cut.halves = [1, -1].map((which) => {
      const corners = [], inside = [];
      for (let f = 0; f < side.length; f++) if (side[f] === which) for (let k = 0; k < 3; k++) { corners.push(faces[3 * f + k]); inside.push(onCut[f]); }
      const geometry = new THREE.BufferGeometry();
      geometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(3 * corners.length), 3));
      geometry.setAttribute("color", new THREE.BufferAttribute(new Float32Array(3 * corners.length), 3));
      const material = new THREE.MeshStandardMaterial({ vertexColors: true, side: THREE.DoubleSide, roughness: 0.85, flatShading: true });
      const mesh = new THREE.Mesh(geometry, material);
      mesh.frustumCulled = false; cut.group.add(mesh);
      return { which, corners, inside, geometry, material };
    });
    cut.springGeometry = new THREE.BufferGeometry();
    cut.springGeometry.setAttribute("position", new THREE.BufferAttribute(new Float32Array(6 * springs), 3));
    cut.springGeometry.setAttribute("color", new THREE.BufferAttribute(new Float32Array(6 * springs), 3));
    cut.springThings = [
      new THREE.Points(cut.springGeometry, new THREE.PointsMaterial({ vertexColors: true, size: 0.035 * size })),
      new THREE.LineSegments(cut.springGeometry, new THREE.LineBasicMaterial({ vertexColors: true })),
    ];
    for (const thing of cut.springThings) { thing.frustumCulled = false; cut.group.add(thing); }
    cut.knife = new THREE.Mesh(wedge, new THREE.MeshStandardMaterial({ color: 0x9fb0c0, metalness: 0.35, roughness: 0.4, side: THREE.DoubleSide }));
    cut.outline = new THREE.LineSegments(outline, new THREE.LineBasicMaterial({ color: 0x5d6b79 }));
    cut.group.add(cut.knife); cut.group.add(cut.outline);
    const red = new THREE.MeshStandardMaterial({ color: 0xd1242f, roughness: 0.6, side: THREE.DoubleSide, depthTest: false, transparent: true }); // drawn after the blade
    cut.shaft = new THREE.Mesh(lathe([[0, 0.012 * size], [1, 0.012 * size]]), red);
    cut.head = new THREE.Mesh(lathe([[0, 0.034 * size], [0.1 * size, 0.0001]]), red);
    for (const part of [cut.shaft, cut.head]) { part.frustumCulled = false; part.renderOrder = 2; cut.group.add(part); }
  }
  if (other) $("which-label").hidden = false;
  const asideBy = 1.9 * size;

  // The arm: a capsule per link, drawn along +y with its lower end at the origin, then turned and put into place.
  function capsule(radius, length) {
    const rings = [];
    for (let i = 0; i <= 6; i++) rings.push([-radius * Math.cos((i * Math.PI) / 12), radius * Math.sin((i * Math.PI) / 12)]);
    for (let i = 0; i <= 6; i++) rings.push([length + radius * Math.sin((i * Math.PI) / 12), radius * Math.cos((i * Math.PI) / 12)]);
    return lathe(rings);
  }
  const arm = new THREE.Group(), links = [], up = new THREE.Vector3(0, 1, 0);
  let fixture = null;
  scene.add(arm);
  if (data.arm) {
    $("arm-label").hidden = $("look-arm").hidden = false;
    const looks = { roughness: 0.6, side: THREE.DoubleSide };
    data.arm.radius.forEach((radius, i) => {
      const [from, to] = data.arm.ends[0][i].map((p) => new THREE.Vector3(...p));
      const colour = i === 0 ? 0x6b7683 : i % 2 ? 0xdfe4ea : 0xb9c2cd;
      links.push(new THREE.Mesh(capsule(radius, from.distanceTo(to)), new THREE.MeshStandardMaterial({ color: colour, ...looks })));
      arm.add(links[i]);
    });
    const [lowest, highest] = data.arm.box, box = [];
    for (let k = 0; k < 8; k++) box.push(...[0, 1, 2].map((a) => ((k >> a) & 1 ? highest : lowest)[a]));
    const body = new THREE.BufferGeometry();
    body.setAttribute("position", new THREE.BufferAttribute(new Float32Array(box), 3));
    body.setIndex([0, 2, 1, 1, 2, 3, 4, 5, 6, 5, 7, 6, 0, 1, 4, 1, 5, 4, 2, 6, 3, 3, 6, 7, 0, 4, 2, 2, 4, 6, 1, 3, 5, 3, 7, 5]);
    fixture = new THREE.Mesh(body.toNonIndexed(), new THREE.MeshStandardMaterial({ color: 0x7f8b99, transparent: true, opacity: 0.45, ...looks }));
    fixture.geometry.computeVertexNormals(); arm.add(fixture);
  }
  function placeArm(frame) {
    arm.visible = Boolean(data.arm) && $("arm").checked && main.group.visible;
    if (!arm.visible) return;
    links.forEach((link, i) => {
      const [from, to] = data.arm.ends[frame][i].map((p) => new THREE.Vector3(...p));
      link.position.copy(from);
      link.quaternion.setFromUnitVectors(up, to.sub(from).normalize());
    });
    fixture.position.set(...data.knife_m[frame]); fixture.rotation.x = data.pitch_rad[frame];
  }

  const controls = renderer && new THREE.OrbitControls(camera, $("view"));
  const places = { fruit: [1.7, 1.15, 1.7], side: [0, 0.35, 2.6], front: [2.6, 0.35, 0], top: [0, 2.8, 0.001] };
  function look() {
    const whole = Boolean(data.arm) && $("look").value === "arm", target = middle.clone();
    const both = other && $("which").value === "both" && !whole;
    let far = size * Math.max(1, 1.1 / camera.aspect), [x, y, z] = places[whole ? "fruit" : $("look").value];
    if (both) { target.x = -0.5 * asideBy; far = size * Math.max(1.4, 2 / camera.aspect); if ($("look").value === "fruit") [x, y, z] = [1.25, 1.2, 1.9]; }
    // The knife's holder would stand before the fruit: look from the other end of the blade.
    if (data.arm && !whole && data.arm.box[0][2] + data.arm.box[1][2] > 0) z = -z;
    if (whole) {
      const ends = data.arm.ends[0].flat(), centre = [0, 1, 2].map((k) => { const v = ends.map((p) => p[k]); return 0.5 * (Math.min(...v) + Math.max(...v)); });
      target.set(...centre); far = 0.65 * Math.max(1, 1.1 / camera.aspect);
    }
    camera.position.set(target.x + x * far, target.y + y * far, target.z + z * far);
    if (controls) { controls.target.copy(target); controls.update(); } else camera.lookAt(target);
  }
  if (controls) controls.addEventListener("change", render);

  function render() {
    if (renderer) renderer.render(scene, camera);
    cuts.forEach((cut, i) => {
      const tag = $(`tag-${i}`), box = $("stage");
      tag.hidden = !other || $("which").value !== "both";
      const at = new THREE.Vector3(cut.group.position.x, high[1] + 0.62 * size, middle.z).project(camera);
      tag.style.left = `${Math.min(box.clientWidth - 50, Math.max(50, 0.5 * (at.x + 1) * box.clientWidth))}px`;
      tag.style.top = `${Math.max(34, 0.5 * (1 - at.y) * box.clientHeight)}px`;
    });
  }

  function fit() {
    const { clientWidth: wide, clientHeight: tall } = $("stage");
    camera.aspect = wide / Math.max(tall, 1); camera.updateProjectionMatrix();
    if (renderer) { renderer.setPixelRatio(Math.min(devicePixelRatio, 2)); renderer.setSize(wide, tall, false); }
    scene.background = new THREE.Color(css("--view"));
    drawForce(); render();
  }

  // The last frame of a cut at or before a time.
  function frameAt(cut, time) {
    let frame = 0;
    while (frame + 1 < cut.time.length && cut.time[frame + 1] <= time + 1e-9) frame++;
    return frame;
  }

  function placeForce(cut, frame) {
    const force = new THREE.Vector3(...cut.source.force_vector_n[frame]), norm = force.length(), span = (longest * norm) / strongest;
    cut.shaft.visible = cut.head.visible = $("arrow").checked && span > 0.02 * size;
    if (!cut.shaft.visible) return;
    const way = force.multiplyScalar(1 / norm);
    for (const part of [cut.shaft, cut.head]) { part.position.set(...cut.source.knife_m[frame]); part.quaternion.setFromUnitVectors(up, way); }
    cut.shaft.scale.set(1, span, 1);
    cut.head.position.add(way.clone().multiplyScalar(span));
  }

  function placeCut(cut, frame) {
    const grain = data.grain_m, apart = 5e-4 * Number($("apart").value), colourful = $("surface").value === "displacement";
    const glass = $("glass").checked;
    for (const { which, corners, inside, geometry, material } of cut.halves) {
      const at = geometry.attributes.position.array, colour = geometry.attributes.color.array;
      corners.forEach((v, i) => {
        const row = frame * count + v;
        at[3 * i] = cut.vertices[3 * row] * grain + which * apart; at[3 * i + 1] = cut.vertices[3 * row + 1] * grain; at[3 * i + 2] = cut.vertices[3 * row + 2] * grain;
        const c = colourful ? pick(surfaceColours, (cut.displacement[row] * grain) / most) : inside[i] ? flesh : plain;
        colour[3 * i] = c[0]; colour[3 * i + 1] = c[1]; colour[3 * i + 2] = c[2];
      });
      geometry.attributes.position.needsUpdate = geometry.attributes.color.needsUpdate = true;
      material.transparent = glass && which === 1; material.opacity = material.transparent ? 0.35 : 1; material.depthWrite = !material.transparent;
    }
    const ends = cut.springGeometry.attributes.position.array, colour = cut.springGeometry.attributes.color.array;
    for (let s = 0; s < springs; s++) {
      const row = frame * springs + s, c = pick(springColours, cut.remaining[row] * data.grain);
      for (const [offset, from, way] of [[0, cut.plus, 1], [3, cut.minus, -1]]) for (let k = 0; k < 3; k++) {
        ends[6 * s + offset + k] = from[3 * row + k] * grain + (k === 0 ? way * apart : 0);
        colour[6 * s + offset + k] = c[k];
      }
    }
    cut.springGeometry.attributes.position.needsUpdate = cut.springGeometry.attributes.color.needsUpdate = true;
    for (const thing of cut.springThings) thing.visible = $("springs").checked;
    cut.knife.position.set(...cut.source.knife_m[frame]); cut.outline.position.copy(cut.knife.position);
    cut.knife.rotation.x = cut.outline.rotation.x = cut.source.pitch_rad[frame];
    const clear = $("clear").checked, steel = cut.knife.material;
    steel.transparent = clear; steel.opacity = clear ? 0.3 : 1; steel.depthWrite = !clear;
    placeForce(cut, frame);
  }

  function place(frame) {
    const which = other ? $("which").value : "optimised";
    main.group.visible = which !== "vertical";
    if (main.group.visible) placeCut(main, frame);
    if (other) {
      other.group.visible = which !== "optimised";
      other.group.position.x = which === "both" ? -asideBy : 0;
      if (other.group.visible) placeCut(other, frameAt(other, data.time_s[frame]));
    }
    placeArm(frame);
  }

  // ---- the force plot, with the clock's line
  // From 0 to `most` in steps of 1, 2 or 5 times a power of ten, about `count` of them.
  function ticks(most, count) {
    const power = 10 ** Math.floor(Math.log10(most / count));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= most / count - 1e-12);
    return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(6)));
  }
  const plot = $("force"), margin = { left: 46, right: 12, top: 10, bottom: 30 };
  function drawForce() {
    const wide = plot.clientWidth, tall = plot.clientHeight, scale = devicePixelRatio;
    plot.width = wide * scale; plot.height = tall * scale;
    const c = plot.getContext("2d"); c.scale(scale, scale);
    const end = data.time_s[frames - 1], top = 1.08 * strongest;
    const x = (t) => margin.left + (t / end) * (wide - margin.left - margin.right);
    const y = (f) => tall - margin.bottom - (f / top) * (tall - margin.top - margin.bottom);
    const line = (values, max, colour, dash, time = data.time_s) => {
      c.beginPath(); c.setLineDash(dash); c.strokeStyle = colour; c.lineWidth = 1.8;
      values.forEach((v, i) => c[i ? "lineTo" : "moveTo"](x(time[i]), y((v / max) * top))); c.stroke(); c.setLineDash([]);
    };
    if (data.final_from_s !== null) {
      c.fillStyle = css("--line"); c.globalAlpha = 0.45;
      c.fillRect(x(data.final_from_s), margin.top, x(end) - x(data.final_from_s), tall - margin.top - margin.bottom);
      c.globalAlpha = 1; c.fillStyle = css("--soft"); c.font = "11px sans-serif"; c.textAlign = "left";
      c.fillText("final strokes", x(data.final_from_s) + 8, y(0.5 * top));
    }
    c.font = "11px sans-serif"; c.fillStyle = css("--soft"); c.strokeStyle = css("--line"); c.lineWidth = 1;
    for (const t of ticks(end, wide < 500 ? 4 : 8)) { c.textAlign = "center"; c.fillText(String(t), x(t), tall - 15); }
    plot.dataset.ticks = ticks(top, 4).join(" ");
    for (const f of ticks(top, 4)) {
      c.textAlign = "right"; c.fillText(String(f), margin.left - 5, y(f) + 4);
      c.beginPath(); c.moveTo(margin.left, y(f)); c.lineTo(wide - margin.right, y(f)); c.stroke();
    }
    c.textAlign = "center"; c.fillText("time [s]", wide / 2, tall - 3);
    if (other) line(other.source.force_n, top, css("--soft"), [], other.time);
    line(data.force_n, top, css("--accent"), []);
    line(data.cut_fraction, 1.08, "#b07a00", [5, 4]);
    c.textAlign = "left"; c.fillStyle = css("--accent"); c.fillText(wide < 500 ? "force [N]" : "force on the knife [N], optimised", margin.left + 6, margin.top + 10);
    c.fillStyle = "#b07a00"; c.fillText(wide < 500 ? "dashed: share cut" : "dashed: share of the springs' stiffness cut, 0 to 1", margin.left + 6, margin.top + 24);
    if (other) { c.fillStyle = css("--soft"); c.fillText(wide < 500 ? "vertical" : "vertical cut of the same duration", margin.left + 6, margin.top + 38); }
    const now = x(data.time_s[shown.frame]);
    c.strokeStyle = css("--ink"); c.lineWidth = 1.2; c.beginPath(); c.moveTo(now, margin.top); c.lineTo(now, tall - margin.bottom); c.stroke();
    c.fillStyle = css("--accent"); c.beginPath(); c.arc(now, y(data.force_n[shown.frame]), 4, 0, 7); c.fill();
  }

  function show(frame) {
    shown.frame = Math.max(0, Math.min(frames - 1, frame));
    place(shown.frame);
    $("time").value = shown.frame;
    const time = data.time_s[shown.frame], which = other ? $("which").value : "optimised";
    const words = cuts.map((cut, i) => [cut, ["optimised", "vertical"][i]]).filter(([, name]) => which === "both" || which === name).map(([cut, name]) => {
      const frame = frameAt(cut, time);
      return `${other ? name + " " : ""}${cut.source.force_n[frame].toFixed(1)} N, edge at ${(1e3 * cut.source.knife_m[frame][1]).toFixed(1)} mm`;
    });
    const final = data.final_from_s !== null && time > data.final_from_s && which !== "vertical";
    $("now").textContent = `${time.toFixed(3)} s: ${words.join("; ")}`;
    $("phase").textContent = final ? "final strokes: the edge saws on the board until the fruit is parted" : "";
    $("phase").hidden = !final;
    drawForce(); render();
  }

  function play(on) { shown.playing = on; $("play").textContent = on ? "Pause" : "Play"; }
  $("play").addEventListener("click", () => { if (!shown.playing && shown.frame === frames - 1) clock = 0; play(!shown.playing); });
  $("time").addEventListener("input", (event) => { play(false); show(Number(event.target.value)); clock = data.time_s[shown.frame]; });
  plot.addEventListener("click", (event) => {
    const share = (event.offsetX - margin.left) / (plot.clientWidth - margin.left - margin.right);
    play(false); show(Math.round(share * (frames - 1))); clock = data.time_s[shown.frame];
  });
  $("look").addEventListener("input", () => { look(); render(); });
  $("reset").addEventListener("click", () => { look(); render(); });
  $("which").addEventListener("input", () => { show(shown.frame); look(); render(); });
  for (const id of ["surface", "springs", "glass", "clear", "arrow", "apart", "arm"]) $(id).addEventListener("input", () => show(shown.frame));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fit);
  addEventListener("resize", fit);
  addEventListener("keydown", (event) => {
    if (event.key === " " && event.target === document.body) { event.preventDefault(); $("play").click(); }
    if (event.target === document.body && (event.key === "ArrowRight" || event.key === "ArrowLeft")) { play(false); show(shown.frame + (event.key === "ArrowRight" ? 1 : -1)); clock = data.time_s[shown.frame]; }
  });

  let clock = 0, last = null;
  const pause = 0.6; // seconds of the cut's own time that the last frame stays
  function tick(now) {
    if (shown.playing && last !== null) {
      clock += ((now - last) / 1000) * Number($("speed").value);
      if (clock > data.time_s[frames - 1] + pause * Number($("speed").value)) clock = 0;
      const frame = frameAt(main, clock);
      if (frame !== shown.frame) show(frame);
    }
    last = now; requestAnimationFrame(tick);
  }
  const asked = new URLSearchParams(location.hash.slice(1)), wanted = asked.get("frame");
  if (asked.get("look") === "arm" && data.arm) $("look").value = "arm";
  if (other && asked.get("cut")) $("which").value = asked.get("cut");
  fit(); look(); show(wanted === null ? 0 : Number(wanted));
  if (wanted !== null) play(false);
  requestAnimationFrame(tick);
})();
