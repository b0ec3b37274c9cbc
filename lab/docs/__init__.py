"""Pictures and generated pages for the documentation."""
