"""Use from Python and notebooks: `import scan2cut`."""
