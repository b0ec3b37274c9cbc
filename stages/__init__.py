"""The stages: pure functions of artifacts and params, each with a thin main."""
