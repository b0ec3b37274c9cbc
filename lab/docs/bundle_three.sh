#!/bin/sh
# Bundles the parts of three.js that viewer.html uses into one classic script, pipelines/report/assets/three.min.js.
#
#   sh scripts/bundle_three.sh        in the project's directory; needs npm and a network
#
# Only to upgrade three.js: change the version below and in pipelines/report/assets/LICENSES.txt, run this, then look at a
# viewer (`scan2cut view SCAN --open`). A class of three.js that viewer.html newly uses is added to the list of exports.
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
