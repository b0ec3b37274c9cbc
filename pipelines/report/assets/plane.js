"use strict";
// Choose the cut plane by eye: the cleaned fruit turns about the vertical through its centre of mass, the plane moves along x.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const packed = new Int16Array(bytes(data.vertices)), faces = new Int32Array(bytes(data.faces));
  // Positions relative to the centre of mass in x and z; y is the height above the board.
  const rest = Float32Array.from(packed, (v, i) => v * data.grain_m + (i % 3 === 0 ? data.offset_m : 0));
  const chosen = { offset: data.offset_m, turn: data.turn_deg };
  const turned = new Float32Array(rest.length);
  let low = 0, high = 0;

  function turnFruit() {
    const angle = ((chosen.turn - data.turn_deg) * Math.PI) / 180, c = Math.cos(angle), s = Math.sin(angle);
    low = Infinity; high = -Infinity;
    for (let i = 0; i < rest.length; i += 3) {
      turned[i] = c * rest[i] + s * rest[i + 2]; turned[i + 1] = rest[i + 1]; turned[i + 2] = c * rest[i + 2] - s * rest[i];
      low = Math.min(low, turned[i]); high = Math.max(high, turned[i]);
    }
  }
  turnFruit();

  // ---- scene
  let renderer = null;
  try { renderer = new THREE.WebGLRenderer({ canvas: $("view"), antialias: true, preserveDrawingBuffer: true }); }
  catch { $("no-webgl").hidden = false; }
  const scene = new THREE.Scene(), camera = new THREE.PerspectiveCamera(35, 1, 0.001, 10);
  let tall = 0, radius = 0;
  for (let i = 0; i < rest.length; i += 3) { tall = Math.max(tall, rest[i + 1]); radius = Math.max(radius, Math.hypot(rest[i], rest[i + 2])); }
  const size = Math.max(tall, 2 * radius), middle = new THREE.Vector3(0, 0.5 * tall, 0);
  scene.add(new THREE.AmbientLight(0xffffff, 1.1));
  const sun = new THREE.DirectionalLight(0xffffff, 2.2); sun.position.set(1.2, 2.5, 1.6); scene.add(sun);
  const back = new THREE.DirectionalLight(0xffffff, 0.9); back.position.set(-1.5, 1.0, -1.2); scene.add(back);
  const grid = new THREE.GridHelper(3 * size, 30, 0xaab1ba, 0xaab1ba); grid.material.transparent = true; grid.material.opacity = 0.4; scene.add(grid);
  const attribute = (length) => new THREE.BufferAttribute(new Float32Array(length), 3);
  const body = new THREE.BufferGeometry();
  body.setAttribute("position", attribute(9 * faces.length)); body.setAttribute("color", attribute(9 * faces.length));
  const fruit = new THREE.Mesh(body, new THREE.MeshStandardMaterial({ vertexColors: true, side: THREE.DoubleSide, roughness: 0.85, flatShading: true }));
  fruit.frustumCulled = false; scene.add(fruit);
  const rim = new THREE.BufferGeometry();
  rim.setAttribute("position", attribute(6 * faces.length));
  const contour = new THREE.LineSegments(rim, new THREE.LineBasicMaterial({ color: 0xd1242f }));
  contour.frustumCulled = false; scene.add(contour);
  const half = 0.75 * size, top = tall + 0.2 * size; // the plane's rectangle: |z| ≤ half, 0 ≤ y ≤ top
  const sheet = new THREE.BufferGeometry();
  sheet.setAttribute("position", new THREE.BufferAttribute(new Float32Array([0, 0, -half, 0, top, -half, 0, top, half, 0, 0, -half, 0, top, half, 0, 0, half]), 3));
  sheet.setAttribute("normal", new THREE.BufferAttribute(new Float32Array([1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0]), 3));
  const plane = new THREE.Mesh(sheet, new THREE.MeshStandardMaterial({ color: 0x0072b2, transparent: true, opacity: 0.28, side: THREE.DoubleSide, depthWrite: false }));
  const frame = new THREE.BufferGeometry();
  frame.setAttribute("position", new THREE.BufferAttribute(new Float32Array([0, 0, -half, 0, top, -half, 0, top, -half, 0, top, half, 0, top, half, 0, 0, half, 0, 0, half, 0, 0, -half]), 3));
  const edge = new THREE.LineSegments(frame, new THREE.LineBasicMaterial({ color: 0x0072b2 }));
  scene.add(plane); scene.add(edge);

  const linear = (hex) => [1, 3, 5].map((i) => { const c = parseInt(hex.slice(i, i + 2), 16) / 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  const cut = linear("#e07b39"), kept = linear("#c9c4b4");
  // The triangles that the plane crosses are split, so that the piece has a sharp edge.
  function draw() {
    const at = body.attributes.position.array, colour = body.attributes.color.array, line = rim.attributes.position.array;
    let used = 0, drawn = 0;
    const add = (points, colours) => { for (const p of points) for (let a = 0; a < 3; a++) { colour[drawn] = colours[a]; at[drawn++] = p[a]; } };
    for (let f = 0; f < faces.length; f += 3) {
      const points = [0, 1, 2].map((k) => turned.subarray(3 * faces[f + k], 3 * faces[f + k] + 3));
      const over = points.map((p) => p[0] > chosen.offset), count = over[0] + over[1] + over[2];
      if (count === 0 || count === 3) { add(points, count ? cut : kept); continue; }
      const k = over.indexOf(count === 1), [alone, next, last] = [points[k], points[(k + 1) % 3], points[(k + 2) % 3]];
      const [p, q] = [next, last].map((other) => { const t = (chosen.offset - alone[0]) / (other[0] - alone[0]); return [0, 1, 2].map((a) => alone[a] + t * (other[a] - alone[a])); });
      const [one, two] = count === 1 ? [cut, kept] : [kept, cut];
      add([alone, p, q], one); add([p, next, last], two); add([p, last, q], two);
      for (const point of [p, q]) for (const v of point) line[used++] = v;
    }
    body.setDrawRange(0, drawn / 3);
    rim.setDrawRange(0, used / 3);
    body.attributes.position.needsUpdate = body.attributes.color.needsUpdate = rim.attributes.position.needsUpdate = true;
    body.computeVertexNormals();
    plane.position.x = edge.position.x = chosen.offset;
    const [left, right] = [chosen.offset - low, high - chosen.offset].map((v) => 1e3 * v);
    $("offset").min = (1e3 * low).toFixed(1); $("offset").max = (1e3 * high).toFixed(1);
    $("offset").value = 1e3 * chosen.offset; $("turn").value = chosen.turn;
    $("offset-text").textContent = `${(1e3 * chosen.offset).toFixed(1)} mm`;
    $("turn-text").textContent = `${chosen.turn.toFixed(0)}°`;
    if (document.activeElement !== $("thickness")) $("thickness").value = right.toFixed(1);
    $("pieces").textContent = `Pieces: ${right.toFixed(1)} mm (colour) and ${left.toFixed(1)} mm. Height ${(1e3 * tall).toFixed(0)} mm.`;
    render();
  }

  const controls = renderer && new THREE.OrbitControls(camera, $("view"));
  const places = { corner: [1.5, 1.1, 1.9], side: [0, 0.25, 2.6], top: [0, 2.6, 0.001], front: [2.6, 0.25, 0] };
  function look() {
    const [x, y, z] = places[$("look").value], far = size * Math.max(1, 0.9 / camera.aspect);
    camera.position.set(middle.x + x * far, middle.y + y * far, middle.z + z * far);
    if (controls) { controls.target.copy(middle); controls.update(); } else camera.lookAt(middle);
    render();
  }
  function render() { if (renderer) renderer.render(scene, camera); }
  function fit() {
    const { clientWidth: wide, clientHeight: high } = $("stage");
    camera.aspect = wide / Math.max(high, 1); camera.updateProjectionMatrix();
    if (renderer) { renderer.setPixelRatio(Math.min(devicePixelRatio, 2)); renderer.setSize(wide, high, false); }
    scene.background = new THREE.Color(css("--view"));
    render();
  }
  if (controls) controls.addEventListener("change", render);

  // ---- what moves the plane
  const margin = 1e-3;
  function move(offset) { chosen.offset = Math.min(high - margin, Math.max(low + margin, offset)); draw(); }
  function turn(degrees) { chosen.turn = degrees; turnFruit(); move(chosen.offset); }
  $("offset").addEventListener("input", (event) => move(1e-3 * Number(event.target.value)));
  $("turn").addEventListener("input", (event) => turn(Number(event.target.value)));
  $("thickness").addEventListener("input", (event) => { const v = Number(event.target.value); if (v > 0) move(high - 1e-3 * v); });
  $("thickness").addEventListener("blur", draw);
  $("look").addEventListener("input", look);
  $("reset").addEventListener("click", () => { chosen.offset = data.offset_m; turn(data.turn_deg); look(); });

  const pixel = (x, y, z) => { const p = new THREE.Vector3(x, y, z).project(camera), box = $("view").getBoundingClientRect(); return [0.5 * (p.x + 1) * box.width, 0.5 * (1 - p.y) * box.height]; };
  let grabbed = null;
  function onRim(event) {
    const box = $("view").getBoundingClientRect();
    const beyond = new THREE.Vector3((2 * (event.clientX - box.left)) / box.width - 1, 1 - (2 * (event.clientY - box.top)) / box.height, 0.5).unproject(camera).sub(camera.position);
    if (Math.abs(beyond.x) < 1e-9) return false;
    const t = (chosen.offset - camera.position.x) / beyond.x;
    if (t <= 0) return false;
    const y = camera.position.y + t * beyond.y, z = camera.position.z + t * beyond.z, wide = 0.15 * size;
    const inside = y > -0.03 * size && y < top + 0.03 * size && Math.abs(z) < half + 0.03 * size;
    return inside && (y > top - wide || Math.abs(z) > half - wide);
  }
  // Registered in the capturing phase: the orbit must not start when the rim is grabbed.
  $("stage").addEventListener("pointerdown", (event) => {
    if (!onRim(event)) return;
    const [x0, y0] = pixel(chosen.offset, top, 0), [x1, y1] = pixel(chosen.offset + 0.01, top, 0);
    grabbed = { x: event.clientX, y: event.clientY, offset: chosen.offset, way: [x1 - x0, y1 - y0] };
    event.stopPropagation(); event.preventDefault();
  }, true);
  addEventListener("pointermove", (event) => {
    if (!grabbed) { $("view").style.cursor = onRim(event) ? "grab" : ""; return; }
    const [wx, wy] = grabbed.way, square = Math.max(wx * wx + wy * wy, 1e-6);
    move(grabbed.offset + (0.01 * ((event.clientX - grabbed.x) * wx + (event.clientY - grabbed.y) * wy)) / square);
  });
  addEventListener("pointerup", () => { grabbed = null; });

  $("save").addEventListener("click", async () => {
    $("save").disabled = true;
    try {
      const answer = await fetch("/plane", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ token: data.token, cut_offset_m: chosen.offset, turn_deg: chosen.turn }) });
      $("said").textContent = await answer.text();
      $("save").disabled = answer.ok;
    } catch {
      $("said").textContent = "The command has ended, so nothing was saved. Start it again: scan2cut plane " + data.scan;
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", fit);
  addEventListener("resize", fit);
  fit(); look(); draw();
})();
