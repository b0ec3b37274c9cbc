"""Scripts that draw the docs' pictures, fit real logs and write generated docs."""
