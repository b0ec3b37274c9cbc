#!/bin/sh
# Makes pipelines/report/assets/three.min.js: the parts of three.js that replay.html uses, in one classic script.
# Needs npm and a network; run it from the repository's root when three.js is to be renewed, then open a replay.
set -eu
target="$(pwd)/pipelines/report/assets/three.min.js"
work="$(mktemp -d)"
cd "$work"
npm install --no-save --silent three@0.187.0 esbuild@0.28.2
cat > entry.js <<'JS'
export {
  AmbientLight, BufferAttribute, BufferGeometry, Color, DirectionalLight, DoubleSide, GridHelper, Group,
  LineBasicMaterial, LineSegments, Mesh, MeshStandardMaterial, PerspectiveCamera, PlaneGeometry, Points,
  PointsMaterial, Scene, Vector3, WebGLRenderer,
} from "three";
export { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
JS
npx esbuild entry.js --bundle --minify --format=iife --global-name=THREE --legal-comments=inline --outfile="$target"
