"""The steps of the stage `tetrahedralize`: sizing field, mesher, quality."""
